"""Exact simplification: known forms, and no bit changed on random expressions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thruway.core.sizes import Symbol, floordiv, symbol
from thruway.loops.evaluate import evaluate
from thruway.loops.ir import Axis, Buffer, Cast, CheckIndex, Compute, Condition, IndexValue, Literal, Load, Op, Program, Reduce, Within
from thruway.loops.simplify import simplify, simplify_expr
from thruway.loops.verify import verify

i = symbol("i0")
RANGES = {Symbol("i0"): (0, 3)}
X = Load("x", (i,), "float32")
B = Load("b", (i,), "bool")


def f32(value):
    return Literal(value, "float32")


def op(name, *args, dtype="float32"):
    return Op(name, args, dtype)


@pytest.mark.parametrize("before, after", [
    (op("add", f32(0.1), f32(0.2)), f32(float(np.float32(0.1) + np.float32(0.2)))),
    (op("mul", X, f32(1.0)), X), (op("div", X, f32(1.0)), X), (op("sub", X, f32(0.0)), X), (op("add", X, f32(-0.0)), X),
    (op("add", X, f32(0.0)), op("add", X, f32(0.0))),                     # not the same on -0.0
    (op("mul", X, f32(0.0)), op("mul", X, f32(0.0))),                     # not the same on nan
    (Cast(Cast(Load("h", (i,), "bfloat16"), "float32"), "bfloat16"), Load("h", (i,), "bfloat16")),
    (Cast(Cast(X, "float64"), "bfloat16"), Cast(X, "bfloat16")),
    (Cast(Cast(X, "bfloat16"), "float32"), Cast(Cast(X, "bfloat16"), "float32")),
    (Cast(f32(0.1), "bfloat16"), Literal(0.10009765625, "bfloat16")),
    (Cast(IndexValue(7, "int64"), "float32"), f32(7.0)),
    (Within((Condition(i, 4),), X, f32(0.0), "float32"), X),
    (Within((Condition(i - 4, 4),), X, f32(0.0), "float32"), f32(0.0)),
    (Within((Condition(i, 2),), X, f32(0.0), "float32"), Within((Condition(i, 2),), X, f32(0.0), "float32")),
    (op("where", Literal(True, "bool"), X, f32(0.0)), X), (op("where", B, X, X), X),
    (op("not", op("not", B, dtype="bool"), dtype="bool"), B),
    (op("and", B, Literal(False, "bool"), dtype="bool"), Literal(False, "bool")), (op("or", Literal(False, "bool"), B, dtype="bool"), B),
    (op("le", IndexValue(i, "int64"), IndexValue(i + 1, "int64"), dtype="bool"), Literal(True, "bool")),
    (op("ge", IndexValue(i, "int64"), Literal(4, "int64"), dtype="bool"), Literal(False, "bool")),
    (op("eq", IndexValue(i, "int64"), IndexValue(i + 4, "int64"), dtype="bool"), Literal(False, "bool")),
    (Load("x", (floordiv(4 * i + 3, 4),), "float32"), X),
    (CheckIndex(IndexValue(i, "int64"), 4, False), IndexValue(i, "int64")),
    (CheckIndex(IndexValue(i, "int64"), 3, False), CheckIndex(IndexValue(i, "int64"), 3, False)),
])
def test_known_forms(before, after):
    assert simplify_expr(before, RANGES) == after


def test_equal_reductions_are_computed_once_unless_a_write_stands_between():
    axes, row = (Axis("i0", 4),), Axis("r0", 3)
    total = Reduce("sum", (row,), Load("x", (i, row.index), "float32"), "float32")
    names = {n: Buffer(n, "float32", (4,), (1,)) for n in ("a", "b", "c")} | {"x": Buffer("x", "float32", (4, 3), (3, 1), "input")}
    last = Compute("c", axes, op("add", Load("a", (i,), "float32"), Load("b", (i,), "float32")))
    simple = simplify(Program(("x",), names, (Compute("a", axes, total), Compute("b", axes, total), last), ("c",)))
    verify(simple)
    assert [node.out for node in simple.nodes] == ["a", "c"] and "b" not in simple.buffers
    kept = simplify(Program(("x",), names, (Compute("a", axes, total), Compute("b", axes, total), last), ("c", "b")))
    assert [node.out for node in kept.nodes] == ["a", "b", "c"]


values = st.sampled_from((0.0, -0.0, 1.0, -1.0, 0.1, 2.5, float("inf"), float("nan"), 3e38))
leaves = st.one_of(st.builds(f32, values), st.just(X), st.builds(lambda c: IndexValue(i + c, "float32"), st.integers(-3, 3)))


def grown(inner):
    unary = st.builds(lambda n, x: op(n, x), st.sampled_from(("neg", "abs", "floor", "sqrt", "sign")), inner)
    binary = st.builds(lambda n, x, y: op(n, x, y), st.sampled_from(("add", "sub", "mul", "div", "min", "max")), inner, inner)
    test = st.builds(lambda n, x, y: op(n, x, y, dtype="bool"), st.sampled_from(("lt", "le", "eq", "ne")), inner, inner)
    choice = st.builds(lambda c, x, y: op("where", c, x, y), test, inner, inner)
    around = st.builds(lambda d, x: Cast(Cast(x, d), "float32"), st.sampled_from(("float64", "bfloat16", "float16", "bool")), inner)
    guard = st.builds(lambda c, n, x, y: Within((Condition(i + c, n),), x, y, "float32"), st.integers(-3, 3), st.integers(0, 5), inner, inner)
    return st.one_of(unary, binary, choice, around, guard)


@settings(max_examples=300, deadline=None)
@given(st.recursive(leaves, grown, max_leaves=10))
def test_no_bit_changes(value):
    names = {"x": Buffer("x", "float32", (4,), (1,), "input"), "y": Buffer("y", "float32", (4,), (1,))}
    program = Program(("x",), names, (Compute("y", (Axis("i0", 4),), value),), ("y",))
    verify(program)
    simple = simplify(program)
    verify(simple)
    x = np.array([1.5, -0.0, np.nan, -np.inf], np.float32)
    before, after = evaluate(program, [x]).outputs[0], evaluate(simple, [x]).outputs[0]
    np.testing.assert_array_equal(before, after)
    assert (np.signbit(before) == np.signbit(after))[~np.isnan(before)].all()
