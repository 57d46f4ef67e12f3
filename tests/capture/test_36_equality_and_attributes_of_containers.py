"""Containers compare as their classes do, and those that have attributes keep them."""

import argparse
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


class Dotted(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def test_a_dict_whose_items_are_attributes():
    def f(x, config):
        config.calls = config.calls + 1
        del config.old
        config.old = config.calls * 2
        try:
            config.absent
        except KeyError as error:
            return x * config.scale, str(error), hasattr(config, "scale"), config
        return x

    compiled, mine, eagers = thruway.compile(f), Dotted(scale=2.0, calls=0, old=None), Dotted(scale=2.0, calls=0, old=None)
    for _ in range(3):
        assert compiled(X, mine) == f(X, eagers) and list(mine.items()) == list(eagers.items())
    assert thruway.explain(f)(X, Dotted(scale=2.0, calls=0, old=None)).break_reasons == ()


def test_a_namespace_of_arguments():
    def f(x, given):
        given.calls = given.calls + 1
        return x * given.scale, "scale" in given, "absent" in given, given == argparse.Namespace(scale=2.0, calls=1), getattr(given, "absent", None), vars(given)

    assert_same(f, X, argparse.Namespace(scale=2.0, calls=0))
    assert thruway.explain(f)(X, argparse.Namespace(scale=2.0, calls=0)).break_reasons == ()


class EvenType(type):
    def __instancecheck__(cls, value):
        return cls.asked.append(value) or isinstance(value, int) and value % 2 == 0


class Even(metaclass=EvenType):
    asked = []


def test_a_class_that_says_itself_what_is_an_instance():
    def f(x, number):
        return x + 1 if isinstance(number, Even) else x - 1, isinstance(Even(), Even), isinstance(number, torch.nn.Parameter)

    compiled = thruway.compile(f)
    for number in (2, 3, 2):
        counts = []
        for run in (f, compiled):
            counts.append((run(X, number), len(Even.asked)))
            Even.asked.clear()
        assert counts[0] == counts[1] and counts[0][1] == 1
    assert thruway.explain(f)(X, 3).break_reasons == ()
