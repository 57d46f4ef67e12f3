"""`thruway.compile`: what it takes, what it refuses, and that nothing is compiled before the first call."""

from __future__ import annotations

import functools
import warnings
from types import MethodType

import pytest
import torch
from torch import nn

import thruway
from thruway.core.marks import disabled_reason, original_of
from thruway.native import fallback
from thruway.surface import versions

X = torch.arange(4.0)


def double(x, *, times=1):
    """Doubles."""
    return x * 2 * times


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor

    def method(self, x):
        return x + self.factor


def test_as_a_call_and_as_a_decorator(pipeline):
    @thruway.compile
    def bare(x):
        return x + 1

    @thruway.compile(fullgraph=True, mode="max-autotune")
    def with_words(x):
        return x + 2

    assert torch.equal(thruway.compile(double)(X), X * 2)
    assert torch.equal(bare(X), X + 1)
    assert torch.equal(with_words(X), X + 2)
    assert pipeline.calls == ["double", "bare", "with_words"]
    options = {function.__name__: options for function, options in pipeline.compiled}
    assert options["with_words"].fullgraph and options["with_words"].mode == "max-autotune"
    assert not options["bare"].fullgraph and options["bare"].mode == "default" and options["bare"].backend == "thruway"


def test_arguments_arrive_as_given(pipeline):
    assert torch.equal(thruway.compile(double)(X, times=3), X * 6)
    assert thruway.compile(double).__doc__ == "Doubles."


@pytest.mark.parametrize("kind, make, expected", [
    ("bound method", lambda: Scale(3).method, X + 3),
    ("callable object", lambda: Scale(3), X * 3),
    ("partial", lambda: functools.partial(double, times=5), X * 10),
    ("builtin", lambda: torch.sin, X.sin()),
    ("lambda", lambda: lambda x: x - 7, X - 7),
])
def test_kinds_of_callables(pipeline, kind, make, expected):
    compiled = thruway.compile(make())
    assert torch.equal(compiled(X), expected)
    assert len(pipeline.calls) == 1, kind
    function, _ = pipeline.compiled[0]
    assert hasattr(getattr(function, "__func__", function), "__code__"), "the pipeline gets something with bytecode"


def test_static_and_class_methods_keep_their_kind(pipeline):
    class Holder:
        size = 2

        @thruway.compile
        @staticmethod
        def plain(x):
            return x * 2

        @thruway.compile
        @classmethod
        def of_class(cls, x):
            return x * cls.size

    assert torch.equal(Holder.plain(X), X * 2) and torch.equal(Holder().plain(X), X * 2)
    assert torch.equal(Holder.of_class(X), X * 2)


def test_as_a_decorator_on_a_method(pipeline):
    class Shift:
        by = 3

        @thruway.compile
        def less(self, x):
            return x - self.by

    assert torch.equal(Shift().less(X), X - 3) and pipeline.calls == ["less"]


def test_a_class_is_compiled_in_place(pipeline):
    @thruway.compile
    class Net(nn.Module):
        def forward(self, x):
            return x + 1

    @thruway.compile
    class Plain:
        def __call__(self, x):
            return x + 2

    assert isinstance(Net, type) and torch.equal(Net()(X), X + 1)
    assert torch.equal(Plain()(X), X + 2)
    assert pipeline.calls == ["forward", "__call__"]


def test_compiled_again_takes_the_original(pipeline):
    module = nn.Linear(4, 4)
    again = thruway.compile(thruway.compile(module), fullgraph=True)
    assert again._orig_mod is module
    thruway.compile(thruway.compile(module).forward)
    assert pipeline.compiled[-1][0] == module.forward


def test_the_original_of_compiled_functions_and_methods():
    compiled = fallback.Compiled(double, lambda *_: None)
    assert original_of(compiled) is double and original_of(double) is double and original_of(3) == 3
    scale = Scale(2)
    assert original_of(MethodType(compiled, scale)) == MethodType(double, scale)
    assert original_of(scale.method) == scale.method and original_of(nn.Linear) is nn.Linear


def test_nothing_is_compiled_before_the_first_call(pipeline):
    compiled = thruway.compile(nn.Linear(4, 4))
    assert pipeline.compiled == []
    compiled(X)
    compiled(X)
    assert len(pipeline.compiled) == 1 and len(pipeline.calls) == 2


@pytest.mark.parametrize("words, message", [
    ({"mode": "fastest"}, "unknown mode 'fastest'; known: default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs"),
    ({"backend": "no such backend"}, "unknown backend 'no such backend'; known: thruway, eager"),
    ({"options": {"fast": True}}, "unknown option 'fast'; known: disable, logs, dump"),
])
def test_unknown_words_list_the_known_ones(pipeline, words, message):
    with pytest.raises(ValueError) as error:
        thruway.compile(double, **words)
    assert str(error.value).startswith(message)
    with pytest.raises(ValueError):
        thruway.compile(**words)


def test_wrong_types_are_refused(pipeline):
    with pytest.raises(TypeError, match="takes a function, a module, a class or an object with __call__, not int"):
        thruway.compile(3)
    with pytest.raises(TypeError, match="takes bool, not str"):
        thruway.compile(double, options={"measure": "yes"})
    with pytest.raises(TypeError, match="name or a callable"):
        thruway.compile(double, backend=7)
    with pytest.raises(TypeError, match="has no __call__"):
        thruway.compile(type("Empty", (), {}))


def test_options_are_settings_of_this_compilation(pipeline):
    thruway.compile(double, options={"numerics": "strict"})(X)
    _, options = pipeline.compiled[0]
    assert options.settings(thruway.settings.current()).numerics == "strict"
    assert thruway.settings.numerics == "eager"


def test_disabled_stays_eager(pipeline):
    assert thruway.compile(double, disable=True) is double
    assert thruway.compile(disable=True)(double) is double
    with thruway.settings.override(disable=True):
        assert thruway.compile(double) is double
    assert pipeline.compiled == []


def test_disable_marks_a_function_with_its_reason(pipeline):
    @thruway.disable(reason="draws a plot")
    def plot(x):
        """Plots."""
        return x + 1

    assert disabled_reason(plot) == "draws a plot" and plot.__doc__ == "Plots." and torch.equal(plot(X), X + 1)
    assert disabled_reason(thruway.disable(double)) == "" and disabled_reason(double) is None
    module = thruway.disable(nn.Linear(4, 4), reason="calls a library")
    assert disabled_reason(module.forward) == "calls a library" and module(X).shape == (4,)
    with pytest.raises(TypeError):
        thruway.disable(3)


def test_unsupported_versions_warn_once_and_run_eager(pipeline, monkeypatch):
    monkeypatch.setattr(versions.torch, "__version__", "2.99.0")
    versions.is_supported.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="torch 2.99.0"):
            assert thruway.compile(double) is double
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert thruway.compile(double) is double
    finally:
        versions.is_supported.cache_clear()


@pytest.mark.parametrize("python, torch_version, fits", [
    ((3, 11), "2.14.1+cpu", True), ((3, 12), "2.11.0", True), ((3, 12), "2.14.0a0+git123", True),
    ((3, 13), "2.14.1", False), ((3, 10), "2.14.1", False), ((3, 11), "2.10.2", False), ((3, 11), "2.15.0", False), ((3, 11), "odd", False),
])
def test_which_versions_are_supported(python, torch_version, fits):
    assert (versions.why_not(python, torch_version) == "") is fits


def test_small_words(pipeline):
    assert thruway.is_compiling() is False
    thruway.reset()
    assert pipeline.resets == 1
    pipeline.journal.add("graph", "f")
    pipeline.journal.add("graph_break", "f")
    pipeline.journal.add("stage", "f", stage="lower", seconds=0.5)
    pipeline.journal.add("stage", "f", stage="lower", seconds=0.25)
    metrics = thruway.metrics()
    assert metrics["graphs"] == 1 and metrics["graph_breaks"] == 1 and metrics["recompiles"] == 0
    assert metrics["seconds"] == {"lower": 0.75}
