"""Numbers read from tensors stay in the graph where arithmetic and effects use them; where Python must know one, it breaks there."""

import pytest
import torch

import thruway

HISTORY: list[float] = []


def arithmetic(x):
    n = x.sum().item()
    return x * n + n / 2 - (1 - n), n


def effects(x):
    loss = (x * x).mean()
    HISTORY.append(loss.item())
    x.add_(1)
    HISTORY.append(loss.item() * 2)
    return x * 2, {"loss": loss.item(), "best": x.argmax().item()}


def integers(x):
    k = x.argmax().item()
    return x * k, x > k, k


def before_a_write(x):
    y = x.clone()
    first = y.max().item()
    y.zero_()
    return first, y.max().item(), y + first


def halves(x):
    n = x.to(torch.bfloat16).sum().item()
    return x.to(torch.bfloat16) * n, x.to(torch.bfloat16).sum() * n


def branch(x):
    n = x.sum().item()
    if n > 0:
        return x + n
    return x - n, n


def as_size(x):
    k = x.argmax().item()
    return x[k], x[:k], torch.zeros(k + 1)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.allclose(a.double(), b.double())
    if isinstance(a, dict):
        return a.keys() == b.keys() and same(list(a.values()), list(b.values()))
    return type(a) is type(b) and (all(map(same, a, b)) if isinstance(a, tuple | list) else abs(a - b) < 1e-5)


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


def breaks_of(function, backend):
    compiled = thruway.compile(function, backend=backend)
    for i in range(4):
        torch.manual_seed(i)
        x = torch.randn(6)
        HISTORY.clear()
        given = x.clone()
        expected, noted = function(given), list(HISTORY)
        HISTORY.clear()
        got = x.clone()
        with torch.no_grad():
            assert same(compiled(got), expected)
        assert same(got, given) and same(noted, HISTORY)
    found = thruway.metrics()
    assert not found["bugs"] and not found["eager"]
    return found["graph_breaks"]


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", (arithmetic, effects, integers, before_a_write, halves, as_size))
def test_no_break(function, backend):
    assert breaks_of(function, backend) == 0


@pytest.mark.parametrize("function", (branch,))
def test_breaks_where_the_value_is_needed(function):
    assert breaks_of(function, "eager") >= 1
    assert thruway.pipeline.journal.of_kind("graph_break")[0].reason.where.line > 0


def test_gradients_do_not_flow_through_an_element():
    x, y = torch.randn(4, requires_grad=True), None
    y = x.detach().clone().requires_grad_()
    thruway.compile(arithmetic, backend="eager")(x)[0].sum().backward()
    arithmetic(y)[0].sum().backward()
    assert torch.allclose(x.grad, y.grad)
