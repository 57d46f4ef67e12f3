"""Language around tensors that once left the graph, or did not do what eager does."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from whole.assert_same import assert_same

import thruway


class Sized:
    def __len__(self):
        return 3


def test_a_length_of_the_users_own_stays_in_the_graph():
    modules, sized = nn.ModuleList([nn.Linear(2, 2)] * 3), Sized()

    def run(x):
        for module in modules[: len(sized)]:
            x = module(x)
        return x * len(modules), bool(sized)

    assert_same(run, torch.ones(2))
    assert thruway.explain(run)(torch.ones(2)).break_reasons == ()


class Bag:
    """Not iterable, and asked for an attribute whose name is a word of the language's."""

    returned = 3


def unpacked(given):
    first, second = opaque_items(given)
    return first, second


def unpacked_with_rest(given):
    first, *rest, last = opaque_items(given)
    return first, rest, last


class Items:
    """Iterable, but nothing that capture follows: it counts what is taken of it."""

    def __init__(self, count):
        self.count, self.taken = count, 0

    @thruway.disable
    def __iter__(self):
        for i in range(self.count):
            self.taken += 1
            yield i


@thruway.disable
def opaque_items(given):
    return given


@pytest.mark.parametrize("function", [unpacked, unpacked_with_rest])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_no_more_is_unpacked_than_eager_takes(function, count):
    found = []
    for call in (function, thruway.compile(function, backend="eager")):
        given = Items(count)
        try:
            found.append((call(given), given.taken))
        except ValueError as error:
            found.append((str(error), given.taken))
    assert found[0] == found[1]


@pytest.mark.parametrize("function", [unpacked, unpacked_with_rest])
@pytest.mark.parametrize("given", [3, None, Bag()])
def test_what_cannot_be_unpacked_says_so(function, given):
    words = []
    for call in (function, thruway.compile(function, backend="eager")):
        with pytest.raises(TypeError) as error:
            call(given)
        words.append(str(error.value))
    assert words[0] == words[1]


def test_an_attribute_read_at_a_break_may_have_any_name():
    def reads(given):
        return opaque_items(given).returned
    assert thruway.compile(reads, backend="eager")(Bag()) == 3
