"""The verifier notices each kind of broken program and kernel; the printer shows the whole ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thruway.core.errors import CompilerBug, UserLine
from thruway.core.sizes import symbol
from thruway.loops.ir import (
    Axis,
    Buffer,
    BufferRef,
    Cast,
    CheckIndex,
    Compute,
    Condition,
    Extern,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Op,
    Origin,
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
from thruway.loops.show import show, show_kernel
from thruway.loops.verify import verify, verify_kernel

I, R = Axis("i0", 4), Axis("r1", 3)
i, r = I.index, R.index
LINE = UserLine("model.py", 12, "forward", "y = x + 1")


def buffers(**more):
    known = [
        Buffer("x", "float32", (4, 3), (3, 1), "input"), Buffer("k", "int64", (4,), (1,), "input"), Buffer("y", "float32", (4,), (1,)),
        Buffer("z", "float32", (4, 3), (3, 1)), Buffer("v", "float32", (3, 4), (1, 3), alias="z"),
    ]
    return {b.name: b for b in known} | more


def program(*nodes, outputs=("y",), **more):
    return Program(("x", "k"), buffers(**more), nodes, outputs)


def load(*index, name="x", dtype="float32"):
    return Load(name, index, dtype)


ROW_SUM = Compute("y", (I,), Reduce("sum", (R,), load(i, r), "float32"), Origin(("sum_1",), LINE))
COPY = Compute("z", (I, Axis("i1", 3)), load(i, Axis("i1", 3).index))


def test_whole_programs_pass():
    verify(program(ROW_SUM))
    verify(program(COPY, Extern("aten::mv", (BufferRef("v"),), (), ("y",))))
    verify(program(ROW_SUM, Update("y", (I,), (CheckIndex(load(i, name="k", dtype="int64"), 4, True),), Literal(1.0, "float32"))))
    verify(program(Compute("y", (I,), Within((Condition(i - 1, 4),), load(i - 1, 0), Literal(0.0, "float32"), "float32"))))


BROKEN = {
    "reads z before it is defined": program(Compute("y", (I,), load(i, 0, name="z"))),
    "x, which is float32, as int32": program(Compute("y", (I,), Cast(load(i, 0, dtype="int32"), "float32"))),
    "its value int64": program(Compute("y", (I,), load(i, name="k", dtype="int64"))),
    "axis r1 is not bound": program(Compute("y", (I,), load(i, r))),
    "at 1 coordinates": program(Compute("y", (I,), load(i))),
    "goes up to 4 of 4": program(Compute("y", (I,), load(i + 1, 0))),
    "goes down to -1": program(Compute("y", (I,), load(i - 1, 0))),
    "has sizes": program(Compute("y", (Axis("i0", 5),), Literal(0.0, "float32"))),
    "bound twice": program(Compute("y", (I,), Reduce("sum", (Axis("i0", 4),), load(i, 0), "float32"))),
    "may not stand here": program(Compute("y", (I,), Op("neg", (Reduce("sum", (R,), load(i, r), "float32"),), "float32"))),
    "defined twice": program(ROW_SUM, ROW_SUM),
    "add of": program(Compute("y", (I,), Op("add", (load(i, 0), Literal(1, "int64")), "float32"))),
    "lt of float32 gives float32": program(Compute("y", (I,), Op("lt", (load(i, 0), load(i, 0)), "float32"))),
    "sub of 1 arguments": program(Compute("y", (I,), Op("sub", (load(i, 0),), "float32"))),
    "is read at a float32": program(Compute("y", (I,), load(load(i, 0), 0))),
    "Within of float32 and int64": program(Compute("y", (I,), Within((Condition(i, 2),), load(i, 0), Literal(0, "int64"), "float32"))),
    "never defined": program(),
    "does not exist yet": program(Update("y", (I,), (i,), Literal(0.0, "float32"))),
    "an update of y by a int64": program(ROW_SUM, Update("y", (I,), (i,), Literal(0, "int64"))),
    "an update of y by swap": program(ROW_SUM, Update("y", (I,), (i,), Literal(0.0, "float32"), "swap")),
    "aten::mm reads z before": program(Extern("aten::mm", (BufferRef("z"),), (), ("y",))),
    "a reduction by median": program(Compute("y", (I,), Reduce("median", (R,), load(i, r), "float32"))),
    "a scan by sum along": program(Scan("y", (I,), R, "sum", load(i, 0))),
    "read as float32 and known as None": program(Compute("y", (I,), Var("s", "float32"))),
    "leads back": program(ROW_SUM, a=Buffer("a", "float32", (4,), (1,), alias="a")),
    "unknown dtype": program(ROW_SUM, a=Buffer("a", "float8", (4,), (1,))),
    "strides": program(ROW_SUM, a=Buffer("a", "float32", (4,), (1, 1))),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_programs_are_noticed(message):
    with pytest.raises(CompilerBug, match=message):
        verify(BROKEN[message])


def kernel(**changes):
    whole = Kernel(
        "k", (I,), (
            Phase((R,), (Let("e", Op("exp", (load(i, r),), "float32")),), (Reduction("s", "sum", Var("e", "float32"), "float32"),),
                  (Store("row", (r,), Var("e", "float32")),)),
            Phase((), (Let("h", Op("reciprocal", (Var("s", "float32"),), "float32")),)),
            Phase((R,), (), (), (Store("z", (i, r), Op("mul", (load(r, name="row"), Var("h", "float32")), "float32")),)),
        ), ("x",), ("z",), (Buffer("row", "float32", (3,), (1,)),), origin=(Origin(("softmax",), LINE),))
    return replace(whole, **changes)


def test_whole_kernels_pass():
    verify_kernel(kernel(), buffers())


@pytest.mark.parametrize("message, broken", [
    ("e is read as float32 and known as None", kernel(phases=(*kernel().phases[:2], Phase((R,), (), (), (Store("z", (i, r), Var("e", "float32")),))))),
    ("stores to z, which it does not declare", kernel(writes=())),
    ("reads x before it is defined", kernel(reads=())),
    ("axis r1 is not bound", kernel(phases=(Phase((), (Let("e", load(i, r)),)),))),
    ("stores int64 into z", kernel(phases=(Phase((R,), (), (), (Store("z", (i, r), Literal(0, "int64")),)),))),
    ("no reduction logsumexp", kernel(phases=(Phase((R,), (), (Reduction("s", "logsumexp", load(i, r), "float32"),)),))),
])
def test_broken_kernels_are_noticed(message, broken):
    with pytest.raises(CompilerBug, match=message):
        verify_kernel(broken, buffers())


def test_a_program_prints():
    n = symbol("s0")
    shown = show(Program(
        ("x", "k"), buffers(y=Buffer("y", "bool", (4,), (1,)), w=Buffer("w", "float32", (n,), (1,))),
        (ROW_SUM, Update("z", (I,), (i, CheckIndex(load(i, name="k", dtype="int64"), 3, False)), IndexValue(2 * i, "float32"), "add"),
         Extern("aten::mm", (BufferRef("x"), (1, 2)), (("out_dtype", None),), ("w",), ("z",))), ("y", "v")))
    assert shown == """\
inputs
  x: input f32[4, 3] strides (3, 1)
  k: input i64[4] strides (1)
nodes
  # model.py:12 in forward: y = x + 1
  y[i0<4]: f32 = sum[r1<3](x[i0, r1])
  for i0<4: z[i0, checked(k[i0], 3)] += f32<2*i0>
  w[s0]: f32 = aten::mm(x, [1, 2], out_dtype=None)  # writes z
aliases
  v: temp f32[3, 4] strides (1, 3) = z from 0
outputs
  y, v
"""


def test_a_kernel_prints_with_shared_parts_named():
    assert show_kernel(kernel()) == """\
kernel k(x) -> z
  # model.py:12 in forward: y = x + 1
  scratch row: temp f32[3] strides (1)
  for i0<4:
    for r1<3:
      e = exp(x[i0, r1])
      s: f32 = sum of e
      row[r1] = e
    once:
      h = reciprocal(s)
    for r1<3:
      z[i0, r1] = (row[r1] * h)
"""
    shared = Op("add", (load(i, 0), load(i, 1)), "float32")
    squared = Compute("y", (I,), Op("mul", (shared, shared), "float32"))
    assert "  t0: f32 = x[i0, 0] + x[i0, 1]\n  y[i0<4]: f32 = (t0 * t0)" in show(program(squared))
