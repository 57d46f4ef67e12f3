"""A GPU without Triton, on paper: graphs of library calls are compiled, others say what is missing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from codegen.on_paper import traced

from thruway import gpu_compiler
from thruway.artifact import gpu_kernels
from thruway.artifact.store import Store
from thruway.core.errors import Unsupported
from thruway.core.journal import Journal
from thruway.core.launch import Kernel
from thruway.core.settings import Settings
from thruway.core.target import Target


class Layer(torch.nn.Linear):
    """With few rows a kernel of ours where there is Triton."""


class Softmax(torch.nn.Module):
    def forward(self, x):
        return F.softmax(x * 2, -1)


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    target = Target(kind="cuda", library_calls=frozenset({"cublaslt", "sm_90"}), kernels=False)
    monkeypatch.setattr(gpu_compiler, "gpu_target", lambda index: target)
    monkeypatch.setattr(gpu_compiler, "capability", lambda index: 90)
    monkeypatch.setattr(gpu_compiler, "GpuRunnable", lambda launch, *_: SimpleNamespace(launch=launch))
    monkeypatch.setattr(gpu_kernels, "has_triton", lambda: False)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())

    def compile(module, mode):
        graph = traced(module, (torch.randn(64, 512, dtype=torch.bfloat16),))
        return gpu_compiler.compile_on_gpu(graph, Store(folder, 1 << 24), Journal(), "f", Settings(), "float32", mode)

    return compile


@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_library_calls_alone_are_compiled(compiled, mode):
    assert not any(isinstance(step, Kernel) for step in compiled(Layer(512, 512), mode).launch.steps)


@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_what_needs_kernels_says_that_triton_is_missing(compiled, mode):
    with pytest.raises(Unsupported, match="Triton, which is not installed") as raised:
        compiled(Softmax(), mode)
    assert "pip install triton" in str(raised.value.reason)
