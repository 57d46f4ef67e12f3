"""Warnings of torch's own: once per call, at the place that eager names, under the caller's filters."""

from __future__ import annotations

import sys
import threading
import types
import warnings

import pytest
import torch
import torch.nn.functional as F

import thruway
from thruway.core.kept_warnings import kept_warnings

TARGET = torch.linspace(0, 1, 5)


def loss_of_two_sizes(x):
    return F.mse_loss(x * 2, TARGET)


WARNING = {
    "sizes": loss_of_two_sizes, "dimension": lambda x: F.softmax(x), "range": lambda x: x + torch.range(0, 4), "copy": lambda x: torch.tensor(x) + 1,
    "old argument": lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid().detach(), size_average=True),
    "below": lambda x: loss_of_two_sizes(x) + loss_of_two_sizes(x + 1), "none": lambda x: F.softmax(x, 0),
    "its own too": lambda x: (warnings.warn("mine"), F.softmax(x))[1],
}


def said_by(call, x) -> list[tuple[str, str, int]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call(x)
    return [(str(one.message), one.filename, one.lineno) for one in said]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", WARNING)
def test_each_call_warns_as_eager_does(name, grad):
    compiled = thruway.compile(WARNING[name])
    x = torch.rand(3, 5, requires_grad=grad)
    with torch.set_grad_enabled(grad):
        wanted = said_by(WARNING[name], x)
        assert len(wanted) == {"none": 0, "below": 2, "its own too": 2}.get(name, 1)
        for _ in range(4):
            assert said_by(compiled, x) == wanted


def test_filters_of_the_caller_decide(recwarn):
    x, before = torch.rand(3, 5), list(warnings.filters)
    compiled = thruway.compile(lambda x: F.mse_loss(x, TARGET))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(5):
            compiled(x)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="target size"):
            compiled(x)
    assert warnings.filters == before


class Lazy(types.ModuleType):
    """A module that loads something once it is looked at, and fails."""

    def __getattr__(self, name):
        raise ImportError(name)


def test_modules_of_others_are_not_looked_into(monkeypatch):
    monkeypatch.setitem(sys.modules, "lazy_module_of_a_test", Lazy("lazy_module_of_a_test"))
    x = torch.rand(3, 5)
    assert said_by(thruway.compile(WARNING["range"]), x) == said_by(WARNING["range"], x) != []


def test_threads_that_keep_warnings_at_once_leave_everything_as_it_was():
    entered, left = threading.Event(), threading.Event()

    def first():
        with kept_warnings() as said:
            entered.set()
            assert left.wait(5)
            warnings.warn("of the first")
        found.extend(str(one.message) for one in said)

    found = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        before, thread = list(warnings.filters), threading.Thread(target=first)
        thread.start()
        assert entered.wait(5)
        with kept_warnings() as said:
            warnings.warn("of the second")
            left.set()
            thread.join()
        assert warnings.filters == before and [str(one.message) for one in said] == ["of the second"] and found == ["of the first"]
        for k in range(2):
            warnings.warn(f"afterwards {k}")
    assert [str(one.message) for one in shown] == ["afterwards 0", "afterwards 1"]


def test_filters_that_another_thread_puts_back_afterwards_are_the_old_ones():
    before = list(warnings.filters)
    with warnings.catch_warnings():
        with kept_warnings() as said:
            other = warnings.catch_warnings()
            other.__enter__()
        other.__exit__()
        assert warnings.filters == before
        with pytest.warns(UserWarning, match="afterwards"):
            warnings.warn("afterwards")
        assert not said


def test_compiling_makes_nobody_forget_what_was_said():
    def say():
        warnings.warn("once")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        say()
        thruway.compile(lambda x: F.softmax(x, 1).numpy() + 1)(torch.rand(3, 5))
        say()
    assert len(said) == 1
