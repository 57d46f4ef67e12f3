"""Indexing, gathering, scattering, joining. The layout of `index` after ATen's TensorAdvancedIndexing.cpp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from thruway.core.dtypes import COMPLEX
from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import data_dependent, expect, is_checked, refuse, require
from thruway.shapes.rules.dims import fresh, wrap_dim
from thruway.shapes.rules.pointwise import common_device
from thruway.shapes.rules.promote import result_dtype
from thruway.shapes.rules.strides import (
    CHANNELS_LAST_ORDER,
    Sizes,
    broadcast,
    channels_last_strides,
    equals,
    iterator_strides,
    preserved_strides,
    suggests_channels_last,
)
from thruway.shapes.rules.views import view_strides

Rule = Callable[..., object]
Indices = Sequence[TensorMeta | None]


def _index_places(x: TensorMeta, indices: Indices) -> list[int]:
    require(len(indices) <= len(x.sizes) or not any(i is not None for i in indices[len(x.sizes):]), "more indices than dimensions")
    places = [d for d, i in enumerate(indices) if i is not None]
    for d in places:
        if indices[d].dtype in ("bool", "uint8"):
            data_dependent("indexing by a mask")
        require(indices[d].dtype in ("int64", "int32"), f"an index of {indices[d].dtype}")
        require(indices[d].device in (x.device, "cpu"), "an index on another device")
    require(bool(places), "indexing without an index")
    return places


def _index(x: TensorMeta, indices: Indices) -> TensorMeta:
    """x[…, index, …]: indexed dimensions give way to the indices' common shape, in place where adjacent, else in front."""
    places = _index_places(x, indices)
    common = broadcast([indices[d].sizes for d in places])
    require(all(not equals(x.sizes[d], 0) for d in places) or any(equals(s, 0) for s in common), "an index into a dimension of size 0")
    order = list(range(len(x.sizes)))
    if places != list(range(places[0], places[0] + len(places))):
        order = places + [d for d in order if d not in places]
        first = 0
    else:
        first = places[0]
    before, after = order[:first], order[first + len(places):]
    sizes = (*(x.sizes[d] for d in before), *common, *(x.sizes[d] for d in after))
    source = (*(x.strides[d] for d in before), *(0,) * len(common), *(x.strides[d] for d in after))
    operands = [(sizes, source)]
    for d in places:
        strides = _expanded_strides(indices[d], common)
        operands.append(((1,) * len(before) + common + (1,) * len(after), (0,) * len(before) + strides + (0,) * len(after)))
    return TensorMeta(sizes, _index_strides(sizes, operands), x.dtype, x.device)


def _expanded_strides(index: TensorMeta, common: Sizes) -> Sizes:
    lead = len(common) - len(index.sizes)
    return (0,) * lead + tuple(0 if equals(a, 1) and not equals(b, 1) else s for a, b, s in zip(index.sizes, common[lead:], index.strides))


def _index_strides(sizes: Sizes, operands: list[tuple[Sizes, Sizes]]) -> Sizes:
    return iterator_strides(sizes, operands)


def _index_put(x: TensorMeta, indices: Indices, values: TensorMeta, accumulate: bool = False) -> TensorMeta:
    _check_put(x, indices, values)
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), x.dtype, x.device)


def _index_put_inplace(x: TensorMeta, indices: Indices, values: TensorMeta, accumulate: bool = False, unsafe: bool = False) -> TensorMeta:
    _check_put(x, indices, values)
    return x


def _check_put(x: TensorMeta, indices: Indices, values: TensorMeta) -> None:
    """A mask as the only index with one value is masked_fill in eager: it has a static shape too."""
    masks = [i for i in indices if i is not None and i.dtype in ("bool", "uint8")]
    require(values.dtype == x.dtype, f"index_put of {values.dtype} into {x.dtype}")
    if masks:
        one = all(s == 1 for s in values.sizes)
        require(len([i for i in indices if i is not None]) == 1 and one, "index_put by a mask with more than one value")
        at = next(d for d, i in enumerate(indices) if i is not None)
        require(masks[0].sizes == x.sizes[at:at + len(masks[0].sizes)], "a mask of other sizes")
        return
    shape = _index(x, indices).sizes
    require(len(values.sizes) <= len(shape) and broadcast([values.sizes, shape]) == shape, f"values of {values.sizes} for {shape}")


def _index_select(x: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    dim = wrap_dim(dim, len(x.sizes))
    require(len(index.sizes) <= 1 and index.dtype in ("int64", "int32") and index.device == x.device, "index_select's index")
    count = index.sizes[0] if index.sizes else 1
    _check_reach(x, dim, count)
    if not x.sizes:
        require(count == 1, "index_select of a 0-dim tensor")
        return fresh(x, ())
    return fresh(x, tuple(count if d == dim else s for d, s in enumerate(x.sizes)))


def _check_reach(x: TensorMeta, dim: int, count: SizeLike) -> None:
    require(equals(count, 0) or not x.sizes or not equals(x.sizes[dim], 0), "an index into a dimension of size 0")


def _check_gather(x: TensorMeta, dim: int, index: TensorMeta, bound_dim: bool) -> None:
    dim = wrap_dim(dim, len(x.sizes))
    require(index.dtype in ("int64", "int32") and index.device == x.device, "the index's dtype or device")
    if not any(equals(s, 0) for s in index.sizes):
        _check_reach(x, dim, 1)
        require(len(index.sizes or (1,)) == len(x.sizes or (1,)), f"index of {index.sizes} into {x.sizes}")
        for d, (i, s) in enumerate(zip(index.sizes, x.sizes)):
            require(d == dim and not bound_dim or is_checked(*index.sizes, s) or i <= s, f"index of {index.sizes} into {x.sizes}")


def _gather(x: TensorMeta, dim: int, index: TensorMeta, *, sparse_grad: bool = False) -> TensorMeta:
    require(index.dtype == "int64", f"gather by {index.dtype}")
    _check_gather(x, dim, index, False)
    return fresh(x, index.sizes)


def _scatter(x: TensorMeta, dim: int, index: TensorMeta, source: object = None, *, value: object = None, reduce: str | None = None) -> TensorMeta:
    _check_gather(x, dim, index, False)
    require(index.dtype == "int64", f"scatter by {index.dtype}")
    if isinstance(source, TensorMeta):
        require(source.dtype == x.dtype and source.device == x.device, "scatter of another dtype or device")
        if not any(equals(s, 0) for s in index.sizes):
            require(len(source.sizes) == len(index.sizes) and all(is_checked(*index.sizes, s) or i <= s for i, s in zip(index.sizes, source.sizes)),
                    f"scatter of {source.sizes} by an index of {index.sizes}")
    return fresh(x, x.sizes)


def _scatter_reduce(x: TensorMeta, dim: int, index: TensorMeta, source: TensorMeta, reduce: str, *, include_self: bool = True) -> TensorMeta:
    require(x.dtype != "bool" and x.dtype not in COMPLEX, f"scatter_reduce of {x.dtype}")
    require(reduce in ("sum", "prod", "mean", "amax", "amin"), f"scatter_reduce by {reduce}")
    return _scatter(x, dim, index, source)


def _index_write(x: TensorMeta, dim: int, index: TensorMeta, source: TensorMeta, *_: object, **__: object) -> TensorMeta:
    """index_add and index_copy."""
    dim = wrap_dim(dim, len(x.sizes))
    require(len(index.sizes) <= 1 and index.dtype in ("int64", "int32") and source.dtype == x.dtype, "the index or dtype of an indexed write")
    require(x.device == index.device == source.device, "an indexed write across devices")
    count = index.sizes[0] if index.sizes else 1
    _check_reach(x, dim, count)
    if x.sizes and source.sizes:
        require(len(source.sizes) == len(x.sizes), "an indexed write of another rank")
        want = tuple(count if d == dim else s for d, s in enumerate(x.sizes))
        require(source.sizes == want, f"an indexed write of {source.sizes} where {want} fits")
    else:
        require(count == 1 and len(x.sizes) <= 1 and len(source.sizes) <= 1, "an indexed write of a 0-dim tensor")
    return fresh(x, x.sizes)


def _index_copy(x: TensorMeta, dim: int, index: TensorMeta, source: TensorMeta) -> TensorMeta:
    require(index.dtype == "int64", f"index_copy by {index.dtype}")
    return _index_write(x, dim, index, source)


def _index_fill(x: TensorMeta, dim: int, index: TensorMeta, value: object) -> TensorMeta:
    dim = wrap_dim(dim, len(x.sizes))
    require(len(index.sizes) <= 1 and index.dtype == "int64", "index_fill's index")
    _check_reach(x, dim, index.sizes[0] if index.sizes else 1)
    require(not isinstance(value, TensorMeta) or not value.sizes, "index_fill's value")
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), x.dtype, x.device)


def _take_along(x: TensorMeta, index: TensorMeta) -> TensorMeta:
    require(index.dtype == "int64", f"take by {index.dtype}")
    return fresh(x, index.sizes)


def _cat(tensors: Sequence[TensorMeta], dim: int = 0) -> TensorMeta:
    require(bool(tensors) and all(t.sizes for t in tensors), "cat of nothing or of 0-dim tensors")
    common_device(list(tensors))
    real = [t for t in tensors if len(t.sizes) != 1 or not equals(t.sizes[0], 0)]
    dtype = result_dtype(list(tensors))
    if not real:
        return fresh(tensors[0], (0,), dtype)
    first = real[0]
    dim = wrap_dim(dim, len(first.sizes))
    total: SizeLike = 0
    for t in real:
        require(len(t.sizes) == len(first.sizes), "cat of different ranks")
        for d, (a, b) in enumerate(zip(t.sizes, first.sizes)):
            if d != dim:
                expect(a, "==", b, "cat of different sizes")
        total = total + t.sizes[dim]
    sizes = tuple(total if d == dim else s for d, s in enumerate(first.sizes))
    if len(sizes) in CHANNELS_LAST_ORDER and all(suggests_channels_last(t.sizes, t.strides) for t in tensors):
        return TensorMeta(sizes, channels_last_strides(sizes), dtype, first.device)
    return fresh(first, sizes, dtype)


def _stack(tensors: Sequence[TensorMeta], dim: int = 0) -> TensorMeta:
    require(bool(tensors) and all(len(t.sizes) == len(tensors[0].sizes) for t in tensors), "stack of nothing or of different sizes")
    for t in tensors[1:]:
        for a, b in zip(t.sizes, tensors[0].sizes):
            expect(a, "==", b, "stack of different sizes")
    common_device(list(tensors))
    first = tensors[0]
    dim = wrap_dim(dim, len(first.sizes) + 1)
    sizes = (*first.sizes[:dim], len(tensors), *first.sizes[dim:])
    made = fresh(first, sizes, result_dtype(list(tensors)))
    if dim == len(first.sizes) or not all(suggests_channels_last(t.sizes, t.strides) for t in tensors):
        return made
    joined = _cat(tensors, dim)                         # of which the stack is a view
    return replace(made, strides=view_strides(joined.sizes, joined.strides, sizes) or made.strides)


def _one_hot(x: TensorMeta, classes: int = -1) -> TensorMeta:
    if classes < 0:
        data_dependent("one_hot without a number of classes")
    require(classes != 0, "one_hot of no classes")
    if x.dtype != "int64":
        refuse(f"one_hot of {x.dtype}")
    return fresh(x, (*x.sizes, classes))


RULES: dict[str, Rule] = {
    "aten::index.Tensor": _index,
    "aten::_unsafe_index.Tensor": _index,
    "aten::index_put": _index_put,
    "aten::index_put_": _index_put_inplace,
    "aten::_index_put_impl_": _index_put_inplace,
    "aten::index_select": _index_select,
    "aten::gather": _gather,
    "aten::scatter.src": _scatter,
    "aten::scatter.value": _scatter,
    "aten::scatter_add": _scatter,
    "aten::scatter_reduce.two": _scatter_reduce,
    "aten::index_add": _index_write,
    "aten::index_copy": _index_copy,
    "aten::index_fill.int_Scalar": _index_fill,
    "aten::index_fill.int_Tensor": _index_fill,
    "aten::take": _take_along,
    "aten::cat": _cat,
    "aten::stack": _stack,
    "aten::one_hot": _one_hot,
}
