"""Computed places: reads, writes in place and on copies, collisions, checks of indices; and tensors made from nothing."""

from __future__ import annotations

import pytest
import torch

from loops.against_eager import TorchExterns, assert_lowers, one_node_graph, to_numpy
from loops.inputs import ALL, FLOATS, NUMBERS, name_of, random
from thruway.loops.evaluate import evaluate
from thruway.loops.lower import lower

aten = torch.ops.aten
I = torch.tensor


def overload(name: str, kind: str = "default"):
    return getattr(getattr(aten, name), kind)


@pytest.mark.parametrize("index_dtype", (torch.int64, torch.int32), ids=name_of)
@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_reads(dtype, index_dtype):
    x = random(dtype, 4, 5)
    assert_lowers(aten.embedding.default, x, I([[0, 3], [1, 1]], dtype=index_dtype), exact=True)
    assert_lowers(aten.embedding.default, x, I(2, dtype=index_dtype), exact=True)
    assert_lowers(aten.index_select.default, x, 1, I([0, 4, 2], dtype=index_dtype), exact=True)
    assert_lowers(aten.index_select.default, x.t(), 0, I([0, 4, 2], dtype=index_dtype), exact=True)
    assert_lowers(aten.index.Tensor, x, [I([0, -1], dtype=index_dtype), I([[2], [-5]], dtype=index_dtype)], exact=True)
    assert_lowers(aten.gather.default, x, 1, I([[0, 4, 2], [1, 1, 1]]), exact=True)
    assert_lowers(aten.gather.default, x, 0, I([[0, 3]]), exact=True)
    assert_lowers(aten.gather.default, x[:, :1], 1, torch.zeros(4, 3, dtype=torch.int64), exact=True)


@pytest.mark.parametrize("indices", [
    [I([0, -1]), None, I([2, 3])], [None, I([[2, 3]])], [None, None, I([0, -1])], [I([1]), I([[0], [3]])], [None, I([0, 1]), I([2, 2])],
    [I(1), None, I([2, 3])], [I([], dtype=torch.int64)],
], ids=lambda x: str([None if i is None else list(i.shape) for i in x]))
def test_advanced_indexing(indices):
    x = random(torch.float32, 3, 4, 5)
    assert_lowers(aten.index.Tensor, x, indices, exact=True)
    assert_lowers(aten.index.Tensor, x.permute(0, 2, 1).contiguous().permute(0, 2, 1), indices, exact=True)
    shape = aten.index.Tensor(x, indices).shape
    for name in ("index_put", "index_put_"):
        assert_lowers(overload(name), x, indices, random(torch.float32, *shape), exact=True)
        assert_lowers(overload(name), x, indices, torch.tensor(2.0), exact=True)
        assert_lowers(overload(name), x, indices, random(torch.float32, *shape), True)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
@pytest.mark.parametrize("suffix", ("", "_"))
def test_writes(suffix, dtype):
    x = random(dtype, 4, 5)
    assert_lowers(overload("index_put" + suffix), x, [I([0, -1])], random(dtype, 5), exact=True)
    assert_lowers(overload("index_put" + suffix), x, [random(torch.bool, 4, 5)], random(dtype, 1)[0], exact=True)
    assert_lowers(overload("index_put" + suffix), x, [random(torch.bool, 4)], random(dtype, 1)[0], exact=True)
    assert_lowers(overload("index_copy" + suffix), x, 1, I([1, 3]), random(dtype, 4, 2), exact=True)
    assert_lowers(overload("index_add" + suffix), x, 1, I([1, 1]), random(dtype, 4, 2), extern=dtype == torch.bool)     # sums of truths stay truths
    assert_lowers(overload("index_fill" + suffix, "int_Scalar"), x, 1, I([1, -1]), 2, exact=True)
    assert_lowers(overload("scatter" + suffix, "src"), x, 1, I([[0, 4], [2, 1]]), random(dtype, 4, 5), exact=True)
    assert_lowers(overload("scatter" + suffix, "value"), x, 0, I([[0, 3], [2, 1]]), 3, exact=True)
    assert_lowers(overload("scatter_add" + suffix), x, 1, I([[0, 0], [2, 2]]), random(dtype, 4, 5), extern=dtype == torch.bool)
    if dtype != torch.bool:
        assert_lowers(overload("index_put" + suffix), x, [None, I([0, -1, 0])], random(dtype, 4, 3), True)
        for reduce in ("sum", "amax", "amin"):
            assert_lowers(overload("scatter_reduce" + suffix, "two"), x, 1, I([[0, 0], [2, 2]]), random(dtype, 4, 5), reduce)
    if dtype in NUMBERS and dtype != torch.uint8:
        assert_lowers(overload("index_add" + suffix), x, 0, I([3, 0]), random(dtype, 2, 5), alpha=2)


def test_writes_into_layouts():
    x = random(torch.float32, 5, 4).t()
    assert_lowers(aten.index_copy_.default, x, 1, I([1, 3]), random(torch.float32, 4, 2), exact=True)
    assert_lowers(aten.select_scatter.default, x, random(torch.float32, 5), 0, 2, exact=True)
    assert_lowers(aten.slice_scatter.default, x, random(torch.float32, 4, 2), 1, 1, 4, 2, exact=True)


@pytest.mark.parametrize("target, args, good, bad", [
    (aten.embedding.default, lambda i: (torch.randn(4, 3), i), [0, 3], [[4], [-1]]),
    (aten.index_select.default, lambda i: (torch.randn(4, 3), 0, i), [0, 3], [[4], [-1]]),
    (aten.gather.default, lambda i: (torch.randn(4), 0, i), [0, 3], [[4], [-1]]),
    (aten.index.Tensor, lambda i: (torch.randn(4, 3), [i]), [-4, 3], [[4], [-5]]),
    (aten.index_put_.default, lambda i: (torch.randn(4, 3), [i], torch.randn(3)), [-4, 3], [[4], [-5]]),
    (aten.index_copy_.default, lambda i: (torch.randn(4, 3), 0, i, torch.randn(len(i), 3)), [0, 3], [[4], [-1]]),
    (aten.index_add_.default, lambda i: (torch.randn(4, 3), 0, i, torch.randn(len(i), 3)), [0, 3], [[4], [-1]]),
    (aten.scatter_.value, lambda i: (torch.randn(4), 0, i, 1.0), [0, 3], [[4], [-1]]),
    (aten.index.Tensor, lambda i: (torch.randn(1, 3), [i]), [0, -1], [[1], [-2]]),
], ids=name_of)
def test_indices_out_of_range_are_reported(target, args, good, bad):
    """Exactly where eager raises, the failure flag is set."""
    for indices in (good, *bad):
        call = args(I(indices))
        try:
            value = target(*[a.clone() if isinstance(a, torch.Tensor) else a for a in call])
            raises = False
        except (IndexError, RuntimeError):
            value, raises = target(*args(I(good[:1] * len(indices)))), True
        graph, tensors = one_node_graph(target, call, {}, value)
        result = evaluate(lower(graph), [to_numpy(t) for t in tensors], TorchExterns())
        assert result.failed == raises == (indices is not good)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_factories(dtype):
    x = random(dtype, 4, 5)
    for value in (3, 0, True, 0.5):
        assert_lowers(aten.full.default, [2, 3], value, dtype=dtype, exact=True)
        assert_lowers(aten.full_like.default, x, value, exact=True)
    assert_lowers(aten.zeros.default, [2, 0], dtype=dtype, exact=True)
    assert_lowers(aten.ones.default, [2, 3], dtype=dtype, exact=True)
    assert_lowers(aten.zeros_like.default, x.t(), exact=True)
    assert_lowers(aten.ones_like.default, x, exact=True)
    assert_lowers(aten.new_zeros.default, x, [3], exact=True)
    assert_lowers(aten.new_full.default, x, [3], 2, exact=True)
    assert_lowers(aten.scalar_tensor.default, 2, dtype=dtype, exact=True)
    assert_lowers(aten.fill_.Scalar, x, 1, exact=True)
    assert_lowers(aten.fill_.Tensor, x, I(2), exact=True)
    assert_lowers(aten.zero_.default, x, exact=True)
    assert_lowers(aten.eye.default, 4, dtype=dtype, exact=True)
    assert_lowers(aten.eye.m, 3, 5, dtype=dtype, exact=True)
    for diagonal in (0, 1, -2, 9):
        assert_lowers(aten.tril.default, x, diagonal, exact=True)
        assert_lowers(aten.triu.default, random(dtype, 2, 3, 4), diagonal, exact=True)
    if dtype != torch.bool:
        assert_lowers(aten.arange.default, 7, dtype=dtype, exact=True)
        assert_lowers(aten.arange.start_step, 2, 9, 3, dtype=dtype, exact=True)
        assert_lowers(aten.arange.start_step, 9, 2, -2, dtype=dtype, exact=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_ranges_of_floats(dtype):
    assert_lowers(aten.arange.start_step, 0, 1, 0.1, dtype=dtype)
    assert_lowers(aten.arange.start, 0.5, 5, dtype=dtype)
    for steps in (1, 2, 7, 50):
        assert_lowers(aten.linspace.default, -1, 2.5, steps, dtype=dtype, extern=dtype.itemsize == 2)
