"""Where gradients are wanted the captured graph runs by torch's operators: gradients, statistics and random numbers are eager's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thruway
from whole.assert_same import assert_same


class Net(nn.Module):
    """Batch norm, dropout and an in-place activation over a convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        y = nn.functional.relu(self.norm(self.conv(x)), inplace=True)
        return self.head(self.drop(y).mean((2, 3)))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("no_grad", [True, False])
@pytest.mark.parametrize("backend", ["thruway", "eager"])
def test_a_small_network(training, no_grad, backend):
    torch.manual_seed(0)
    assert_same(Net().train(training), torch.randn(4, 3, 8, 8), graphs=1, breaks=0, no_grad=no_grad, backend=backend, tolerance=1e-5)


def in_place(x, w):
    y = x * w
    y.add_(1).mul_(w)
    y[0] = 0
    y[:, 1] += x[:, 1]
    return y.sigmoid_()


def written_input(x, w):
    x.add_(w.detach())
    return (x * w).sum()


def stopped(x, w):
    with torch.no_grad():
        scale = (x * w).mean()
    return x * w * scale + w.detach()


def started(x, w):
    with torch.enable_grad():
        inner = (x * w).sum()
    return inner, x * w


def a_leaf_made_inside(x, w):
    leaf = torch.ones(3, requires_grad=True)
    return (leaf * w).sum(), leaf


def marked_inside(x, w):
    y = (x + 1).detach()
    y.requires_grad_()
    return (y * w).sum(), y


def two_views(x, w):
    a, b = w.chunk(2)
    return a * b.exp(), w.t(), w[0]


@pytest.mark.parametrize("no_grad", [True, False])
@pytest.mark.parametrize("backend", ["thruway", "eager"])
@pytest.mark.parametrize("function", [in_place, written_input, stopped, started, a_leaf_made_inside, marked_inside, two_views])
def test_functions(function, backend, no_grad):
    x, w = torch.randn(4, 3), torch.randn(4, 3, requires_grad=True)
    assert_same(function, x, w, backend=backend, no_grad=no_grad)


def test_a_step_of_training():
    torch.manual_seed(0)
    model, other = Net(), Net()
    other.load_state_dict(model.state_dict())
    x = torch.randn(4, 3, 8, 8)
    for net, call in ((model, model), (other, thruway.compile(other))):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        for _ in range(4):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
    for (name, mine), theirs in zip(model.state_dict().items(), other.state_dict().values()):
        torch.testing.assert_close(theirs, mine, msg=lambda text, name=name: f"{name}: {text}")


def test_between_training_and_evaluation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    compiled = thruway.compile(model)
    x = torch.randn(16, 4)
    for _ in range(3):
        model.train()
        compiled(x).mean().backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad
        model.eval()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
