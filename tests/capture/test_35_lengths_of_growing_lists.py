"""`len()` of a list that another call left with another length: a number that changes between calls, not a break."""

import copy

import pytest
import torch

import thruway

HISTORY: list[float] = []


def counted(x):
    HISTORY.append(3.0)
    return x * len(HISTORY), len(HISTORY), len(HISTORY) > 1, bool(HISTORY)


def differences(x):
    if not HISTORY:
        HISTORY.append(1.0)
        return x, 0
    before = len(HISTORY)
    HISTORY.append(2.0)
    HISTORY.append(4.0)
    return x + before, len(HISTORY) - before


class Logged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(tuple(x.shape))
        return x / len(self.seen)


@pytest.mark.parametrize("function", [counted, differences])
def test_no_break_and_few_captures(function):
    HISTORY.clear()
    thruway.reset()
    compiled = thruway.compile(function)
    for k in range(9):
        x, kept = torch.randn(3), list(HISTORY)
        expected, left = function(x), list(HISTORY)
        HISTORY[:] = kept
        assert repr(compiled(x)) == repr(expected) and HISTORY == left, k
    found = thruway.metrics()
    assert found["graph_breaks"] == 0 and found["captures"] <= 4, found


def test_of_a_module():
    one = Logged()
    other = copy.deepcopy(one)
    thruway.reset()
    compiled = thruway.compile(one)
    for _ in range(8):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), other(x))
    assert one.seen == other.seen
    assert thruway.metrics()["graph_breaks"] == 0


def in_a_side(x):
    if x.sum() > 0:
        HISTORY.append(1.0)
    return x, len(HISTORY)


def content(x):
    HISTORY.append(1.0)
    last, HISTORY[:] = HISTORY[-1], HISTORY[-4:]
    return x * last, len(HISTORY)


def over_a_break(x):
    HISTORY.append(1.0)
    x = x * len(HISTORY)
    torch.set_num_threads(torch.get_num_threads())
    HISTORY.append(2.0)
    return x + len(HISTORY), HISTORY


@pytest.mark.parametrize("function", [in_a_side, content, over_a_break])
def test_what_the_length_does_not_tell_is_right(function):
    HISTORY.clear()
    thruway.reset()
    compiled = thruway.compile(function)
    for k in range(8):
        x, kept = torch.randn(3) + (k % 3 - 1), list(HISTORY)
        expected, left = repr(function(x)), list(HISTORY)
        HISTORY[:] = kept
        assert repr(compiled(x)) == expected and HISTORY == left, k
