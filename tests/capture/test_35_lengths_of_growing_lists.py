"""Lists, deques and dicts that every call makes longer: their lengths are numbers that change, and their ends are read, without a graph for each length."""

import collections
import copy
import random

import pytest
import torch

import thruway
from thruway.pipeline import journal

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


TABLE: dict = {}
WINDOW: collections.deque = collections.deque(maxlen=5)
ENDLESS: collections.deque = collections.deque()


def last_and_first(x):
    HISTORY.append(x.sum())
    return x + HISTORY[-1] + HISTORY[0], len(HISTORY)


def last_ones(x):
    HISTORY.append(x.sum())
    return (torch.stack(HISTORY[-3:]) if len(HISTORY) > 3 else x), HISTORY[:1]


def counted_from_the_length(x):
    HISTORY.append(x.sum())
    return x + HISTORY[len(HISTORY) - 1], HISTORY[len(HISTORY) - 2:] if len(HISTORY) > 2 else 0


def too_far(x):
    try:
        y = HISTORY[-3]
    except IndexError:
        y = 7
    HISTORY.append(x.sum())
    return x + y


def items_that_change(x):
    HISTORY.append([1])
    HISTORY[0].append(2)
    HISTORY[-1].append(3)
    return x + len(HISTORY[0]) + (len(HISTORY) > 1 and HISTORY[1] is HISTORY[-1])


def extended(x):
    history = HISTORY
    history += [x.sum(), x]
    return x + history[-2], len(history)


def window(x):
    WINDOW.append(x.sum())
    return x + WINDOW[-1] + WINDOW[0], len(WINDOW)


def window_by_two(x):
    WINDOW.append(x.sum())
    WINDOW.append(x.sum() * 2)
    return x + WINDOW[-2], len(WINDOW), bool(WINDOW)


def whole_window(x):
    WINDOW.append(x.sum())
    return x + sum(WINDOW)


def endless(x):
    ENDLESS.append(x.sum())
    return x + ENDLESS[-1] + ENDLESS[0], len(ENDLESS)


def numbered(x):
    TABLE[len(TABLE)] = x + 1
    return x * 2


def numbered_and_read(x):
    n = len(TABLE)
    TABLE[n] = x
    return x * n, TABLE[n] + 1


def all_of_them(x):
    HISTORY.append(x.sum())
    TABLE[len(TABLE)] = x
    WINDOW.append(len(HISTORY))
    return x + len(HISTORY) + WINDOW[0], HISTORY[-1] + HISTORY[0]


def looked_into(x):
    """Near-misses: what is in the dict after such a write, and how much, has to be known."""
    TABLE[len(TABLE)] = x
    return x * len(TABLE), list(TABLE), TABLE.get(3)


def named_too(x):
    n = len(TABLE)
    TABLE[n], TABLE["n"] = x, n
    return x * n


def rewritten(x):
    HISTORY.append(x.sum())
    last, HISTORY[-1] = HISTORY[-1], x
    return x + last


def everything(x):
    HISTORY.append(x.sum())
    return x + sum(HISTORY)


STORES = (HISTORY, TABLE, WINDOW, ENDLESS)
FEW = [last_and_first, last_ones, counted_from_the_length, too_far, items_that_change, extended, window, window_by_two, endless, numbered, numbered_and_read,
       all_of_them]
MANY = [looked_into, named_too, rewritten, everything, whole_window]


def fourteen_calls(function):
    """What the calls give and leave."""
    for each in STORES:
        each.clear()
    return [repr((function(torch.full((2,), float(i))), STORES)) for i in range(14)]


@pytest.mark.parametrize("function", FEW + MANY)
def test_what_grows_is_read_at_its_ends(function):
    thruway.reset()
    assert fourteen_calls(thruway.compile(function)) == fourteen_calls(function)
    found = thruway.metrics()
    if function in FEW:
        assert found["graph_breaks"] == 0 and found["captures"] <= 5, found


def far_into_a_deque(x):
    ENDLESS.append(x.sum())
    ENDLESS.append(float(len(ENDLESS)))
    return x + (ENDLESS[-3] + ENDLESS[1] if len(ENDLESS) > 3 else 0)


def drawn(x):
    HISTORY.append(1.0)
    TABLE[random.randint(0, 5)] = x
    return x + HISTORY[random.randint(0, 0)]


@pytest.mark.parametrize("function", [far_into_a_deque, drawn])
def test_other_places(function):
    thruway.reset()
    found = []
    for each in (function, thruway.compile(function)):
        random.seed(3)
        found.append(fourteen_calls(each))
    assert found[0] == found[1]
    assert not [event for event in journal.events if event.kind == "bug"]
