"""Errors raised and handled inside a graph: their tracebacks, and getters whose AttributeError makes an attribute count as missing."""

from __future__ import annotations

import functools
import sys
import traceback
import types

import pytest
import torch

import thruway

BARRIER = sys.intern


class Keeps:
    """A context manager that keeps what it is given, and swallows the error."""

    def __enter__(self):
        return self

    def __exit__(self, cls, error, found):
        self.given = cls, found is not None, error.__traceback__ is found
        self.traceback = found
        return True


class Breaks(Keeps):
    def __exit__(self, *given):
        self.lines = traceback.format_tb(given[2])
        return True


def fails(x):
    y = x + 1
    raise ValueError(str(y.shape))


def given_to_exit(x):
    with Keeps() as kept:
        fails(x * 2)
    return x + 1, kept.given, kept.traceback


def read_in_exit(x):
    with Breaks() as kept:
        fails(x * 2)
    return x + 1, kept.lines


def returned(x):
    try:
        try:
            fails(x)
        except ValueError as error:
            raise KeyError("a") from error
    except KeyError as error:
        return x * 2, error


def raised_again(x):
    try:
        try:
            fails(x)
        finally:
            x = x + 1
    except ValueError as error:
        try:
            raise error
        except ValueError as again:
            return x, again, again is error


def its_lines(x):
    try:
        fails(x)
    except ValueError as error:
        found = error.__traceback__
        return x * 3, found.tb_lineno, found.tb_next.tb_lineno, type(found), found.tb_next.tb_next


def behind_a_break(x):
    try:
        BARRIER("a")
        fails(x)
    except ValueError as error:
        return x * 3, error


def of_the_break(x):
    try:
        try:
            BARRIER(x.dim())
        except TypeError as error:
            raise error
    except TypeError as error:
        return x * 3, error


def breaks_below(x):
    y = x + 1
    BARRIER("a")
    fails(y)


def from_below(x):
    for _ in range(3):
        try:
            breaks_below(x)
        except ValueError as error:
            last = error
    return x * 3, last


def barrier_below(x):
    return BARRIER(x.dim())


def of_a_break_below(x):
    try:
        barrier_below(x)
    except TypeError as error:
        return x * 3, error


def of_python(x):
    try:
        [][x.dim()]
    except IndexError as error:
        return x * 3, error


KNOWN = ValueError("made before")


def known_error(x):
    try:
        raise KNOWN
    except ValueError:
        return x + 1


def plain(found):
    """What can be compared: of a traceback its frames, lines and columns."""
    match found:
        case tuple() | list():
            return [plain(each) for each in found]
        case BaseException():
            return type(found), str(found), plain(found.__traceback__), plain(found.__cause__), plain(found.__context__)
        case types.TracebackType():
            return [(each.filename, each.name, each.lineno, each.colno, each.end_colno, each.line) for each in traceback.extract_tb(found)]
        case torch.Tensor():
            return found.tolist()
        case _:
            return found


IN_ONE_GRAPH = [given_to_exit, returned, raised_again, its_lines, of_python]
BEHIND_BREAKS = [read_in_exit, behind_a_break, of_the_break, from_below, of_a_break_below]


@pytest.mark.parametrize("function", IN_ONE_GRAPH + BEHIND_BREAKS)
def test_tracebacks_are_those_of_eager(function):
    thruway.reset()
    compiled = thruway.compile(function)
    expected = plain(function(torch.ones(2)))
    for _ in range(2):
        assert plain(compiled(torch.ones(2))) == expected
    assert bool(thruway.metrics()["graph_breaks"]) == (function in BEHIND_BREAKS)


def test_an_error_found_outside_gets_longer():
    compiled = thruway.compile(known_error)
    KNOWN.__traceback__ = None
    for count in range(1, 4):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
        found = traceback.extract_tb(KNOWN.__traceback__)
        assert [(each.name, each.line) for each in found] == [("known_error", "raise KNOWN")] * count


class Described:
    def __get__(self, owner, cls):
        return owner.lacking


def getters():
    """Class attributes whose getters run code."""
    class Has:
        @property
        def prop(self):
            return self.lacking

        @property
        def fine(self):
            return self.held + 1

        @property
        def broken(self):
            BARRIER("a")
            return self.lacking

        @property
        def other(self):
            raise KeyError("k")

        @functools.cached_property
        def cached(self):
            return self.lacking

        @property
        def shadowed(self):
            return self.lacking

        described = Described()
    return Has


class Module(getters(), torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.held = 1
        self._parameters["shadowed"] = torch.nn.Parameter(torch.ones(2))


class Hooked(getters()):
    held = 3

    def __getattr__(self, name):
        if name in ("prop", "broken", "cached", "described"):
            return 5
        raise AttributeError("none " + name)


class Plain(getters()):
    held = 4


def read(name):
    space = {}
    exec(f"def reads(owner, x):\n try: return x * owner.{name}\n except (AttributeError, KeyError) as error: return str(error), type(error), x + 1", space)
    return space["reads"]


def ask(name):
    space = {}
    exec(f"def asks(owner, x): return hasattr(owner, {name!r}), x * getattr(owner, {name!r}, 7)", space)
    return space["asks"]


@pytest.mark.parametrize("name", ["prop", "fine", "broken", "other", "cached", "shadowed", "described"])
@pytest.mark.parametrize("make", [Module, Hooked, Plain])
def test_a_getter_that_lacks_something(make, name):
    for function in (read(name), *([ask(name)] if name != "other" else [])):
        compiled = thruway.compile(function)
        for _ in range(2):
            assert plain(compiled(make(), torch.ones(2))) == plain(function(make(), torch.ones(2)))


def test_no_graph_is_lost_by_it():
    compiled = thruway.compile(read("prop"), fullgraph=True)
    assert compiled(Module(), torch.ones(2))[0] == "'Module' object has no attribute 'prop'"
    assert compiled(Hooked(), torch.ones(2)).tolist() == [5, 5]


VIEWS = [
    "with torch.no_grad(): v = x[0:1]", "with torch.no_grad(): v = y[0:1]", "with torch.no_grad(): v = y.chunk(3)[1]", "with torch.no_grad(): v = x.t()",
    "v = x[0:1]", "v = x", "v = y[0:1]", "with torch.no_grad(): v = x.detach()[:1]", "with torch.no_grad(): v = x[:2].clone()",
]


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("view", VIEWS)
def test_words_of_a_refused_write(view, requires_grad):
    space = {"torch": torch}
    exec(f"def writes(x):\n y = x * 2\n {view}\n try: v.add_(1)\n except RuntimeError as error: return str(error), v.requires_grad, y\n return v, x, y", space)
    thruway.reset()
    compiled = thruway.compile(space["writes"])
    for _ in range(2):
        leaves = [torch.ones(3, requires_grad=requires_grad) for _ in range(2)]
        assert plain(compiled(leaves[0])) == plain(space["writes"](leaves[1]))
    assert thruway.metrics()["graph_breaks"] == 0
