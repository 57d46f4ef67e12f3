"""Views, rearranged copies, and writes through views of views: what eager gives, with aliases where storage is shared."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loops.against_eager import assert_function, assert_lowers, lowered
from loops.inputs import ALL, layouts, name_of, random
from thruway.core.errors import Unsupported
from thruway.loops.ir import Compute, Extern, Update

aten = torch.ops.aten

VIEWS = [
    (aten.view.default, ([2, 10],)), (aten.permute.default, ([1, 0],)), (aten.transpose.int, (0, -1)), (aten.t.default, ()),
    (aten.select.int, (0, 1)), (aten.select.int, (1, -2)), (aten.slice.Tensor, (1, 1, 4, 2)), (aten.slice.Tensor, (0, -3, 100)),
    (aten.slice.Tensor, (0, 3, 1)), (aten.unsqueeze.default, (1,)), (aten.unsqueeze.default, (-1,)), (aten.expand.default, ([3, 4, 5],)),
    (aten.split.Tensor, (3, 1)), (aten.split_with_sizes.default, ([1, 3], 0)), (aten.unbind.int, (0,)), (aten.alias.default, ()),
    (aten.detach.default, ()), (aten.diagonal.default, (1,)), (aten.diagonal.default, (-1, 1, 0)), (aten.unfold.default, (1, 3, 2)),
    (aten.reshape.default, ([-1],)), (aten.reshape.default, ([2, 2, 5],)),
]
COPIES = [
    (aten.clone.default, ()), (aten.flip.default, ([0],)), (aten.flip.default, ([0, 1],)), (aten.repeat.default, ([2, 3],)),
    (aten.repeat.default, ([2, 1, 2],)), (aten.roll.default, ([2], [1])), (aten.roll.default, ([-1, 3], [0, 1])),
    (aten.constant_pad_nd.default, ([1, 2, 3, 0], 2)), (aten.constant_pad_nd.default, ([-1, 2, 0, -1], 1)), (aten.constant_pad_nd.default, ([1, 1],)),
]


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
@pytest.mark.parametrize("target, args", VIEWS, ids=name_of)
def test_views(target, args, dtype):
    program = assert_lowers(target, random(dtype, 4, 5), *args, exact=True)
    assert all(program.buffers[name].alias == "arg0" for name in program.outputs)      # an output that is a view of an input stays one


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
@pytest.mark.parametrize("target, args", COPIES, ids=name_of)
def test_copies(target, args, dtype):
    program = assert_lowers(target, random(dtype, 4, 5), *args, exact=True)
    assert all(program.buffers[name].alias is None for name in program.outputs)


def test_views_of_other_layouts():
    for x in layouts(torch.float32):
        assert_lowers(aten.reshape.default, x, [-1], exact=True)
        assert_lowers(aten.unsqueeze.default, x, 0, exact=True)
        assert_lowers(aten.squeeze.default, x, exact=True)
        assert_lowers(aten.clone.default, x, exact=True)
        assert_lowers(aten.clone.default, x, memory_format=torch.contiguous_format, exact=True)
        assert_lowers(aten.contiguous.default, x, exact=True)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_cat_and_stack(dtype):
    x, y = random(dtype, 4, 5), random(dtype, 2, 5, seed=1)
    assert_lowers(aten.cat.default, [x, y, x], exact=True)
    assert_lowers(aten.cat.default, [x, x[:, :2]], -1, exact=True)
    assert_lowers(aten.cat.default, [x], exact=True)
    assert_lowers(aten.cat.default, [x, y[:0], torch.empty(0)], exact=True)
    assert_lowers(aten.cat.default, [x, torch.randn(1, 5)], exact=True)
    for dim in (0, 1, -1):
        assert_lowers(aten.stack.default, [x, x, x], dim, exact=True)
    assert_lowers(aten.stack.default, [x[0, 0], x[1, 1]], exact=True)
    assert_lowers(aten.cat.default, [x[k:k + 1] for k in (0, 3, 1, 2, 0)], exact=True)


@pytest.mark.parametrize("new", ALL, ids=name_of)
@pytest.mark.parametrize("old", ALL, ids=name_of)
def test_conversions(old, new):
    x = random(old, 4, 5)
    x = x.abs() if new == torch.uint8 and old not in (torch.uint8, torch.bool) else x
    assert_lowers(aten._to_copy.default, x, dtype=new, exact=True)
    assert_lowers(aten._to_copy.default, x.t(), dtype=new, exact=True)
    assert_lowers(aten.copy_.default, random(new, 4, 5), x[0], exact=True)


def test_pixel_shuffle_and_repeat_interleave():
    assert_lowers(aten.pixel_shuffle.default, random(torch.float32, 2, 8, 3, 3), 2, exact=True)
    assert_lowers(aten.repeat_interleave.self_int, random(torch.float32, 3, 4), 3, 1, exact=True)


factors = st.lists(st.sampled_from((1, 2, 3, 4)), min_size=0, max_size=4)


@settings(max_examples=150, deadline=None)
@given(factors, st.randoms(use_true_random=False))
def test_any_reshape(sizes, random_source):
    """Every shape of the same number of elements, from a plain and a permuted tensor."""
    count = 1
    for size in sizes:
        count *= size
    x = torch.arange(count).view(sizes)
    primes = [p for size in sizes for p in ((2, 2) if size == 4 else (size,))]
    random_source.shuffle(primes)
    new = []
    for p in primes:
        if new and random_source.random() < 0.5:
            new[-1] *= p
        else:
            new.append(p)
    assert_lowers(aten.view.default, x, new, exact=True)
    order = list(range(x.dim()))
    random_source.shuffle(order)
    assert_lowers(aten.reshape.default, x.permute(order), new, exact=True)


def test_writes_through_views_of_views_are_updates_of_the_root():
    def write(cache, x, position):
        cache[1].transpose(0, 1)[2:, 1].mul_(2)
        cache.view(2, -1)[0, 3:9].copy_(x)
        cache[0, :, 1].index_fill_(0, position, 7)
        return cache + 1
    program = assert_function(write, torch.randn(2, 4, 3), torch.randn(6), torch.tensor([2, 0]))
    updates = [node for node in program.nodes if isinstance(node, Update)]
    assert [node.target for node in updates] == ["arg_0"] * 3
    assert not any(isinstance(node, Extern) for node in program.nodes)


def test_a_cache_is_updated_and_never_copied():
    def step(cache, new, position):
        cache[1].index_copy_(1, position, new)
        return cache[1] * 2, cache[0].sum()
    program = assert_function(step, torch.randn(2, 3, 8, 4), torch.randn(3, 1, 4), torch.tensor([5]))
    whole = [node for node in program.nodes if isinstance(node, Compute) and program.buffers[node.out].sizes == (2, 3, 8, 4)]
    assert not whole


def test_reads_before_and_after_a_write():
    def mixed(x):
        before = x[1:] * 1
        x[:-1].add_(before)
        middle = x.sum()
        x[1].copy_(x[0])
        x.add_(x.t().clone())
        return before, middle, x * 2
    assert_function(mixed, torch.randn(4, 4))


def test_overlapping_rows_are_read_before_they_are_written():
    def shift(x):
        x[1:].copy_(x[:-1].clone())
        x[:2].add_(x[2:4])
        return x.clone()
    assert_function(shift, torch.randn(5, 3))


def test_views_feed_library_calls_as_aliases():
    program = assert_function(lambda x, y: torch.mm(x.t(), y[1:]), torch.randn(3, 4), torch.randn(4, 5))
    call, = program.nodes
    aliases = [program.buffers[argument.name] for argument in call.args]
    assert [(b.alias, b.sizes, b.strides, b.offset) for b in aliases] == [("arg_0", (4, 3), (1, 4), 0), ("arg_1", (3, 5), (5, 1), 5)]


def test_a_view_of_a_temporary_feeds_a_library_call_as_an_alias():
    program = assert_function(lambda x, w: torch.mm((x + 1).view(6, 4), w), torch.randn(2, 3, 4), torch.randn(4, 5), scale=4)
    assert [type(node).__name__ for node in program.nodes] == ["Compute", "Extern"]


def test_a_view_read_across_a_write_is_a_copy():
    def late(x, w):
        old = x[:2].clone()
        x.zero_()
        return torch.mm(old, w), x[1:]
    assert_function(late, torch.randn(3, 4), torch.randn(4, 5), scale=4)


def test_outputs_that_are_inputs_or_views_of_one():
    program = assert_function(lambda x: (x, x[1], x.t(), x + 1), torch.randn(3, 4))
    assert [program.buffers[name].alias or name for name in program.outputs[:3]] == ["arg_0"] * 3


def test_the_bits_as_another_dtype():
    program = assert_function(lambda x: (x * 2).view(torch.int32) + 1, torch.randn(4))
    assert not any(isinstance(node, Extern) for node in program.nodes)
    for escaping in (lambda x: x.view(torch.int32), lambda x: x.view(torch.int32).add_(1)):
        with pytest.raises(Unsupported):
            lowered(escaping, torch.randn(4))


def test_strided_views():
    program = assert_function(lambda x: (x.as_strided((3, 3), (1, 2), 1) + 1, x.as_strided((2, 2), (2, 1))), torch.randn(4, 3))
    assert program.buffers[program.outputs[1]].alias == "arg_0"

    def write(x):
        x.as_strided((2, 2), (3, 1), 1).mul_(2)
        return x + 1
    assert_function(write, torch.randn(4, 3))


def test_a_view_without_a_row_is_an_alias():
    """As over storage that is not row-major."""
    def strided(x):
        y = x.as_strided((2, 3), (1, 4))
        y.add_(1)
        return torch.mm(y.t(), y), x * 2
    program = assert_function(strided, torch.randn(4, 3).t(), scale=4)
    assert any(isinstance(node, Update) for node in program.nodes)


def test_in_place_library_call_names_what_it_writes():
    program = assert_function(lambda x, w: (x[1:].addmm_(w, w), x * 1)[1], torch.randn(4, 3), torch.randn(3, 3), scale=4)
    call = next(node for node in program.nodes if isinstance(node, Extern))
    assert program.buffers[call.mutates[0]].alias == "arg_0"
