"""Random small programs and kernels: the reference evaluator against a loop over points in plain Python."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from thruway.core.sizes import Size, symbol
from thruway.loops.evaluate import evaluate, run
from thruway.loops.ir import (
    Axis,
    Buffer,
    Cast,
    CheckIndex,
    Compute,
    Condition,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Op,
    Phase,
    Program,
    Reduce,
    Reduction,
    Scan,
    Store,
    Update,
    Var,
    Within,
)
from thruway.loops.verify import verify, verify_kernel

N, M = 4, 3
AXES = (Axis("i0", N), Axis("i1", symbol("n")))
I, J, K = symbol("i0"), symbol("i1"), symbol("r1")
BUFFERS = {
    "x": Buffer("x", "int64", (N, symbol("n")), (symbol("n"), 1), "input"), "k": Buffer("k", "int64", (N,), (1,), "input"),
    "y": Buffer("y", "int64", (N, symbol("n")), (1, N)), "z": Buffer("z", "int64", (N, symbol("n")), (symbol("n"), 1)),
}
SMALL = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max, "lt": lambda a, b: a < b,
         "eq": lambda a, b: a == b}


@lru_cache(maxsize=None)
def code_of(size):
    return compile(str(size), "size", "eval")


def size_value(size, point):
    """The size at a point, by Python's own arithmetic on its text."""
    return size if isinstance(size, int) else eval(code_of(size), {}, point)


def scalar(x, point, memory, flags):
    """The value of `x` at one point, the slow way."""
    match x:
        case Literal(value):
            return value
        case IndexValue(size):
            return size_value(size, point)
        case Load(buffer, index):
            at = tuple(size_value(c, point) if isinstance(c, (int, Size)) else scalar(c, point, memory, flags) for c in index)
            assert all(0 <= c < n for c, n in zip(at, memory[buffer].shape)), (buffer, at)
            return int(memory[buffer][at])
        case Op("where", (c, a, b)):                        # strict: only Within leaves the other side alone
            test, then, other = (scalar(x, point, memory, flags) for x in (c, a, b))
            return then if test else other
        case Op(name, args):
            return SMALL[name](*[scalar(a, point, memory, flags) for a in args])
        case Cast(inner, dtype):
            value = scalar(inner, point, memory, flags)
            return value != 0 if dtype == "bool" else int(value)
        case Within(conditions, then, other):
            holds = all(0 <= size_value(c.left, point) < size_value(c.right, point) for c in conditions)
            return scalar(then if holds else other, point, memory, flags)
        case CheckIndex(inner, size, wrap):
            value, size = scalar(inner, point, memory, flags), size_value(size, point)
            if not (-size if wrap else 0) <= value < size:
                flags.append(value)
                return 0
            return value + size if value < 0 else value
        case Reduce(op, axes, inner):
            values = [scalar(inner, point | inside, memory, flags) for inside in points(axes, point)]
            return {"sum": sum, "prod": math.prod, "max": max}[op](values)


def points(axes, known):
    extents = [range(size_value(a.extent, known)) for a in axes]
    for at in itertools.product(*extents):
        yield {a.name: c for a, c in zip(axes, at)}


def plain_run(program, arrays):
    """The program by loops over points; the flags that went up."""
    known, flags = {"n": M}, []
    memory = {name: array.copy() for name, array in arrays.items()}
    for node in program.nodes:
        match node:
            case Compute(out, axes, value):
                memory[out] = np.zeros((N, M), np.int64)
                for point in points(axes, known):
                    memory[out][tuple(point.values())] = scalar(value, known | point, memory, flags)
            case Scan(out, axes, axis, op, value):
                memory[out] = np.zeros((N, M), np.int64)
                for point in points(axes, known):
                    upto = [{**known, **point, axis.name: c} for c in range(point[axis.name] + 1)]
                    values = [scalar(value, p, memory, flags) for p in upto]
                    memory[out][tuple(point.values())] = {"sum": sum, "max": max}[op](values)
            case Update(target, axes, index, value, mode):
                todo = []
                for point in points(axes, known):
                    at = tuple(size_value(c, known | point) if isinstance(c, (int, Size)) else scalar(c, known | point, memory, flags) for c in index)
                    todo.append((at, scalar(value, known | point, memory, flags)))
                for at, new in todo:
                    old = memory[target][at]
                    memory[target][at] = {"set": new, "add": old + new, "max": max(old, new)}[mode]
    return memory, bool(flags)


coordinates = st.sampled_from(((I, J), (I, 0), (0, J), (N - 1 - I, J), (I, symbol("n") - 1 - J)))
looked_up = st.builds(lambda wrap: CheckIndex(Load("k", (I,), "int64"), N, wrap), st.booleans())


def expressions(buffers):
    leaves = st.one_of(
        st.builds(lambda b, at: Load(b, at, "int64"), st.sampled_from(buffers), coordinates), st.builds(lambda c: Load("x", (c, J), "int64"), looked_up),
        st.builds(lambda c: Literal(c, "int64"), st.integers(-3, 3)), st.builds(lambda c: IndexValue(I * c + J, "int64"), st.integers(-2, 2)))

    def grow(inner):
        test = st.builds(lambda n, a, b: Op(n, (a, b), "bool"), st.sampled_from(("lt", "eq")), inner, inner)
        shifted = st.builds(lambda c, b: Within((Condition(J + c, symbol("n")),), Load(b, (I, J + c), "int64"), Literal(7, "int64"), "int64"),
                            st.integers(-2, 2), st.sampled_from(buffers))
        return st.one_of(
            st.builds(lambda n, a, b: Op(n, (a, b), "int64"), st.sampled_from(("add", "sub", "mul", "min", "max")), inner, inner),
            st.builds(lambda c, a, b: Op("where", (c, a, b), "int64"), test, inner, inner), shifted,
            st.builds(lambda a: Cast(Cast(a, "bool"), "int64"), inner))
    return st.recursive(leaves, grow, max_leaves=6)


def over_row(buffers):
    axis = Axis("r1", symbol("n"))
    return st.builds(lambda op, b, c: Reduce(op, (axis,), Op("add", (Load(b, (I, K), "int64"), Literal(c, "int64")), "int64"), "int64"),
                     st.sampled_from(("sum", "prod", "max")), st.sampled_from(buffers), st.integers(-1, 1))


OF_X, OF_BOTH = expressions(("x",)), expressions(("x", "y"))
FIRSTS = st.one_of(
    st.builds(lambda v: Compute("y", AXES, v), st.one_of(OF_X, over_row(("x",)))),
    st.builds(lambda v, op, k: Scan("y", AXES, AXES[k], op, v), OF_X, st.sampled_from(("sum", "max")), st.integers(0, 1)))
PLACES = st.one_of(coordinates, st.builds(lambda c: (c, J), looked_up))
UPDATES = st.builds(lambda target, place, v, mode: Update(target, AXES, place, v, mode), st.sampled_from(("x", "y")), PLACES, OF_BOTH,
                    st.sampled_from(("set", "add", "max")))
programs = st.builds(lambda *nodes: Program(("x", "k"), BUFFERS, nodes, ("y", "z")), FIRSTS, UPDATES, st.builds(lambda v: Compute("z", AXES, v), OF_BOTH))
arrays = st.builds(lambda seed: {"x": np.random.default_rng(seed).integers(-9, 9, (N, M)), "k": np.random.default_rng(seed).integers(-N - 1, N + 1, (N,))},
                   st.integers(0, 999))


@settings(max_examples=150, deadline=None)
@given(programs, arrays)
def test_programs(program, inputs):
    verify(program)
    memory, failed = plain_run(program, inputs)
    result = evaluate(program, [inputs["x"], inputs["k"]])
    assert result.failed == failed
    for got, name in zip((*result.outputs, *result.inputs), ("y", "z", "x", "k")):
        np.testing.assert_array_equal(got, memory[name])


@settings(max_examples=80, deadline=None)
@given(OF_X, st.sampled_from(("sum", "max")), st.sampled_from(("add", "sub", "mul")), arrays)
def test_a_kernel_equals_the_program_that_it_was_made_of(value, reduction, combine, inputs):
    """Row values, their reduction, and the combination of both: as three Computes and as three phases with a scratch row."""
    row = Axis("r1", symbol("n"))
    program = Program(("x", "k"), BUFFERS | {"s": Buffer("s", "int64", (N,), (1,))}, (
        Compute("y", AXES, value),
        Compute("s", AXES[:1], Reduce(reduction, (row,), Load("y", (I, K), "int64"), "int64")),
        Compute("z", AXES, Op(combine, (Load("y", (I, J), "int64"), Load("s", (I,), "int64")), "int64")),
    ), ("z",))
    kernel = Kernel("k0", AXES[:1], (
        Phase(AXES[1:], (Let("v", value),), (Reduction("s", reduction, Var("v", "int64"), "int64"),), (Store("row", (J,), Var("v", "int64")),)),
        Phase((), (Let("t", Op("add", (Var("s", "int64"), Literal(0, "int64")), "int64")),)),
        Phase(AXES[1:], (), (), (Store("z", (I, J), Op(combine, (Load("row", (J,), "int64"), Var("t", "int64")), "int64")),)),
    ), ("x", "k"), ("z",), (Buffer("row", "int64", (symbol("n"),), (1,)),))
    verify(program)
    verify_kernel(kernel, program.buffers)
    whole = evaluate(program, [inputs["x"], inputs["k"]])
    fused = run(program.inputs, program.buffers, [kernel], ("z",), [inputs["x"], inputs["k"]])
    np.testing.assert_array_equal(whole.outputs[0], fused.outputs[0])
    assert whole.failed == fused.failed


def test_a_scan_kernel_runs_along_its_axis():
    x = np.arange(N * M).reshape(N, M)
    kernel = Kernel("k0", AXES[:1], (
        Phase(AXES[1:], (), (Reduction("s", "sum", Load("x", (I, J), "int64"), "int64"),), (Store("z", (I, J), Var("s", "int64")),)),
    ), ("x",), ("z",), scan=AXES[1])
    verify_kernel(kernel, BUFFERS)
    np.testing.assert_array_equal(run(("x",), BUFFERS, [kernel], ("z",), [x]).outputs[0], x.cumsum(1))
