"""Printed Triton kernels against torch, run by Triton's interpreter on the CPU."""

import pytest
import torch

from codegen import triton_harness as harness
from thruway.codegen.triton import print_kernel
from thruway.codegen.triton_source import Config
from thruway.core.sizes import symbol
from thruway.loops.ir import (
    Axis, Buffer, Cast, CheckIndex, Condition, Kernel, Let, Literal, Load, Op, Phase, Reduction, Store, Var, Within,
)

pytest.importorskip("triton")

F32, BF16 = "float32", "bfloat16"


def buffer(name, tensor_sizes, dtype=F32, strides=None):
    step, default = 1, []
    for size in reversed(tensor_sizes):
        default.insert(0, step)
        step = step * size
    return Buffer(name, dtype, tuple(tensor_sizes), tuple(strides or default))


def table(*buffers):
    return {b.name: b for b in buffers}


def softmax_kernel(rows, columns):
    i, j = Axis("i", rows), Axis("j", columns)
    x = Load("x", (i.index, j.index), F32)
    shifted = Op("exp", (Op("sub", (x, Var("m", F32)), F32),), F32)
    return Kernel("softmax", (i,), (
        Phase((j,), reductions=(Reduction("m", "max", x, F32),)),
        Phase((j,), reductions=(Reduction("s", "sum", shifted, F32),)),
        Phase((j,), stores=(Store("y", (i.index, j.index), Op("div", (shifted, Var("s", F32)), F32)),)),
    ), ("x",), ("y",))


def test_pointwise_with_broadcast_and_transpose():
    i, j = Axis("i", 5), Axis("j", 7)
    value = Op("add", (Load("x", (i.index, j.index), F32), Op("mul", (Load("b", (j.index,), F32), Literal(2.0, F32)), F32)), F32)
    kernel = Kernel("k", (i, j), (Phase((), stores=(Store("y", (j.index, i.index), value),)),), ("x", "b"), ("y",))
    x, b, y = torch.randn(5, 7), torch.randn(7), torch.empty(7, 5)
    source = print_kernel(kernel, table(buffer("x", (5, 7)), buffer("b", (7,)), buffer("y", (7, 5))))
    harness.run(source, {"x": x, "b": b, "y": y}, Config(16, 1, 4))
    assert torch.equal(y, (x + b * 2).T)


@pytest.mark.parametrize("columns", [1, 33, 128])
def test_softmax_in_registers(columns):
    x, y = torch.randn(6, columns), torch.empty(6, columns)
    source = print_kernel(softmax_kernel(6, columns), table(buffer("x", (6, columns)), buffer("y", (6, columns))))
    for config in source.configs:
        harness.run(source, {"x": x, "y": y}, config)
        assert torch.allclose(y, x.softmax(-1), atol=1e-6)


def test_softmax_over_a_symbolic_row_is_walked_in_blocks():
    rows, columns = symbol("r0"), symbol("c0")
    source = print_kernel(softmax_kernel(rows, columns), table(buffer("x", (rows, columns)), buffer("y", (rows, columns))))
    assert "for start in range" in source.text
    for shape in ((1, 5), (3, 100), (7, 64)):
        x, y = torch.randn(shape), torch.empty(shape)
        harness.run(source, {"x": x, "y": y}, Config(2, 16, 4), r0=shape[0], c0=shape[1])
        assert torch.allclose(y, x.softmax(-1), atol=1e-6)


def test_low_precision_is_computed_in_float32_and_rounded():
    i = Axis("i", 100)
    x = Cast(Load("x", (i.index,), BF16), F32)
    value = Cast(Op("mul", (Op("add", (x, Literal(0.1, F32)), F32), x), F32), BF16)
    kernel = Kernel("k", (i,), (Phase((), stores=(Store("y", (i.index,), value),)),), ("x",), ("y",))
    x, y = torch.randn(100).bfloat16(), torch.empty(100, dtype=torch.bfloat16)
    harness.run(print_kernel(kernel, table(buffer("x", (100,), BF16), buffer("y", (100,), BF16))), {"x": x, "y": y})
    expected = ((x.float() + 0.1) * x.float()).bfloat16()
    assert (y.float() - expected.float()).abs().max() <= expected.float().abs().max() * 2**-8      # the interpreter rounds halves down


def test_gelu_that_is_rounded_at_once_keeps_its_left_side():
    i = Axis("i", 4096)
    x = Cast(Load("x", (i.index,), BF16), F32)
    erf = Op("erf", (Op("mul", (x, Literal(0.7071067811865476, F32)), F32),), F32)
    value = Op("mul", (Op("mul", (Literal(0.5, F32), x), F32), Op("add", (Literal(1.0, F32), erf), F32)), F32)
    kernel = Kernel("k", (i,), (Phase((), stores=(Store("y", (i.index,), Cast(value, BF16)),)),), ("x",), ("y",))
    x, y = torch.linspace(-12, 12, 4096).bfloat16(), torch.empty(4096, dtype=torch.bfloat16)
    source = print_kernel(kernel, table(buffer("x", (4096,), BF16), buffer("y", (4096,), BF16)))
    assert "tw_one_plus_erf(e" in source.text
    harness.run(source, {"x": x, "y": y})
    truth = x.double() * 0.5 * torch.special.erfc(-x.double() / 2**0.5)
    assert ((y.double() - truth).abs() <= truth.abs() * 2**-7 + 1e-37).all()


def test_max_keeps_nan_and_argmax_takes_the_first():
    i, j = Axis("i", 3), Axis("j", 5)
    x = Load("x", (i.index, j.index), F32)
    kernel = Kernel("k", (i,), (
        Phase((j,), reductions=(Reduction("m", "max", x, F32), Reduction("a", "argmax", x, "int64"))),
        Phase((), stores=(Store("y", (i.index,), Var("m", F32)), Store("at", (i.index,), Var("a", "int64")))),
    ), ("x",), ("y", "at"))
    x = torch.tensor([[1.0, 3, 3, 2, 0], [1, float("nan"), 9, 2, 0], [-5, -4, -9, -4, -8]])
    y, at = torch.empty(3), torch.empty(3, dtype=torch.int64)
    source = print_kernel(kernel, table(buffer("x", (3, 5)), buffer("y", (3,)), buffer("at", (3,), "int64")))
    harness.run(source, {"x": x, "y": y, "at": at})
    assert torch.equal(at, x.argmax(-1))
    assert torch.equal(y.isnan(), x.amax(-1).isnan()) and torch.equal(y[[0, 2]], x.amax(-1)[[0, 2]])


def test_gather_wraps_negative_indices_and_flags_bad_ones():
    i, j = Axis("i", 4), Axis("j", 3)
    index = CheckIndex(Load("ids", (i.index,), "int64"), 6, True)
    kernel = Kernel("k", (i, j), (Phase((), stores=(Store("y", (i.index, j.index), Load("w", (index, j.index), F32)),)),), ("ids", "w"), ("y",))
    source = print_kernel(kernel, table(buffer("ids", (4,), "int64"), buffer("w", (6, 3)), buffer("y", (4, 3))))
    w, y = torch.randn(6, 3), torch.empty(4, 3)
    good, bad = torch.tensor([0, -1, 5, 2]), torch.tensor([0, 6, 1, 1])
    assert harness.run(source, {"ids": good, "w": w, "y": y}) == 0 and torch.equal(y, w[good])
    assert harness.run(source, {"ids": bad, "w": w, "y": y}) == 1


def test_concatenation_reads_only_the_source_it_is_in():
    i = Axis("i", 10)
    value = Within((Condition(i.index, 4),), Load("a", (i.index,), F32), Load("b", (i.index - 4,), F32), F32)
    kernel = Kernel("k", (i,), (Phase((), stores=(Store("y", (i.index,), value),)),), ("a", "b"), ("y",))
    a, b, y = torch.randn(4), torch.randn(6), torch.empty(10)
    harness.run(print_kernel(kernel, table(buffer("a", (4,)), buffer("b", (6,)), buffer("y", (10,)))), {"a": a, "b": b, "y": y})
    assert torch.equal(y, torch.cat((a, b)))


def test_rows_handed_over_in_scratch_stay_in_registers():
    i, j = Axis("i", 4), Axis("j", 40)
    row = Op("mul", (Load("x", (i.index, j.index), F32), Literal(3.0, F32)), F32)
    kernel = Kernel("k", (i,), (
        Phase((j,), lets=(Let("t", row),), reductions=(Reduction("s", "sum", Var("t", F32), F32),), stores=(Store("tmp", (j.index,), Var("t", F32)),)),
        Phase((j,), stores=(Store("y", (i.index, j.index), Op("sub", (Load("tmp", (j.index,), F32), Var("s", F32)), F32)),)),
    ), ("x",), ("y",), scratch=(buffer("tmp", (40,)),))
    x, y = torch.randn(4, 40), torch.empty(4, 40)
    harness.run(print_kernel(kernel, table(buffer("x", (4, 40)), buffer("y", (4, 40)))), {"x": x, "y": y})
    assert torch.allclose(y, 3 * x - (3 * x).sum(-1, keepdim=True), atol=1e-5)
