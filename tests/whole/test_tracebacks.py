"""After a break inside inlined calls, errors show the user's frames as eager does: all of them, in order, each at its line."""

from __future__ import annotations

import sys
import traceback
import warnings

import pytest
import torch

import thruway

BARRIER = sys.intern


def innermost(x, where):
    y = x + 1
    BARRIER("a")
    if where == "innermost":
        raise ValueError(where)
    return y * 2


def middle(x, where):
    y = innermost(x, where) + 1
    if where == "middle":
        y = y.reshape(-1, 7)
    return y


class Outer:
    def __call__(self, x, where):
        return [middle(each, where) for each in (x, x + 1)][0]


def outermost(x, where):
    with torch.no_grad():
        y = Outer()(x, where)
    if where == "outermost":
        return y.no_such_thing
    return y


def failing_step(x, where):
    def inner(x):
        return BARRIER(x.shape)

    def through(x):
        return inner(x + 1)

    return through(x)


def frames(call, *args):
    """The user's frames of the error: function and line, outermost first."""
    with pytest.raises(Exception) as raised:
        call(*args)
    return [(each.name, each.lineno) for each in traceback.extract_tb(raised.value.__traceback__) if each.filename == __file__][1:]


@pytest.mark.parametrize("fn, where", [(outermost, "innermost"), (outermost, "middle"), (outermost, "outermost"), (failing_step, "step")])
def test_the_users_frames_stand_in_order(fn, where):
    compiled = thruway.compile(fn, backend="eager")
    eager = frames(fn, torch.ones(3), where)
    for _ in range(2):
        assert frames(compiled, torch.ones(3), where) == eager
    assert len(eager) > 1 or where == "outermost"


def test_a_warning_below_a_break_names_its_caller():
    def inner(x):
        BARRIER("a")
        warnings.warn("careful", stacklevel=2)
        return x + 1

    def f(x):
        return inner(x) * 2

    def lines(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(torch.ones(2))
        return [(each.filename, each.lineno) for each in caught]

    compiled = thruway.compile(f, backend="eager")
    assert lines(compiled) == lines(compiled) == lines(f)


def test_results_stay_right():
    compiled = thruway.compile(outermost, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3), ""), outermost(torch.ones(3), ""))
    assert thruway.metrics()["bugs"] == 0
