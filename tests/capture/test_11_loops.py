"""A break in a loop: the stack grows no deeper, and every iteration uses the same captured stretches."""

import pytest
import torch

import thruway

SEEN: list[object] = []


@thruway.disable
def note(value):
    SEEN.append(value)


def count(x, n):
    for i in range(n):
        x = x + 1
        note(i)
        x = x * 0.5
    return x


def counted_by_hand(x, n):
    k = 0
    while k < n:
        x = x + k
        note(k)
        k += 1
    return x, k


def collect(x, n):
    out = []
    for k, row in enumerate([x + i for i in range(n)]):
        y = row + k
        note(k)
        out.append(y * 2)
    return out


def two_lists(x, n):
    total = x
    for a, b in zip([x] * n, range(n)):
        total = total + a
        note(b)
        total = total * 0.5
    return total


def handled(x, n):
    for i in range(n):
        try:
            x = x + 1
            note(i)
            if i % 3 == 0:
                raise ValueError
        except ValueError as error:
            note(type(error))
            x = x - 1
        finally:
            note("finally")
    return x


def nested(x, n):
    def step(y, i):
        note(i)
        return y + 1
    for i in range(n):
        x = step(x, i) * 0.5
        for _ in range(2):
            x = step(x, i)
    return x


def closed_over(x, n):
    total = 0

    def add(i):
        nonlocal total
        total += 1
        return x + i
    for i in range(n):
        x = add(i)
        note(total)
    return x, total


class Base:
    def step(self, x):
        return x + 1


class Derived(Base):
    def step(self, x):
        for i in range(40):
            x = super().step(x)
            note(i)
        return x, (lambda: self)() is self


def method(x, n):
    return Derived().step(x)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list | tuple) else a == b


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


LOOPS = (count, counted_by_hand, collect, two_lists, handled, nested, closed_over, method)


@pytest.mark.parametrize("function", LOOPS)
def test_a_loop_of_breaks(function):
    compiled = thruway.compile(function, backend="eager")
    for n in (3, 40, 400):
        x = torch.ones(2)
        SEEN.clear()
        expected = function(x, n)
        wanted = list(SEEN)
        SEEN.clear()
        assert same(compiled(x, n), expected)
        assert wanted == SEEN
    found = thruway.metrics()
    assert found["captures"] <= 40 and not found["bugs"] and not found["eager"]


def test_ten_thousand_iterations():
    compiled = thruway.compile(count, backend="eager")
    SEEN.clear()
    assert torch.equal(compiled(torch.ones(2), 10_000), count(torch.ones(2), 10_000))
    assert len(SEEN) == 20_000 and thruway.metrics()["captures"] <= 5


class Sliced(torch.nn.Module):
    """ModuleList asks isinstance(…, Iterable), which Python 3.12 knows a metaclass of its own below."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        return x


def test_a_slice_of_modules():
    model, x = Sliced(), torch.ones(2, 4)
    with torch.no_grad():
        assert torch.allclose(thruway.compile(model, fullgraph=True)(x), model(x))
