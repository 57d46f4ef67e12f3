"""GPU kernels without a GPU: compiled to machine code for Hopper, kept in the store, refused in plain words where Triton is missing."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from thruway.artifact import gpu_kernels
from thruway.artifact.gpu_kernels import GpuKernels, KernelJob
from thruway.artifact.store import Store
from thruway.codegen.triton import print_kernel
from thruway.codegen.triton_dot import print_product, product_of
from thruway.core.errors import CompilerBug, Unsupported
from thruway.loops.ir import Axis, Buffer, Cast, Kernel, Literal, Load, Op, Phase, Reduction, Store as Put, Var

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
compiles = pytest.mark.skipif(INTERPRETED, reason="Triton interprets in this process; test_in_a_process_where_triton_compiles runs this")


@pytest.mark.skipif(not INTERPRETED, reason="Triton compiles in this process already")
def test_in_a_process_where_triton_compiles():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__], cwd=Path(__file__).parents[2],
                          env=dict(os.environ, TRITON_INTERPRET="0"), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]



def job() -> KernelJob:
    i = Axis("i", 1000)
    value = Op("add", (Load("x", (i.index,), "float32"), Literal(1.0, "float32")), "float32")
    kernel = Kernel("add_one", (i,), (Phase((), stores=(Put("y", (i.index,), value),)),), ("x",), ("y",))
    source = print_kernel(kernel, {name: Buffer(name, "float32", (1000,), (1,)) for name in "xy"})
    return KernelJob(source.text, source.symbol, ("float32", "float32"), (True, True), False, (), False, source.points, 256, (("X", 256),), 4)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def kernels(tmp_path: Path, notes: list[str]) -> GpuKernels:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return GpuKernels(Store(folder, 1 << 24), 90, lambda kind, detail: notes.append(kind))


@compiles
def test_what_was_compiled_is_found_again_without_triton(kernels, notes, monkeypatch):
    made = kernels.get([job()])
    assert made[0].cubin[:4] == b"\x7fELF" and made[0].block == 256
    monkeypatch.setattr(gpu_kernels, "has_triton", lambda: False)
    assert kernels.get([job()]) == made and notes == ["cache_miss", "cache_hit"]


def product_jobs(rows: int) -> list[KernelJob]:
    """relu(x @ w.T) in bfloat16, in every tile that is tried."""
    i, j, k = Axis("i", rows), Axis("j", 512), Axis("k", 512)
    factors = tuple(Cast(Load(name, (a.index, k.index), "bfloat16"), "float32") for name, a in (("x", i), ("w", j)))
    summed = Phase((k,), reductions=(Reduction("v", "sum", Op("mul", factors, "float32"), "float32"),))
    value = Cast(Op("max", (Var("v", "float32"), Literal(0.0, "float32")), "float32"), "bfloat16")
    kernel = Kernel("product", (i, j), (summed, Phase((), stores=(Put("y", (i.index, j.index), value),))), ("x", "w"), ("y",))
    source = print_product(kernel, {n: Buffer(n, "bfloat16", (many, 512), (512, 1)) for n, many in (("x", rows), ("w", 512), ("y", rows))}, product_of(kernel))
    return [KernelJob(source.text, source.symbol, ("bfloat16",) * 3, (True,) * 3, False, (), False, *source.programs(config), source.constants(config),
                      config.warps, config.stages) for config in source.configs]


@compiles
@pytest.mark.parametrize("rows", [16, 256])
def test_products_compile_in_every_tile(kernels, rows):
    made = kernels.get(product_jobs(rows))
    assert len({(each.points, each.warps, each.shared) for each in made}) > 3
    assert all(each.cubin[:4] == b"\x7fELF" and each.shared < 227 << 10 and each.block == 1 for each in made)


@compiles
def test_another_configuration_is_another_kernel(kernels, notes):
    kernels.get([job()])
    kernels.get([replace(job(), warps=8)])
    assert notes == ["cache_miss", "cache_miss"]


def test_without_triton_the_reason_says_what_to_install(kernels, monkeypatch):
    monkeypatch.setattr(gpu_kernels, "has_triton", lambda: False)
    with pytest.raises(Unsupported) as refused:
        kernels.get([job()])
    assert "pip install triton" in refused.value.reason.hint


@compiles
def test_a_kernel_that_triton_refuses_is_a_bug_of_ours(kernels):
    with pytest.raises(CompilerBug, match="Triton refused"):
        kernels.get([replace(job(), text=job().text.replace("tl.load", "tl.no_such_word"))])
