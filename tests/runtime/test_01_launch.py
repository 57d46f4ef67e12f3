"""Hand-written launch lists against torch, in both executors."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.programs import (
    CHECKED_ADD, MULTIPLY_ADD, PARALLEL_DOUBLE, launch_list, linear_then_add, matrix, multiply_add, vector,
)

from thruway.core.errors import CompilerBug, Unsupported
from thruway.core.launch import Allocate, Call, Input, Kernel, LaunchList, SizeRef, SlotRef, SymbolBinding, TensorSpec, View
from thruway.core.sizes import add, floordiv, mul, symbol
from thruway.native import RegionFailed
from thruway.runtime.evaluate import concrete


def test_one_kernel(loader):
    run = loader(multiply_add(16), MULTIPLY_ADD)
    a, b, c = torch.randn(3, 16)
    (out,) = run(a, b, c)
    assert torch.equal(out, a * b + c)
    assert out.is_contiguous() and out._version == 0 and not out.requires_grad and type(out) is torch.Tensor


def test_outputs_are_fresh_and_own_resizable_storage(loader):
    run = loader(multiply_add(16), MULTIPLY_ADD)
    a, b, c = torch.randn(3, 16)
    (first,), (second,) = run(a, b, c), run(b, c, a)
    assert torch.equal(first, a * b + c) and torch.equal(second, b * c + a)
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    assert first.resize_(1000).shape == (1000,)


def test_sizes_get_their_numbers_wherever_they_stand():
    fixed, half = vector(4), floordiv(symbol("n"), 2)

    def launch(n, half, as_argument):
        moved = TensorSpec("float32", (half,), (n,), offset=add(half, 1))
        steps = (
            Allocate(2, vector(n), mul(n, 4)), View(3, 2, moved), Kernel("none", (2,)), Kernel("k", (2, 3), (n, 7, half)),
            Call("aten::narrow", (SlotRef(0), 0, [as_argument(half)]), (("length", as_argument(n)),), (4,), out_specs=(moved, fixed)),
        )
        inputs = Input(0, vector(n)), Input(1, fixed, weight=True)
        return LaunchList(inputs, (SymbolBinding("n", 0, 0),), (), (Allocate(5, fixed),), (5,), steps, (4,), mul(n, 8), 6)

    symbolic = launch(symbol("n"), half, SizeRef)
    for n in (9, 4, 0):
        sized = concrete(symbolic, {"n": n})
        assert sized == launch(n, n // 2, int)
        assert sized.inputs[1] is symbolic.inputs[1] and sized.steps[2] is symbolic.steps[2]      # what holds no symbol is not made again
    with pytest.raises(KeyError):
        concrete(symbolic, {"m": 1})


@pytest.mark.parametrize("batches", [(1, 2, 7, 2, 1), (3, 0, 5)])
def test_symbolic_sizes(loader, batches):
    run = loader(linear_then_add(), MULTIPLY_ADD)
    w = torch.randn(4, 8)
    for batch in batches:
        x, y, z = torch.randn(batch, 4), torch.randn(batch, 8), torch.randn(batch, 8)
        (out,) = run(x, w, y, z)
        torch.testing.assert_close(out, x @ w * y + z)


def test_more_shapes_than_are_kept(loader):
    size = symbol("n")
    run = loader(multiply_add(size, (SymbolBinding("n", 0, 0),)), MULTIPLY_ADD)
    for n in (*range(1, 40), 3, 39, 1):
        a, b, c = torch.randn(3, n)
        assert torch.equal(run(a, b, c)[0], a * b + c)


def test_two_symbols_and_size_arguments(loader):
    rows, columns = symbol("r"), symbol("c")
    half = floordiv(columns, 2)
    steps = (
        Call("aten::narrow", (SlotRef(0), 1, 0, SizeRef(half)), (), (1,)),
        Call("aten::reshape", (SlotRef(1), (SizeRef(mul(rows, half)),)), (), (2,), out_specs=(vector(mul(rows, half)),)),
    )
    run = loader(launch_list((matrix(rows, columns),), steps, (2,), 3, symbols=(SymbolBinding("r", 0, 0), SymbolBinding("c", 0, 1))))
    for shape in ((2, 6), (3, 5), (2, 6)):
        x = torch.randn(shape)
        assert torch.equal(run(x)[0], x[:, :shape[1] // 2].reshape(-1))


def test_parallel_kernel_uses_the_pool_of_torch(loader):
    run = loader(launch_list((vector(100_000),), (Allocate(1, vector(100_000)), Kernel("twice", (0, 1), (100_000,))), (1,), 2), PARALLEL_DOUBLE)
    x = torch.randn(100_000)
    for threads in (2, 1):
        torch.set_num_threads(threads)
        assert torch.equal(run(x)[0], 2 * x)


def test_lists_constants_and_several_outputs(loader):
    spec = vector(4)
    steps = (
        Call("aten::cat", ((SlotRef(0), SlotRef(1), SlotRef(2)), 0), (), (3,)),
        Call("aten::split_with_sizes", (SlotRef(3), [5, 7]), (), (4, 5)),
        Call("aten::add.Tensor", (SlotRef(5), SlotRef(5)), (("alpha", 2),), (6,)),
    )
    data = struct.pack("4f", 1, 2, 3, 4)
    run = loader(launch_list((spec, spec), steps, (4, 6), 7, constants=((2, spec, data),)))
    a, b = torch.randn(2, 4)
    whole = torch.cat((a, b, torch.tensor([1.0, 2, 3, 4])))
    left, right = run(a, b)
    assert torch.equal(left, whole[:5]) and torch.equal(right, 3 * whole[5:])


def test_views_inside(loader):
    """A transposed view of arena memory for a call, and a kernel that starts in the middle of an input."""
    steps = (
        View(1, 0, TensorSpec("float32", (8,), (1,), offset=8)),
        Allocate(2, matrix(2, 4), arena=0),
        Kernel("multiply_add", (1, 1, 1, 2), (8,)),
        View(3, 2, TensorSpec("float32", (4, 2), (1, 4))),
        Call("aten::mm", (SlotRef(3), SlotRef(2)), (), (4,)),
    )
    run = loader(launch_list((vector(16),), steps, (4,), 5, arena_bytes=32), MULTIPLY_ADD)
    x = torch.randn(24)[8:]
    inner = (x[8:] * x[8:] + x[8:]).view(2, 4)
    torch.testing.assert_close(run(x)[0], inner.T @ inner)


@pytest.mark.parametrize("offset", [0, 3])
def test_a_call_reads_a_view_of_an_input_that_starts_inside_its_storage(loader, offset):
    steps = (
        View(1, 0, TensorSpec("float32", (4, 2), (1, 4), offset=offset)),
        View(2, 1, TensorSpec("float32", (2, 2), (4, 1), offset=1)),
        Call("aten::mm", (SlotRef(1), SlotRef(2)), (), (3,)),
    )
    run = loader(launch_list((vector(16),), steps, (3,), 4))
    x = torch.randn(40)[8:24]
    view = x[offset:offset + 8].view(2, 4).T
    torch.testing.assert_close(run(x)[0], view @ view.T[:, 1:3])


def test_view_of_an_input_leaves_as_a_real_view(loader):
    run = loader(launch_list((matrix(3, 4),), (View(1, 0, TensorSpec("float32", (4,), (1,), offset=4)),), (1, 0), 2))
    x = torch.randn(5, 4)[1:4]
    row, same = run(x)
    assert same is x and torch.equal(row, x[1])
    assert row._base is x._base and row._version == x._version
    row.zero_()
    assert x[1].eq(0).all() and row._version == x._version == 1


def test_view_of_an_input_keeps_gradients(loader):
    run = loader(launch_list((matrix(3, 4),), (View(1, 0, TensorSpec("float32", (4,), (1,), offset=4)),), (1,), 2))
    x = torch.randn(3, 4, requires_grad=True)
    run(x)[0].sum().backward()
    assert torch.equal(x.grad, torch.tensor([0.0, 1, 0])[:, None].expand(3, 4))
    assert torch.is_grad_enabled()


def test_calls_record_no_gradient(loader):
    run = loader(linear_then_add(), MULTIPLY_ADD)
    x, w, y = torch.randn(2, 4), torch.randn(4, 8, requires_grad=True), torch.randn(2, 8)
    assert not run(x, w, y, y)[0].requires_grad and torch.is_grad_enabled()


def test_inference_mode(loader):
    run = loader(linear_then_add(), MULTIPLY_ADD)
    x, w, y = torch.randn(2, 4), torch.randn(4, 8), torch.randn(2, 8)
    with torch.inference_mode():
        assert run(x, w, y, y)[0].is_inference()
    assert not run(x, w, y, y)[0].is_inference()


def write_after_check(**kernel) -> object:
    steps = (Kernel("checked", (1,), (4,), checks=True), Kernel("add_one", (0,), (4,), writes_input=True, **kernel))
    return launch_list((vector(4), TensorSpec("int64", (), ())), steps, (0,), 2)


@pytest.mark.parametrize("kernel", [{}, {"writes": (0,)}])
def test_write_into_an_input_moves_its_version(loader, kernel):
    run = loader(write_after_check(**kernel), CHECKED_ADD)
    x, index = torch.zeros(4), torch.tensor(3)
    assert run(x, index)[0] is x
    assert x.eq(1).all() and x._version == 1 and index._version == int(not kernel and False)


def test_a_failed_check_comes_before_any_write(loader):
    run = loader(write_after_check(), CHECKED_ADD)
    x = torch.zeros(4)
    with pytest.raises(RegionFailed, match="check 7 of checked"):
        run(x, torch.tensor(9))
    assert x.eq(0).all() and x._version == 0
    run(x, torch.tensor(0))
    assert x.eq(1).all()


def test_version_moves_through_a_view(loader):
    steps = (View(1, 0, TensorSpec("float32", (2,), (1,), offset=2)), Kernel("add_one", (1,), (2,), writes_input=True, writes=(1,)))
    run = loader(launch_list((vector(4),), steps, (0,), 2), CHECKED_ADD)
    x = torch.zeros(4)
    run(x)
    assert x.tolist() == [0, 0, 1, 1] and x._version == 1


def test_write_to_a_saved_tensor_is_noticed_by_autograd(loader):
    run = loader(write_after_check(), CHECKED_ADD)
    x = torch.ones(4)
    w = torch.ones(4, requires_grad=True)
    y = (w * x).sum()
    run(x, torch.tensor(0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_inference_tensor_written_outside_inference_mode(loader):
    with torch.inference_mode():
        x = torch.zeros(4)
    run = loader(write_after_check(), CHECKED_ADD)
    with pytest.raises(RegionFailed):
        run(x, torch.tensor(0))
    assert x.eq(0).all()


def test_in_place_call_on_an_input(loader):
    steps = (View(1, 0, TensorSpec("float32", (2,), (1,), offset=1)), Call("aten::add_.Scalar", (SlotRef(1), 5), writes_input=True))
    run = loader(launch_list((vector(4),), steps, (), 2))
    x = torch.zeros(4)
    assert run(x) == ()
    assert x.tolist() == [0, 5, 5, 0] and x._version == 1


def test_error_in_a_call_fails_the_region(loader):
    run = loader(launch_list((matrix(2, 3), matrix(2, 3)), (Call("aten::mm", (SlotRef(0), SlotRef(1)), (), (2,)),), (2,), 3))
    x = torch.randn(2, 3)
    with pytest.raises(RegionFailed) as caught:
        run(x, x)
    assert isinstance(caught.value.__cause__, RuntimeError) and "mat1 and mat2" in str(caught.value.__cause__)
    assert torch.equal(run(x, x.T.contiguous())[0], x @ x.T)


def test_error_after_a_write_stays_as_it_is(loader):
    steps = (Call("aten::add_.Scalar", (SlotRef(0), 1), writes_input=True), Call("aten::mm", (SlotRef(0), SlotRef(0)), (), (1,)))
    run = loader(launch_list((matrix(2, 3),), steps, (1,), 2))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run(torch.zeros(2, 3))


def test_unexpected_layout_fails_the_region(loader):
    steps = (Call("aten::transpose.int", (SlotRef(0), 0, 1), (), (1,), out_specs=(matrix(3, 2),)),)
    with pytest.raises(RegionFailed, match="another layout"):
        loader(launch_list((matrix(2, 3),), steps, (1,), 2))(torch.randn(2, 3))


def test_addmm_and_bmm_below_the_dispatcher(loader):
    steps = (
        Allocate(3, matrix(2, 2)),
        Call("aten::addmm.out", (SlotRef(0), SlotRef(1), SlotRef(2)), (("beta", 2), ("alpha", 0.5), ("out", SlotRef(3)))),
    )
    run = loader(launch_list((vector(2), matrix(2, 3), matrix(3, 2)), steps, (3,), 4))
    bias, a, b = torch.randn(2), torch.randn(2, 3), torch.randn(3, 2)
    torch.testing.assert_close(run(bias, a, b)[0], torch.addmm(bias, a, b, beta=2, alpha=0.5))


@pytest.mark.parametrize("arguments, message", [((1,), "expected 3 tensors"), ((1, 2, 3), "no tensor")])
def test_wrong_arguments(loader, arguments, message):
    run = loader(multiply_add(16), MULTIPLY_ADD)
    with pytest.raises(TypeError, match=message):
        run(*arguments)


@pytest.mark.parametrize("launch", [
    launch_list((vector(4),), (Allocate(1, vector(4), arena=0),), (1,), 2, arena_bytes=16),
    launch_list((vector(4),), (), (1,), 2),
    launch_list((vector(4),), (Kernel("add_one", (0,), (4,), writes_input=True), Kernel("checked", (0,), (4,), checks=True)), (0,), 1),
    launch_list((vector(4),), (Allocate(1, vector(4), arena=1 << 40),), (0,), 2, arena_bytes=16),
])
def test_lists_that_break_the_rules(loader, launch):
    with pytest.raises(RegionFailed) as failed:
        loader(launch, CHECKED_ADD)(torch.zeros(4))
    assert isinstance(failed.value.__cause__, CompilerBug)


def test_unknown_code(loader):
    with pytest.raises(CompilerBug, match="no compiled library has the kernel nowhere"):
        loader(launch_list((vector(4),), (Kernel("nowhere", (0,)),), (0,), 1))
    with pytest.raises(Unsupported, match="no operator aten::nowhere"):
        loader(launch_list((vector(4),), (Call("aten::nowhere", ()),), (0,), 1))


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 70), offset=st.integers(0, 5), step=st.integers(1, 3))
def test_strided_outputs_and_offsets(workers, n, offset, step):
    """Executors agree with torch for any length, start and stride of a view that leaves the call."""
    from thruway.runtime.load import load

    size = symbol("n")
    view = View(3, 2, TensorSpec("float32", (floordiv(add(size, step - 1), step),), (step,)))
    source = MULTIPLY_ADD
    steps = (Allocate(2, vector(size)), Kernel("multiply_add", (0, 0, 1, 2), (size,)), view)
    launch = launch_list((vector(size), vector(size)), steps, (3,), 4, symbols=(SymbolBinding("n", 0, 0),))
    x, y = torch.randn(n + offset)[offset:], torch.randn(n)
    for is_native in (False, True):
        run = load(launch, [workers.submit(source).library()], is_native=is_native)
        assert torch.equal(run(x, y)[0], (x * x + y)[::step])


def test_calls_cast_nothing_under_autocast(loader):
    """Capture has recorded autocast's casts, so an operator called by the launch list keeps its dtype; afterwards the mode is as before."""
    run = loader(launch_list((matrix(2, 2),), (Call("aten::mm", (SlotRef(0), SlotRef(0)), (), (1,)),), (1,), 2))
    x = torch.randn(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.mm(x, x).dtype == torch.bfloat16
        assert run(x)[0].dtype == torch.float32
        assert torch.mm(x, x).dtype == torch.bfloat16 and torch.is_autocast_enabled("cpu")
    assert torch.mm(x, x).dtype == torch.float32
