"""Long reductions of few points in two steps: the meaning stays, and what must not be cut is left whole."""

from __future__ import annotations

import numpy as np
import pytest

from schedule.programs import Draft, lit, op
from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.loops.builder import Builder, Tensor
from thruway.loops.evaluate import evaluate, run
from thruway.loops.ir import Buffer, Kernel, Origin, Program
from thruway.loops.lowerings.reductions import variance
from thruway.loops.verify import verify
from thruway.schedule.build import build_plan
from thruway.schedule.split import split_long_reductions
from thruway.shapes.meta import TensorMeta, contiguous_strides


def reduced(how: str, dims: tuple[int, ...], over: tuple[int, ...], dtype: str = "float32"):
    draft = Draft()
    draft.input("x", *dims, dtype=dtype)
    draft.reduce("y", how, op("mul", draft.at("x"), lit(2, dtype)) if dtype != "bool" else draft.at("x"), dims, over)
    numbers = np.random.default_rng(0).standard_normal(dims) * (100 if dtype.startswith("int") else 1)
    return draft.program("y"), [(numbers > 1) if dtype == "bool" else numbers.astype(dtype)]


@pytest.mark.parametrize(("how", "dims", "over", "dtype"), [
    ("sum", (100000,), (0,), "float32"), ("max", (3, 20011), (1,), "float32"), ("min", (9001, 2), (0,), "int32"), ("sum", (300, 300), (0, 1), "float32"),
    ("any", (50000,), (0,), "bool"), ("all", (8209,), (0,), "bool"), ("sum", (64, 2, 300), (0, 2), "float64"),
])
def test_parts_give_the_whole(how, dims, over, dtype):
    program, inputs = reduced(how, dims, over, dtype)
    cut = split_long_reductions(program)
    verify(cut)
    assert len(cut.nodes) == len(program.nodes) + 1
    plan = build_plan(cut, Target(kind="cuda"), Settings())
    kernels = [step for step in plan.steps if isinstance(step, Kernel)]
    assert len(kernels) == 2, "the parts must not become one program again"
    wanted = evaluate(program, inputs).outputs
    for got in (evaluate(cut, inputs).outputs, run(plan.inputs, plan.buffers, plan.steps, plan.outputs, inputs).outputs):
        np.testing.assert_allclose(np.asarray(got[0], np.float64), np.asarray(wanted[0], np.float64), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("how", "dims", "over"), [("sum", (1000, 300), (1,)), ("sum", (4096,), (0,)), ("argmax", (100000,), (0,)), ("sum", (200, 9000), (1,))])
def test_what_has_points_enough_or_short_rows_stays(how, dims, over):
    program, _ = reduced(how, dims, over)
    assert split_long_reductions(program) is program


@pytest.mark.parametrize(("dims", "over"), [((262144,), (0,)), ((512, 384), (0, 1)), ((4096, 8), (0,)), ((3, 65536), (1,))])
def test_moments_of_long_rows_are_read_once(dims, over):
    kept = tuple(n for k, n in enumerate(dims) if k not in over)
    b, nodes = Builder(), []
    meta, out = (TensorMeta(d, contiguous_strides(d), "float32", "cpu") for d in (dims, kept))
    b.buffers["x"] = Buffer("x", "float32", dims, meta.strides, "input", "cpu")
    b.begin("y", (out, out), Origin(("y",)), nodes)
    values, means = variance(False, True)(b, Tensor("x", meta), over)
    program = Program(("x",), b.buffers, tuple(nodes), (values.name, means.name))
    cut = split_long_reductions(program)
    verify(cut)
    assert len(cut.nodes) == len(program.nodes) + 2
    plan = build_plan(cut, Target(kind="cuda"), Settings())
    assert sum("x" in step.reads for step in plan.steps) == 1, "one kernel has the sums and the squares of all parts"
    x = (np.random.default_rng(0).standard_normal(dims) + 1000).astype(np.float32)
    for got in (evaluate(cut, [x]).outputs, run(plan.inputs, plan.buffers, plan.steps, plan.outputs, [x]).outputs):
        np.testing.assert_allclose(got[0], x.astype(np.float64).var(over, ddof=1), rtol=1e-4)
        np.testing.assert_allclose(got[1], x.astype(np.float64).mean(over), rtol=1e-6)
