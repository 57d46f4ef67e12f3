"""What does not fit is said at once, in one sentence that names the function, the argument and what it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import thruway
from thruway.core.ambient import AmbientSettings
from thruway.core.settings import LOGS, Settings
from thruway.report.logs import TOPICS


def double(x):
    return x * 2


class Empty:
    pass


X = torch.ones(3)
COMPILE = {
    "a function, a module, a class or an object with __call__, not int": (5, {}),
    "a function, a module, a class or an object with __call__, not Empty": (Empty(), {}),
    "class Empty has no __call__": (Empty, {}),
    "dynamic takes True, False or None, not 'yes'": (double, {"dynamic": "yes"}),
    "check takes a number of calls, not str": (double, {"check": "a"}),
    "check takes a number of calls, not float": (double, {"check": 1.5}),
    "check takes a number of calls, not bool": (double, {"check": True}),
    "check takes a number of calls of at least 0, not -1": (double, {"check": -1}),
    "fullgraph takes True or False, not 'x'": (double, {"fullgraph": "x"}),
    "disable takes True or False, not None": (double, {"disable": None}),
    "options takes a mapping of settings to values, not list": (double, {"options": ["check"]}),
    "option 'check' takes int, not str": (double, {"options": {"check": "1"}}),
    "unknown option 'chekc'; known: disable, logs": (double, {"options": {"chekc": 1}}),
    "verify takes a whole number from 0 to 2, not 7": (double, {"options": {"verify": 7}}),
}


@pytest.mark.parametrize("said", COMPILE)
def test_compile_and_explain_say_it_when_they_are_called(said):
    target, words = COMPILE[said]
    for function in (thruway.compile, thruway.explain):
        if isinstance(target, type) and function is thruway.explain:
            continue                                         # a class is compiled in place, which explaining leaves to its call
        with pytest.raises((TypeError, ValueError), match=said):
            function(target, **words)


OTHERS = {
    "explain takes the function alone, the arguments go to what it gives": lambda: thruway.explain(double, 1),
    "calls takes a number of calls of at least 1, not 0": lambda: thruway.explain(double, calls=0),
    "calls takes a number of calls, not str": lambda: thruway.explain(double, calls="a"),
    "disable takes a function or a module, not int": lambda: thruway.disable(5),
    r"a reason is given by name: disable\(reason='slow'\)": lambda: thruway.disable("slow"),
    "disable takes a text as reason, not int": lambda: thruway.disable(double, reason=3),
    "unknown stance 'fast'; known: default": lambda: thruway.set_stance("fast"),
    "set_stance takes a function, not int": lambda: thruway.set_stance("default")(5),
    "mark_static takes a tensor, not int": lambda: thruway.mark_static(5),
    "mark_static takes a tensor, not list": lambda: thruway.mark_static([X]),
    "takes a dimension, or a tuple or list of them, not 'a'": lambda: thruway.mark_static(X, "a"),
    "takes a dimension, or a tuple or list of them, not 1.0": lambda: thruway.mark_static(X, 1.0),
    "takes a dimension, or a tuple or list of them, not True": lambda: thruway.mark_static(X, True),
    "the tensor has 1 dimension, so none is 3": lambda: thruway.mark_static(X, 3),
    "allow_in_graph takes a function, not int": lambda: thruway.allow_in_graph([double, 5]),
    "assume_constant_result takes a function, not str": lambda: thruway.assume_constant_result("double"),
    r"as a decorator it is written @error_on_graph_break\(\)": lambda: thruway.error_on_graph_break(double),
    "error_on_graph_break takes True or False": lambda: thruway.error_on_graph_break("no"),
    "error_on_graph_break takes a function, not int": lambda: thruway.error_on_graph_break()(5),
}


@pytest.mark.parametrize("said", OTHERS)
def test_the_other_functions_say_it_too(said):
    with pytest.raises((TypeError, ValueError, IndexError), match=said):
        OTHERS[said]()
    assert thruway.settings.stance == "default"


SETTINGS = {
    "check takes a whole number from 0, not -1": {"check": -1},
    "verify takes a whole number from 0 to 2, not 3": {"verify": 3},
    "cache_size_mb takes a whole number from 0, not -5": {"cache_size_mb": -5},
    "unknown log topic 'guardz'; known: graph_breaks, recompiles": {"logs": ("guardz",)},
    "setting 'logs' takes tuple, not int": {"logs": 5},
    "setting 'disable' takes bool, not int": {"disable": 2},
}


@pytest.mark.parametrize("said", SETTINGS)
def test_settings_that_do_not_fit(said):
    ambient = AmbientSettings(Settings())
    (name, value), = SETTINGS[said].items()
    with pytest.raises((TypeError, ValueError), match=said):
        setattr(ambient, name, value)
    with pytest.raises((TypeError, ValueError), match=said), ambient.override(**SETTINGS[said]):
        pass
    assert ambient.current() == Settings()


def test_settings_take_what_means_the_same():
    ambient = AmbientSettings(Settings())
    ambient.disable, ambient.logs, ambient.cache_dir = 1, "guards, code", Path("there")
    assert ambient.current() == Settings(disable=True, logs=("guards", "code"), cache_dir="there")
    ambient.logs = ["help"]
    assert ambient.logs == ("help",)
    compiled = thruway.compile(double, options={"cache_dir": Path("there"), "measure": 0}, backend="eager")
    assert torch.equal(compiled(X), double(X))


def test_numbers_of_the_environment_are_checked():
    with pytest.raises(ValueError, match="^THRUWAY_CHECK='-1': check takes a whole number from 0, not -1$"):
        Settings.from_environment({"THRUWAY_CHECK": "-1"})


def test_the_topics_are_those_that_the_logs_print():
    assert LOGS == tuple(TOPICS)


def test_what_is_disabled_stays_so_where_it_is_compiled():
    calls = []

    @thruway.disable(reason="slow")
    def slow(x):
        calls.append(1)
        return x + 1

    class Thing:
        @thruway.disable
        def run(self, x):
            return x - 1

    thruway.reset()
    compiled = thruway.compile(slow)
    assert compiled is slow and torch.equal(compiled(X), X + 1) and calls == [1]
    thing = Thing()
    assert torch.equal(thruway.compile(thing.run)(X), X - 1)
    assert thruway.metrics()["captures"] == 0
    module = thruway.disable(nn.Linear(3, 3))
    assert torch.equal(thruway.compile(module)(X), module(X))
