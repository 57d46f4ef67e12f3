"""The same C at any batch: sizes come at the call."""

import numpy as np
import pytest

from codegen.cases import floats
from codegen.execute import Run
from codegen.test_02_kernels import assert_close, plan_of
from schedule.programs import Draft, cast, gelu, layer_norm, lit, op, softmax
from thruway.codegen.sources import generate
from thruway.core.sizes import symbol
from thruway.core.target import Target
from thruway.loops.evaluate import evaluate
from thruway.loops.ir import Load

B, T = symbol("s0"), symbol("s1")


def norm_and_softmax():
    d = Draft()
    d.input("x", B, T, 64), d.input("w", 64), d.input("b", 64)
    layer_norm(d, "ln", d.at("x"), (B, T, 64), "w", "b")
    d.compute("g", (B, T, 64), gelu(d.at("ln")))
    softmax(d, "p", d.at("g"), (B, T, 64))
    return d.program("p"), lambda b, t: [floats(b, t, 64), floats(64, seed=1), floats(64, seed=2)]


def softmax_over_symbolic_rows():
    d = Draft()
    d.input("x", B, T)
    softmax(d, "p", op("mul", d.at("x"), lit(0.5)), (B, T))
    return d.program("p"), lambda b, t: [floats(b, t)]


def sums():
    d = Draft()
    d.input("x", B, T, 5)
    dims = (B, T, 5)
    d.reduce("a", "sum", d.at("x"), dims, (0, 1, 2))
    d.reduce("b", "max", d.at("x"), dims, (0,))
    d.reduce("c", "argmax", d.at("x"), dims, (1, 2), "int64")
    d.compute("y", dims, op("add", op("exp", d.at("x")), cast(op("sub", d.at("a"), d.at("a")), "float32")))
    return d.program("a", "b", "c", "y"), lambda b, t: [floats(b, t, 5)]


def merged():
    d = Draft()
    d.input("x", B, T, 8), d.input("w", 8), d.input("b", 8)
    layer_norm(d, "ln", d.at("x"), (B, T, 8), "w", "b")
    i, j = symbol("i0"), symbol("i1")
    d.compute("y", (B * T, 8), op("tanh", d.at("ln", i // T, i % T, j)))
    return d.program("y"), lambda b, t: [floats(b, t, 8), floats(8, seed=1), floats(8, seed=2)]


@pytest.mark.parametrize("make", [norm_and_softmax, softmax_over_symbolic_rows, sums, merged])
def test_one_text_for_every_batch(make):
    program, inputs = make()
    sources = generate(plan_of(program), Target(), units=1)
    for b, t in ((1, 1), (2, 9), (7, 130), (1, 600)):
        given = inputs(b, t)
        assert_close(Run(sources, given).outputs, evaluate(program, given).outputs)


def test_arena_offsets_hold_at_any_batch():
    d = Draft()
    d.input("x", B, 40)
    value = d.at("x")
    for k in range(4):              # each result is needed twice, by rows and by columns: nothing fuses them all
        name = d.compute(f"e{k}", (B, 40), op("exp", op("mul", value, lit(0.1))))
        s = d.reduce(f"s{k}", "sum", d.at(name), (B, 40), (0,))
        value = op("add", op("mul", d.at(name), lit(0.5)), d.at(s))
    d.compute("y", (B, 40), value)
    program = d.program("y")
    sources = generate(plan_of(program), Target(), units=1)
    for b in (1, 2, 7, 33):
        given = [floats(b, 40)]
        assert_close(Run(sources, given).outputs, evaluate(program, given).outputs)


def test_equal_kernels_are_printed_once():
    """Blocks around matrix products; each block reads its own slice of one stacked input."""
    d = Draft()
    d.input("x", 16, 16), d.input("stack", 6, 16)
    value = "x"
    for k in range(6):
        scale = Load("stack", (k, symbol("i1")), "float32")
        value = d.compute(f"t{k}", (16, 16), op("mul", op("tanh", d.at(value)), scale))
        value = d.matmul(f"m{k}", value, "x")
    program = d.program(d.compute("y", (16, 16), op("exp", d.at(value))))
    sources = generate(plan_of(program), Target(), units=1)
    calls = [s.symbol for s in sources.launch.steps if hasattr(s, "symbol")]
    assert len(calls) == 7 and len(set(calls)) == 2
    given = [floats(16, 16), floats(6, 16, seed=1)]
    ran = Run(sources, given)
    assert_close(ran.outputs, evaluate(program, given, {"aten::mm": lambda a, b: [a.array @ b.array]}).outputs)


def test_units_share_the_kernels_evenly():
    d = Draft()
    d.input("x", 10)
    names = [d.reduce(f"r{k}", "sum", op("mul", d.at("x"), lit(float(k))), (10,), (0,)) for k in range(2)]
    d.input("z", 8, 9)
    d.compute("y", (8, 9), op("exp", d.at("z")))
    sources = generate(plan_of(d.program(*names, "y")), Target(), units=2)
    assert len(sources.units) == 2 and all(sources.symbols)
    assert np.array_equal(len(sources.hash), 64)
