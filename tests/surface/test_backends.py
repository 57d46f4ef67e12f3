"""Backend names and callables, and thruway as a backend of torch.compile."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import thruway
from thruway import backends
from thruway.surface.as_backend import thruway_backend


def double(x):
    return x * 2


class Point(SimpleNamespace):
    def load(self):
        return self.value


@pytest.fixture
def installed(monkeypatch):
    points = {backends.GROUP: [Point(name="mine", value=lambda graph, inputs: graph)]}
    monkeypatch.setattr(backends, "entry_points", lambda group: points.get(group, []))
    return points


def test_own_names_and_callables_stay(installed):
    assert backends.resolve("thruway") == "thruway" and backends.resolve("eager") == "eager"
    assert backends.resolve(double) is double


def test_installed_names_are_loaded(installed, pipeline):
    assert backends.resolve("mine") is installed[backends.GROUP][0].value
    assert "mine" in thruway.list_backends()
    thruway.compile(double, backend="mine")(torch.ones(1))
    assert pipeline.compiled[0][1].backend is installed[backends.GROUP][0].value


def test_an_installed_name_goes_before_torch(installed, monkeypatch):
    monkeypatch.setattr(backends, "_torch_registry", lambda: pytest.fail("torch's registry was asked"))
    assert callable(backends.resolve("mine"))


def test_torch_names_come_from_its_registry(installed, monkeypatch):
    registry = SimpleNamespace(list_backends=lambda exclude_tags: ["inductor"], lookup_backend=lambda name: f"torch's {name}")
    monkeypatch.setattr(backends, "_torch_registry", lambda: registry)
    monkeypatch.delitem(sys.modules, backends.TORCH_REGISTRY, raising=False)
    assert backends.resolve("inductor") == "torch's inductor"
    with pytest.raises(ValueError, match="unknown backend 'nothing'; known: thruway, eager, mine"):
        backends.resolve("nothing")


def test_own_names_load_nothing_of_torch_compile():
    program = "import sys, thruway; thruway.compile(backend='eager'); thruway.list_backends(); print('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_torch_compile_takes_thruway(pipeline):
    compiled = torch.compile(double, backend=thruway_backend)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    (graph, options), = pipeline.graphs
    assert options.mode == "default" and any(node.op == "call_function" for node in graph.graph.nodes)


def test_torch_compile_stays_eager_where_compiling_is_switched_off(pipeline):
    graph = torch.fx.symbolic_trace(double)
    with thruway.settings.override(disable=True):
        assert thruway_backend(graph, [torch.ones(1)]) is graph
    assert thruway_backend(graph, [torch.ones(1)], options={"disable": True}) is graph
    assert pipeline.graphs == []


def test_torch_compile_passes_options_on(pipeline):
    graph = torch.fx.symbolic_trace(double)
    thruway_backend(graph, [torch.ones(1)], mode="max-autotune", options={"numerics": "strict"})
    assert pipeline.graphs[0][1].mode == "max-autotune" and pipeline.graphs[0][1].overrides == (("numerics", "strict"),)
    with pytest.raises(ValueError, match="unknown mode"):
        thruway_backend(graph, [torch.ones(1)], mode="fastest")
