"""What tensors found outside tell by themselves: attributes that isinstance believes, and that they are inference tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thruway

KINDS = (nn.Buffer, nn.Parameter, (int, nn.Buffer), nn.Parameter | int, torch.Tensor)


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.told, self.weight, self.marked = nn.Buffer(torch.ones(2)), nn.Parameter(torch.ones(2)), torch.ones(2)
        self.register_buffer("untold", torch.ones(2))
        self.marked._is_param = True

    def forward(self, x):
        found = [isinstance(one, kind) for one in (self.told, self.weight, self.untold, self.marked, x, x + 1, 3) for kind in KINDS]
        for one in (self.told, self.marked, self.untold):
            match one:
                case nn.Buffer():
                    found.append("buffer")
                case nn.Parameter():
                    found.append("parameter")
        return x + self.told, found


def test_isinstance_believes_what_tensors_say_of_themselves():
    module = Holding()
    compiled = thruway.compile(module, fullgraph=True)
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(module(torch.ones(2)))
    assert thruway.metrics()["recompiles"] == 0


@pytest.mark.parametrize("name", ["_is_buffer", "_is_param"])
def test_what_they_say_is_looked_at_in_every_call(name):
    module, x, plain = Holding(), torch.ones(2), torch.ones(2)
    compiled = thruway.compile(module, fullgraph=True)
    for change in (None, True, False, True):
        if change is not None:
            setattr(x, name, change)
            setattr(module.told, name, not change)
        for one in (x, plain):
            assert str(compiled(one)[1]) == str(module(one)[1])


def test_other_classes_do_not_look():
    """A near miss: a class of the user's that is derived from Buffer goes by the class."""
    class Own(nn.Buffer):
        pass

    def f(x):
        return isinstance(x, Own), x + 1

    x = torch.ones(2)
    x._is_buffer = True
    assert not thruway.compile(f)(x)[0] and not f(x)[0]


def made_in_inference_mode():
    with torch.inference_mode():
        made = torch.ones(2, 2) * 2
        return made, made.view(-1)


def written(y, z):
    try:
        y.add_(1)
    except RuntimeError as error:
        return z.clone(), str(error)
    return z.clone(), "written"


def written_through_a_view(y, z):
    log = []
    try:
        log.append(1)
        z[1:].mul_(3)
    except RuntimeError as error:
        log.append(str(error))
    return y + 1, log


def written_by_a_subscript(y, z):
    try:
        z[0] = 7.0
    except RuntimeError as error:
        return y + 1, str(error)
    return y + 1, "written"


@pytest.mark.parametrize("function", [written, written_through_a_view, written_by_a_subscript])
@pytest.mark.parametrize("views", [False, True])
def test_a_refused_write_of_an_inference_tensor_is_caught(function, views):
    compiled = thruway.compile(function)
    for _ in range(2):
        pairs = made_in_inference_mode(), made_in_inference_mode()
        expected, found = (run(y, z if views else z.clone()) for run, (y, z) in zip((function, compiled), pairs))
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
        assert torch.equal(pairs[0][0], pairs[1][0])


@pytest.mark.parametrize("function", [written, written_through_a_view, written_by_a_subscript])
def test_inside_inference_mode_and_with_plain_tensors_the_write_stays_in_the_graph(function):
    """Near misses."""
    compiled = thruway.compile(function, fullgraph=True)
    plain = torch.ones(2, 2), torch.ones(2, 2)
    assert str(compiled(plain[0], plain[0].view(-1))) == str(function(plain[1], plain[1].view(-1)))
    with torch.inference_mode():
        assert str(compiled(*made_in_inference_mode())) == str(function(*made_in_inference_mode()))
