"""Indices and values that pass 32 bits, in printed Triton kernels run by its interpreter: memory far apart is virtual, few pages of it are touched."""

import pytest
import torch

from codegen import triton_harness as harness
from codegen.test_triton import F32, buffer, table
from thruway.codegen.triton import print_kernel
from thruway.codegen.triton_dot import print_product, product_of
from thruway.codegen.triton_source import Config
from thruway.core.launch import FAR
from thruway.core.sizes import symbol
from thruway.loops.ir import Axis, Cast, IndexValue, Kernel, Load, Op, Phase, Reduction, Store, Var

pytest.importorskip("triton")
STEP = 1 << 30                       # elements between neighbours: the third lies behind 32 bits


@pytest.fixture
def memory():
    try:
        return torch.empty(3 * STEP, dtype=torch.int8)
    except RuntimeError:
        pytest.skip("this machine gives no 3 GB of address space")


def copy_kernel(count):
    i = Axis("i", count)
    return Kernel("k", (i,), (Phase((), stores=(Store("y", (i.index,), Load("x", (i.index,), "int8")),)),), ("x",), ("y",))


def column_sums(rows, columns):
    i, j = Axis("i", columns), Axis("j", rows)
    value = Cast(Load("x", (j.index, i.index), "int8"), F32)
    return Kernel("k", (i,), (
        Phase((j,), reductions=(Reduction("s", "sum", value, F32),)),
        Phase((), stores=(Store("y", (i.index,), Var("s", F32)),)),
    ), ("x",), ("y",))


def running_sums(rows, columns):
    i, j = Axis("i", columns), Axis("j", rows)
    value = Cast(Load("x", (j.index, i.index), "int8"), F32)
    return Kernel("k", (i,), (Phase((j,), reductions=(Reduction("s", "sum", value, F32),), stores=(Store("y", (i.index, j.index), Var("s", F32)),)),),
                  ("x",), ("y",), scan=j)


def test_elements_far_apart(memory):
    x, y = memory[::STEP], torch.empty(3, dtype=torch.int8)
    x.copy_(torch.tensor([3, 4, 5]))
    source = print_kernel(copy_kernel(3), table(buffer("x", (3,), "int8", (STEP,)), buffer("y", (3,), "int8")))
    harness.run(source, {"x": x, "y": y})
    assert source.wide and y.tolist() == [3, 4, 5]


@pytest.mark.parametrize("rows", [3, symbol("n")], ids=str)
@pytest.mark.parametrize("make", [column_sums, running_sums], ids=lambda make: make.__name__)
def test_rows_of_elements_far_apart(memory, make, rows):
    """Kept in registers, and walked in blocks where their number is symbolic."""
    x = memory.as_strided((3, 2), (STEP, 1))
    x.copy_(torch.arange(6).view(3, 2))
    is_sum = make is column_sums
    y = torch.empty(2) if is_sum else torch.empty(2, 3)
    wide = type(rows) is not int                  # what a call at these sizes would ask for
    source = print_kernel(make(rows, 2), table(buffer("x", (rows, 2), "int8", (STEP, 1)), buffer("y", (2,) if is_sum else (2, rows))), wide)
    harness.run(source, {"x": x, "y": y}, Config(1, 4, 1), **({} if type(rows) is int else {"n": 3}))
    assert source.wide and torch.equal(y, x.float().sum(0) if is_sum else x.float().cumsum(0).T)


@pytest.mark.parametrize(("count", "step", "is_wide"), [(100, 10**8, True), (100, 10**7, False)])
def test_values_pass_32_bits_where_indices_do_not(count, step, is_wide):
    i = Axis("i", count)
    kernel = Kernel("k", (i,), (Phase((), stores=(Store("y", (i.index,), IndexValue(i.index * step + 7, "int64")),)),), (), ("y",))
    source, y = print_kernel(kernel, table(buffer("y", (count,), "int64"))), torch.empty(count, dtype=torch.int64)
    harness.run(source, {"y": y})
    assert not source.wide and ("i.to(tl.int64)" in source.text) == is_wide
    assert torch.equal(y, torch.arange(count) * step + 7)


def test_powers_of_symbolic_sizes_pass_32_bits():
    i, n = Axis("i", 4), symbol("n")
    kernel = Kernel("k", (i,), (Phase((), stores=(Store("y", (i.index,), IndexValue(n * n * n // 2 + i.index, "int64")),)),), (), ("y",))
    source, y = print_kernel(kernel, table(buffer("y", (4,), "int64"))), torch.empty(4, dtype=torch.int64)
    harness.run(source, {"y": y}, n=5000)
    assert torch.equal(y, torch.arange(4) + 5000**3 // 2)


def test_only_what_reaches_far_is_wide():
    for count, is_wide in ((FAR - 1, False), (FAR, True)):
        assert print_kernel(copy_kernel(count), table(buffer("x", (count,), "int8"), buffer("y", (count,), "int8"))).wide == is_wide
    near = print_kernel(copy_kernel(1000), table(buffer("x", (1000,), "int8"), buffer("y", (1000,), "int8")))
    assert "int64" not in near.text.partition("def k(")[2]


def test_rows_longer_than_32_bits_of_small_tensors_are_wide():
    a, b = Axis("a", 1 << 16), Axis("b", 1 << 16)
    value = Op("mul", (Load("x", (a.index,), F32), Load("z", (b.index,), F32)), F32)
    kernel = Kernel("k", (), (Phase((a, b), reductions=(Reduction("s", "sum", value, F32),)), Phase((), stores=(Store("y", (), Var("s", F32)),))), ("x", "z"), ("y",))
    assert print_kernel(kernel, table(buffer("x", (1 << 16,)), buffer("z", (1 << 16,)), buffer("y", ()))).wide


def test_symbolic_sizes_say_how_far_they_reach():
    n = symbol("n")
    buffers = table(buffer("x", (n,), "int8", (3,)), buffer("y", (n,), "int8"))
    narrow, wide = (print_kernel(copy_kernel(n), buffers, wide) for wide in (False, True))
    assert not narrow.wide and set(narrow.reach) == {n, n * 3 - 2}
    assert wide.wide and "program_id(0).to(tl.int64)" in wide.text


def test_products_of_factors_far_apart_are_wide():
    i, j, k = Axis("i", 32), Axis("j", 32), Axis("k", 64)
    value = Op("mul", (Cast(Load("a", (i.index, k.index), "bfloat16"), F32), Cast(Load("b", (k.index, j.index), "bfloat16"), F32)), F32)
    kernel = Kernel("p", (i, j), (Phase((k,), reductions=(Reduction("s", "sum", value, F32),)), Phase((), stores=(Store("y", (i.index, j.index), Var("s", F32)),))),
                    ("a", "b"), ("y",))
    source = print_product(kernel, table(buffer("a", (32, 64), "bfloat16"), buffer("b", (64, 32), "bfloat16", (STEP, 1)), buffer("y", (32, 32))),
                           product_of(kernel))
    inside = source.text.partition("def p(")[2]
    assert source.wide and all(f"{line}.to(tl.int64)" in inside for line in ("k = start + tl.arange(0, D)[None, :]", "t = start + tl.arange(0, D)[:, None]"))
