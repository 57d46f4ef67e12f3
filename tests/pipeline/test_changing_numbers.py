"""Sizes and numbers that change between calls: captured once more, symbolic, and right for every value, through the whole compiler."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import thruway

BACKENDS = ("eager", "thruway")


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a.double(), b.double(), equal_nan=True)
    return type(a) is type(b) and (len(a) == len(b) and all(map(same, a, b)) if isinstance(a, tuple | list) else a == b)


class Schedule(nn.Module):
    def __init__(self):
        super().__init__()
        self.step, self.rate, self.linear = 0, 0.1, nn.Linear(3, 3)

    def forward(self, x, t):
        self.step += 1
        self.rate = self.rate * 0.9
        y = self.linear(x) * self.rate + t / 3 - (1 - self.rate)
        return y * (1 / x.shape[0]), y.int() * t, y > t, t * 2, y.bfloat16() * t, y.sum().bfloat16() * t, x.long() + 2 * self.step


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_that_counts(backend):
    plain, module = Schedule(), Schedule()
    module.load_state_dict(plain.state_dict())
    compiled = thruway.compile(module, backend=backend)
    with torch.no_grad():
        for i in range(12):
            x = torch.randn(4 + i % 3, 3)
            assert same(compiled(x, i * 0.37), plain(x, i * 0.37))
            assert (module.step, module.rate) == (plain.step, plain.rate)
    found = thruway.metrics()
    assert found["recompiles"] <= 3 and not found["bugs"] and not found["eager"]


def sizes(x, n):
    y = x.reshape(-1)[:n]
    return y * n, torch.arange(n), torch.zeros(n, 2) + n // 2, n % 3, -n, x.new_full((2,), n), torch.clamp(x, max=n), x / n


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_integer_as_size_and_as_number(backend):
    compiled = thruway.compile(sizes, backend=backend)
    for n in (3, 1, 5, 6, 7, 12, 2, 30):
        assert same(compiled(torch.ones(4, 9), n), sizes(torch.ones(4, 9), n))
    found = thruway.metrics()
    assert found["recompiles"] <= 4 and not found["bugs"] and not found["eager"]


def branches(x, n, f):
    if n > 5:
        x = x + n
    return x * f if n % 2 else x / f


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 12), st.floats(0.5, 4)), min_size=2, max_size=5))
def test_branches_on_numbers(calls):
    compiled = thruway.compile(branches, backend="eager")
    for n, f in calls:
        assert same(compiled(torch.ones(2), n, f), branches(torch.ones(2), n, f))


def test_division_by_a_float_that_becomes_zero():
    compiled = thruway.compile(lambda x, f: (x * 2, 1 / f), backend="eager")
    for f in (1.0, 2.0, 3.0):
        assert compiled(torch.ones(1), f)[1] == 1 / f
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(1), 0.0)


def test_dynamic_from_the_first_call():
    compiled = thruway.compile(lambda x: x * x.shape[0], backend="eager", dynamic=True)
    for n in (4, 5, 9):
        assert same(compiled(torch.ones(n)), torch.ones(n) * n)
    assert not thruway.metrics()["recompiles"]


def test_static_on_request():
    compiled = thruway.compile(lambda x: x * 2, backend="eager", dynamic=False)
    for n in (4, 5, 9):
        compiled(torch.ones(n))
    assert thruway.metrics()["recompiles"] == 2


@pytest.mark.parametrize("read, entries", [
    (lambda x, i: x[i] + 1, 3), (lambda x, i: x[:, i, None] * 2, 3), (lambda x, i: x[..., 1:3, i], 3), (lambda x, i: x[i, i + 1], 3),
    (lambda x, i: x[x.shape[0] - i - 1] + i, 4), (lambda x, i: x[-i - 1], 3),
])
def test_a_changing_position_is_read_by_few_entries(read, entries):
    x = torch.randn(9, 9)
    compiled = thruway.compile(read)
    before = thruway.metrics()["captures"]
    for i in range(8):
        assert torch.equal(compiled(x, i), read(x, i)), i
    assert thruway.metrics()["captures"] - before <= entries


def test_a_changing_position_is_written_by_few_entries_and_past_the_end_raises_as_eager():
    def write(cache, new, i):
        cache[:, i] = new
        cache[0, i:] = i
        return cache[:, i] * 2

    compiled, ours, eager = thruway.compile(write), torch.zeros(2, 9, 3), torch.zeros(2, 9, 3)
    before = thruway.metrics()["captures"]
    for i in range(9):
        new = torch.randn(2, 3)
        assert torch.equal(compiled(ours, new, i), write(eager, new, i)) and torch.equal(ours, eager), i
    assert thruway.metrics()["captures"] - before <= 4
    for i in (9, -10):
        with pytest.raises(IndexError):
            write(eager, new, i)
        with pytest.raises(IndexError):
            compiled(ours, new, i)
        assert torch.equal(ours, eager)
