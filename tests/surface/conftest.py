"""A stand-in for the pipeline, so that the public surface is tested apart from the compiler behind it."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest

from thruway.core.journal import Journal
from thruway.surface import lazy


class FakePipeline(SimpleNamespace):
    """`compiled` holds (function, options) of every request; a compiled callable adds its name to `calls` and runs the function."""

    def __init__(self) -> None:
        super().__init__(compiled=[], calls=[], graphs=[], journal=Journal(), resets=0)

    def compile_callable(self, function, options):
        self.compiled.append((function, options))

        @functools.wraps(function)
        def compiled(*args, **kwargs):
            self.calls.append(getattr(function, "__name__", type(function).__name__))
            return function(*args, **kwargs)

        return compiled

    def compile_graph(self, graph, example_inputs, options):
        self.graphs.append((graph, options))
        return graph.forward

    def reset(self):
        self.resets += 1


@pytest.fixture
def pipeline(monkeypatch):
    fake = FakePipeline()
    monkeypatch.setattr(lazy, "pipeline", lambda: fake)
    monkeypatch.setattr(lazy, "loaded_pipeline", lambda: fake)
    return fake
