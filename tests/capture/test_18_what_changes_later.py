"""What capture saw and what changes between calls: registrations of abstract classes, emptied and shared cells, the order of equal sets."""

from __future__ import annotations

import abc
import sys
import types

import pytest
import torch

import thruway


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    assert not thruway.metrics()["bugs"]


def compiled(fn):
    return thruway.compile(fn, backend="eager")


@pytest.mark.parametrize("ask", [isinstance, issubclass])
def test_a_class_registered_later(ask):
    class Kind(abc.ABC):
        pass

    class Thing:
        pass

    asked = Thing() if ask is isinstance else Thing

    def f(x):
        return x + 1 if ask(asked, Kind) else x - 1

    g, x = compiled(f), torch.ones(2)
    assert g(x)[0] == 0 and g(x)[0] == 0
    Kind.register(Thing)
    assert g(x)[0] == 2 and g(x)[0] == 2 and thruway.metrics()["graph_breaks"] == 0


def variable(filled):
    def f(x):
        nonlocal value
        try:
            y = x + value
        except NameError:
            y = x - 1
        value = 3.0
        return y

    def clear():
        nonlocal value
        del value

    value = 1.0
    if not filled:
        clear()
    return f, clear


@pytest.mark.parametrize("filled", [True, False])
def test_a_free_variable_that_is_empty_at_some_calls(filled):
    (f, clear), (e, clear_e) = variable(filled), variable(filled)
    g = compiled(f)
    for wipe in (False, False, True, False, True, True, False):
        if wipe:
            clear(), clear_e()
        assert torch.equal(g(torch.ones(2)), e(torch.ones(2)))


def counter():
    count = 0

    def add():
        nonlocal count
        count += 1

    return add


def reader():
    count = 0

    def get():
        return count

    return get


def pair(shared):
    first = types.CellType(0)
    second = first if shared else types.CellType(0)
    return types.FunctionType(counter().__code__, globals(), "add", None, (first,)), types.FunctionType(reader().__code__, globals(), "get", None, (second,))


def test_cells_that_are_one_later():
    def f(x, add, get):
        add()
        return x + get()

    g = compiled(f)
    for shared in (False, True, True, False):
        assert g(torch.zeros(1), *pair(shared)).item() == shared


def test_an_argument_that_is_the_closures_own_list_at_the_first_call_only():
    own = [1.0]

    def f(x, given):
        before = len(own)
        given.append(2.0)
        return x * (before * 10 + len(own))

    g = compiled(f)
    assert g(torch.ones(1), own) == 12
    own.pop()
    assert g(torch.ones(1), [1.0]) == 11


@pytest.mark.parametrize("kind", [set, frozenset])
def test_equal_sets_in_another_order(kind):
    first, second = kind([0, 8]), kind([8, 0])
    assert first == second and list(first) != list(second)

    def f(x, members):
        for one in members:
            x = x * 2 + one
        return x

    def member(x, members):
        return x + 8 if 8 in members else x

    g, h = compiled(f), compiled(member)
    for members in (first, second, first):
        assert torch.equal(g(torch.ones(2), members), f(torch.ones(2), members))
    before = thruway.metrics()["captures"]
    for members in (first, second):
        h(torch.ones(2), members)
    assert thruway.metrics()["captures"] == before + 1


def grown(x, table):
    for key in table:
        x = x + 1
        sys.intern("a")
        if key == "a":
            table["new"] = 1
        sys.intern("b")
    return x


def grown_by_values(x, table):
    for value in table.values():
        x = x + value
        sys.intern("a")
        table[x.dim(), len(table)] = 1
    return x


def rewritten(x, table):
    for key, value in table.items():
        x = x + value
        sys.intern("a")
        table["b"] = 10
    return x


@pytest.mark.parametrize("fn", [grown, grown_by_values, rewritten])
def test_a_dict_that_changes_in_a_loop_that_breaks(fn):
    def outcome(call):
        table = {"a": 1, "b": 2, "c": 3}
        try:
            return call(torch.ones(2), table).tolist(), table
        except RuntimeError as error:
            return str(error), table

    g = compiled(fn)
    for _ in range(2):
        assert outcome(g) == outcome(fn)


class Reloaded:
    factor = 3

    def method(self, x):
        return x * 2

    @staticmethod
    def static(x):
        return x * 4

    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    @property
    def read(self):
        return 5.0


class Below(Reloaded):
    def method(self, x):
        return super().method(x) + 1


HELD = [lambda x: x * 6]


@pytest.mark.parametrize(("find", "new"), [
    (lambda: Reloaded.method, lambda self, x: x * 7), (lambda: Reloaded.static, lambda x: x * 8), (lambda: Reloaded.of_class.__func__, lambda cls, x: x * 9),
    (lambda: Reloaded.__dict__["read"].fget, lambda self: 10.0), (lambda: HELD[0], lambda x: x * 11),
], ids=["method", "static", "class", "property", "held"])
def test_functions_that_are_given_other_code(find, new):
    def f(thing, x):
        return thing.method(x), thing.static(x), thing.of_class(x), x * thing.read, HELD[0](x)

    g, x, function = compiled(f), torch.ones(2), find()
    old = function.__code__
    for code in (old, old, old, new.__code__, new.__code__, old):
        function.__code__ = code
        assert str(g(Below(), x)) == str(f(Below(), x))
    assert (thruway.metrics()["recompiles"], thruway.metrics()["graph_breaks"]) == (1, 0)


def test_sets_of_numbers_that_change_have_their_own_order():
    def f(numbers, x):
        return list(set(numbers)), [*{numbers[0], numbers[1], 2}], list({f"k{n}": n for n in numbers}), x + numbers[0]

    g, x = compiled(f), torch.ones(2)
    for numbers in ([3, 1, 2], [2, 3, 1], [9, 1, 100], [1, 9, 3], [100, 33, 1]):
        assert str(g([*numbers], x)) == str(f([*numbers], x))
    assert not thruway.metrics()["graph_breaks"]
