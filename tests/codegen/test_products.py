"""Matrix products as kernels of ours: what they fuse with, and, by Triton's interpreter, what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.cases import floats, halves
from codegen.test_gpu_sources import GpuRun, on_gpu
from schedule.programs import op
from thruway.codegen.gpu_sources import GpuSources
from thruway.codegen.triton_source import Config
from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.loops.builder import Builder, Tensor, load_broadcast, reduced_axis
from thruway.loops.evaluate import evaluate
from thruway.loops.expressions import cast
from thruway.loops.ir import Buffer, Expr, Literal, Load, Origin, Program, Reduce
from thruway.loops.lowerings.products import open_product
from thruway.loops.simplify import simplify
from thruway.schedule.build import build_plan
from thruway.schedule.rewrite import rewrite
from thruway.shapes.meta import TensorMeta, contiguous_strides

pytest.importorskip("triton")
SHORT, WIDE = "bfloat16", "float32"


class Graph:
    """A Builder with inputs and pointwise steps."""

    def __init__(self) -> None:
        self.b, self.nodes, self.inputs = Builder(), [], []

    def meta(self, *dims, dtype=SHORT, strides=None):
        return TensorMeta(tuple(dims), strides or contiguous_strides(tuple(dims)), dtype, "cpu")

    def input(self, name, *dims, dtype=SHORT, strides=None) -> Tensor:
        meta = self.meta(*dims, dtype=dtype, strides=strides)
        self.b.buffers[name] = Buffer(name, dtype, meta.sizes, meta.strides, "input", "cpu")
        self.inputs.append(name)
        return Tensor(name, meta)

    def product(self, name, kind, out, *args, parts=1, **kwargs) -> Tensor:
        self.b.begin(name, self.meta(*out), Origin((name,)), self.nodes)
        return open_product(self.b, f"aten.{kind}.default", args, kwargs, parts)

    def pointwise(self, name, out, make, *tensors, dtype=SHORT) -> Tensor:
        self.b.begin(name, self.meta(*out, dtype=dtype), Origin((name,)), self.nodes)
        wide = [cast(load_broadcast(t, len(out)), WIDE) for t in tensors]
        return self.b.compute(self.b.out, make(*wide))

    def program(self, *outputs: Tensor) -> Program:
        return simplify(Program(tuple(self.inputs), self.b.buffers, tuple(self.nodes), tuple(t.name for t in outputs)))


def silu(x: Expr) -> Expr:
    return op("mul", x, op("sigmoid", x))


def sources_of(program: Program) -> GpuSources:
    return on_gpu(build_plan(program, Target(kind="cuda"), Settings()))


def check(program: Program, inputs: list[np.ndarray], kernels: int) -> GpuSources:
    """As many kernels, and the evaluator's numbers under small tiles."""
    sources = sources_of(program)
    assert len(sources.kernels) == kernels and not any("::" in getattr(s, "op", "") for s in sources.launch.steps)
    for config in (None, Config(16, 16, 4, 32, 2)):
        ran = GpuRun(sources, inputs, config)
        assert not ran.failed
        for got, want in zip(ran.outputs, evaluate(program, inputs).outputs, strict=True):
            want = np.asarray(want, np.float64)
            np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=2**-6, atol=2**-6 * np.abs(want).max())
    return sources


@pytest.mark.parametrize("rows, columns, inner", [(32, 48, 64), (5, 33, 70), (17, 16, 192)])
def test_linear_with_bias_activation_and_residual_is_one_kernel(rows, columns, inner):
    g = Graph()
    x, w, b, r = g.input("x", rows, inner), g.input("w", columns, inner), g.input("b", columns), g.input("r", rows, columns)
    y = g.product("y", "linear", (rows, columns), x, w, b)
    z = g.pointwise("z", (rows, columns), lambda y, r: op("add", silu(y), r), y, r)
    sources = check(g.program(z), [halves(rows, inner), halves(columns, inner, seed=1), halves(columns, seed=2), halves(rows, columns, seed=3)], 1)
    assert sources.kernels[0].source.text.count("tl.dot(") == 1


def test_gate_and_up_share_a_kernel_and_its_rows():
    g = Graph()
    x, wg, wu = g.input("x", 20, 64), g.input("wg", 32, 64), g.input("wu", 32, 64)
    gate, up = g.product("gate", "linear", (20, 32), x, wg), g.product("up", "linear", (20, 32), x, wu)
    z = g.pointwise("z", (20, 32), lambda a, b: op("mul", silu(a), b), gate, up)
    sources = check(g.program(z), [halves(20, 64), halves(32, 64, seed=1), halves(32, 64, seed=2)], 1)
    text = sources.kernels[0].source.text
    assert text.count("tl.dot(") == 2 and text.count("tl.load(") == 3


def test_a_prologue_is_computed_in_the_product():
    g = Graph()
    x, s, w = g.input("x", 18, 70, dtype=WIDE), g.input("s", 70), g.input("w", 70, 24)
    scaled = g.pointwise("scaled", (18, 70), lambda x, s: op("add", op("mul", x, s), Literal(1.0, WIDE)), x, s)
    y = g.product("y", "mm", (18, 24), scaled, w)
    sources = check(g.program(y), [floats(18, 70), halves(70, seed=1), halves(70, 24, seed=2)], 1)
    assert "tl.where(am" in sources.kernels[0].source.text        # behind the end of the row it is 1, not 0


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_along_the_inner_axis_are_joined_by_the_reader(parts):
    g = Graph()
    x, w, b, r = g.input("x", 20, 128), g.input("w", 32, 128), g.input("b", 32), g.input("r", 20, 32)
    y = g.product("y", "addmm", (20, 32), b, x, g.input("v", 128, 32, strides=(1, 128)), parts=parts)
    z = g.pointwise("z", (20, 32), lambda y, r: op("add", y, r), y, r)
    inputs = [halves(20, 128), halves(32, 128, seed=1), halves(32, seed=2), halves(20, 32, seed=3), halves(128, 32, seed=4)]
    assert w.name in g.inputs
    check(g.program(z), inputs, 2)


def test_batches():
    g = Graph()
    a, b = g.input("a", 3, 20, 32), g.input("b", 3, 32, 24)
    y = g.product("y", "bmm", (3, 20, 24), a, b)
    z = g.pointwise("z", (3, 20, 24), lambda y: op("mul", y, Literal(0.5, WIDE)), y)
    check(g.program(z), [halves(3, 20, 32), halves(3, 32, 24, seed=1)], 1)


def test_one_row_is_multiplied_and_summed_with_the_norm_before_it():
    g = Graph()
    x, scale, w, r = g.input("x", 1, 96), g.input("scale", 96), g.input("w", 40, 96), g.input("r", 1, 40)
    g.b.begin("norm", g.meta(1, 96), Origin(("norm",)), g.nodes)
    wide = cast(load_broadcast(x, 2), WIDE)
    squares = sum_of(g, op("mul", wide, wide), (1, 96))
    normed = g.b.compute(g.b.out, op("mul", op("mul", wide, op("rsqrt", op("add", squares, Literal(1e-6, WIDE)))), cast(load_broadcast(scale, 2), WIDE)))
    y = g.product("y", "linear", (1, 40), normed, w)
    z = g.pointwise("z", (1, 40), lambda y, r: op("add", y, r), y, r)
    sources = check(g.program(z), [halves(1, 96), halves(96, seed=1), halves(40, 96, seed=2), halves(1, 40, seed=3)], 1)
    assert "tl.dot" not in sources.kernels[0].source.text


def sum_of(g: Graph, value: Expr, dims: tuple[int, int]) -> Expr:
    along = reduced_axis(1, dims[1])

    def moved(load):
        return Load(load.buffer, (0, along.index), load.dtype)
    total = g.b.temp((1, 1), Reduce("sum", (along,), rewrite(value, lambda s: s, moved), WIDE), "squares")
    return Load(total.name, (0, 0), WIDE)


def test_what_else_reads_the_row_keeps_it_a_step_of_its_own():
    g = Graph()
    x, w = g.input("x", 1, 96), g.input("w", 40, 96)
    g.b.begin("norm", g.meta(1, 96), Origin(("norm",)), g.nodes)
    wide = cast(load_broadcast(x, 2), WIDE)
    normed = g.b.compute(g.b.out, op("mul", wide, op("rsqrt", sum_of(g, op("mul", wide, wide), (1, 96)))))
    y = g.product("y", "linear", (1, 40), normed, w)
    check(g.program(y, normed), [halves(1, 96), halves(40, 96, seed=1)], 2)
