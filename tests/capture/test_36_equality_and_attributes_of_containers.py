"""Containers compare as their classes do, and those that have attributes keep them."""

import collections
import copy

import pytest
import torch
from whole.assert_same import assert_same

import thruway

OrderedDict, Counter = collections.OrderedDict, collections.Counter
X = torch.ones(1)


def ordered_inside(x):
    a, b = OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)
    return x + (a == b), a != b, a == dict(b), dict(a) == b, [a] == [b], OrderedDict(a=1) == OrderedDict(a=1)


def ordered_outside(x, a, b):
    return x + 1 if a == b else x - 1


def counters(x):
    return x, Counter("ab") == {"a": 1, "b": 1}, {"a": 1} == Counter("a"), Counter(a=1, b=0) == Counter(a=1), Counter("a") == [1], Counter("a") != {"a": 2}


def slices(x, s):
    return x, slice(1, 2) == slice(1, 2), s == slice(1, 2), s in [slice(1, 2)], slice(1, 2) != s, slice(1, 2) < slice(1, 3), (slice(1), 2) == (slice(1), 3)


def in_reverse(x):
    parts = list(reversed(x))
    parts[0].zero_()
    return parts, reversed(x)


@pytest.mark.parametrize("function, args", [
    (ordered_inside, ()), (ordered_outside, (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1))), (ordered_outside, (OrderedDict(a=1), OrderedDict(a=1))),
    (ordered_outside, (OrderedDict(a=1, b=2), dict(b=2, a=1))), (counters, ()), (slices, (slice(1, 2),)), (slices, (slice(1, 3),)),
])
def test_equality(function, args):
    assert_same(function, X, *args)


def test_a_tensor_in_reverse_is_a_copy():
    assert_same(in_reverse, torch.tensor([0.5, 1.5, 2.0]))
    assert_same(lambda x: reversed(x), torch.tensor(0.5))


def test_tensors_are_not_rounded_by_the_builtin():
    assert_same(lambda x: round(x), X)
    assert_same(lambda x: round(x, 1), X)


def noted(x):
    kept = OrderedDict()
    kept.notes = OrderedDict()
    if hasattr(kept, "notes"):
        kept.notes["seen"] = {"version": 1}
    kept["x"] = x * 2
    return kept


@pytest.mark.parametrize("copied", [lambda d: d, copy.copy, copy.deepcopy])
def test_attributes_of_ordered_dicts(copied):
    for function in (noted, lambda x: torch.nn.Linear(2, 2).state_dict()):
        mine, eagers = (vars(run(X)) for run in (thruway.compile(lambda x: copied(function(x))), lambda x: copied(function(x))))
        assert mine == eagers and mine


def test_attributes_that_come_later():
    def f(x, d):
        return copy.copy(d), x + 1 if hasattr(d, "tag") else x - 1

    compiled, d = thruway.compile(f), OrderedDict(a=1)
    for tag in (None, None, 5, 6):
        if tag:
            d.tag = tag
        (mine, number), (eagers, wanted) = compiled(X, d), f(X, d)
        assert mine == eagers and vars(mine) == vars(eagers) and torch.equal(number, wanted)
