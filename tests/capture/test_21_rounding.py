"""Rounding of sizes that change between calls: whole numbers in terms of the sizes, exactly those of Python's floats, in one entry."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thruway
from thruway.capture.known_calls.rounding import ceil_of, floor_of, round_of, trunc_of


def halves(x):
    n = x.shape[0]
    return math.ceil(n / 2), n // 2, math.floor(n / 3), int(n / 2), round(n / 4), round(n / 2.5), int(n * 0.75), math.trunc(-n / 3), x[: int(n * 0.5)] + 1


def tens(x):
    n = x.shape[0]
    return round(n, -1), round(n), round(n * 5, -1), round(n, 2), int(n), math.ceil(n), round(n * 0.5), torch.zeros(round(n / 4) + 1) + x.sum()


def nested(x):
    n = x.shape[0]
    half = math.ceil((n + n % 2) / 2)
    return x[: n - half] * 2, x[-half:], half


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", (halves, tens, nested))
def test_one_entry(function, backend):
    thruway.reset()
    compiled = thruway.compile(function, backend=backend, dynamic=True)
    for n in (14, 15, 16, 25, 31, 45, 98):
        x = torch.arange(float(n))
        with torch.no_grad():
            got, expected = compiled(x), function(x)
        assert [type(one) for one in got] == [type(one) for one in expected]
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(got, expected))
    found = thruway.metrics()
    assert (found["graph_breaks"], found["recompiles"], found["eager"], found["bugs"]) == (0, 0, 0, 0)


def test_what_no_small_fraction_says_is_a_constant():
    def function(x):
        return int(x.shape[0] * 0.1), round(x.shape[0] / 4, 1), x + 1

    compiled = thruway.compile(function, dynamic=True)
    for n in (14, 25, 39, 10):
        x = torch.arange(float(n))
        assert compiled(x)[:2] == function(x)[:2]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, (1 << 40) - 1), st.integers(-1024, 1024), st.integers(1, 1024))
def test_exact_arithmetic_gives_what_floats_give(n, by, divisor):
    value = n / divisor
    assert (floor_of(n, divisor), ceil_of(n, divisor), trunc_of(n, divisor)) == (math.floor(value), math.ceil(value), int(value))
    assert round_of(n, divisor) == round(value)
    assert trunc_of(n * by, 8) == int(n * (by / 8)) and round_of(n * by, 8) == round(n * (by / 8))
    assert round_of(n, 100) * 100 == round(n, -2)
