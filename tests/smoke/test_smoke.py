"""The first thing to run on a new Python or torch: it imports, stays cheap, compiles a function and a module, and falls back."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import thruway

pytestmark = pytest.mark.smoke


def _modules_after(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"import sys\n{program}\nprint(' '.join(sys.modules))"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_loads_no_compiler_and_no_terminal_library():
    loaded = _modules_after("import thruway")
    rooms = {name.split(".")[1] for name in loaded if name.startswith("thruway.")}
    assert rooms <= {"core", "surface", "report"}, rooms
    assert not loaded & {"rich", "click", "sympy", "networkx", "torch._dynamo", "torch._inductor"} - _modules_after("import torch")


def test_disabled_means_eager(monkeypatch):
    with thruway.settings.override(disable=True):
        assert thruway.compile(torch.relu) is torch.relu


@pytest.mark.parametrize("backend", ["eager", "thruway"])
def test_a_function(backend):
    def f(x, y):
        return (x * y + 1).relu().sum(-1)

    compiled = thruway.compile(f, backend=backend, fullgraph=True)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, y), f(x, y))


@pytest.mark.parametrize("backend", ["eager", "thruway"])
def test_a_module(backend):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()
    compiled = thruway.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))


def test_gradients():
    def f(x, w):
        return torch.tanh(x @ w).sum()

    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    expected, = torch.autograd.grad(f(x, w), w)
    got, = torch.autograd.grad(thruway.compile(f)(x, w), w)
    torch.testing.assert_close(got, expected)


def test_what_cannot_be_captured_runs_eager_with_a_reason():
    def f(x):
        return eval("x + 1", {}, {"x": x})

    compiled = thruway.compile(f)
    before = thruway.metrics()
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    after = thruway.metrics()
    assert after["eager"] + after["graph_breaks"] > before["eager"] + before["graph_breaks"]
    with pytest.raises(thruway.FullGraphError, match="test_smoke.py"):
        thruway.compile(f, fullgraph=True)(torch.ones(2))


def test_compiling_loads_nothing_that_it_replaces():
    program = "import torch, thruway\nf = thruway.compile(lambda x: x.sin() + x.cos())\nf(torch.ones(16)); f(torch.ones(16))"
    loaded = _modules_after(program)
    assert not [name for name in loaded if name.startswith(("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd"))]
