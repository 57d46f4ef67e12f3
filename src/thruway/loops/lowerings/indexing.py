"""Reads and writes at computed places. Every computed index is checked as eager checks it: negative ones wrap only where torch allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from thruway.core.dtypes import INTEGERS, LOW_FLOATS, compute_dtype
from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike
from thruway.loops.builder import Builder, Tensor, axes_of, axis_index, axis_indices, load, load_broadcast
from thruway.loops.expressions import cast, literal, op, where
from thruway.loops.ir import CheckIndex, Expr, Index
from thruway.loops.lowerings.elementwise import Operand, scalar
from thruway.loops.lowerings.views import select_at, slice_from, slice_start, wrap_dim
from thruway.shapes.meta import TensorMeta


def checked(x: Expr, size: SizeLike, wrap: bool = False) -> CheckIndex:
    return CheckIndex(cast(x, "int64"), size, wrap)


def embedding(b: Builder, weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    row = checked(load(indices, axis_indices(indices.rank)), weight.sizes[0])
    return b.compute(b.out, load(weight, (row, axis_index(indices.rank))))


def index_select(b: Builder, self: Tensor, dim: int, index: Tensor) -> Tensor:
    if not self.rank:
        return b.compute(b.out, load(self, ()))
    dim = wrap_dim(dim, self.rank)
    axes = list(axis_indices(self.rank))
    at = load(index, (axes[dim],) if index.rank else ())
    return b.compute(b.out, _load_checked(self, axes, dim, at))


def _load_checked(x: Tensor, axes: Sequence[Index], dim: int, at: Expr) -> Expr:
    """x[axes] with the checked `at` along `dim`; the check stays where the dimension has size 1."""
    place = list(axes)
    place[dim] = checked(at, x.sizes[dim])
    plain = load(x, axes)
    return type(plain)(x.name, tuple([place[k] if k == dim else one for k, one in enumerate(plain.index)]), x.dtype)


def gather(b: Builder, self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    if not self.rank or not index.rank:
        return b.compute(b.out, load(self, [checked(load(index, ()), self.sizes[0])] if self.rank else ()))
    if index.rank != self.rank:                        # eager takes an empty index of any rank
        return b.compute(b.out, literal(0, self.dtype))
    axes = axis_indices(index.rank)
    return b.compute(b.out, _load_checked(self, axes, wrap_dim(dim, self.rank), load(index, axes)))


def take_along_dim(b: Builder, self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        raise Unsupported("TW516", "take_along_dim over the flattened tensor")
    rank = self.rank
    axes = axis_indices(rank)
    return b.compute(b.out, _load_checked(self, axes, wrap_dim(dim, rank), load(indices, axes)))


def advanced(b: Builder, x: Tensor, indices: Sequence[Tensor | None], rank: int) -> tuple[Index, ...]:
    """The coordinates in `x` that x[indices] reads at the `rank` axes of its result: index tensors broadcast together and stand where
    the first of them stood if they were neighbours, else in front."""
    places = [k for k, one in enumerate(indices) if one is not None]
    if any(indices[k].dtype not in INTEGERS - {"uint8"} for k in places):
        raise Unsupported("TW517", "indexing by a mask")
    width = max([indices[k].rank for k in places])
    neighbours = places == list(range(places[0], places[0] + len(places)))
    first = places[0] if neighbours else 0
    axes = axis_indices(rank)
    plain = iter([*axes[:first], *axes[first + width:]])
    block = axes[first:first + width]
    coordinates: list[Index] = []
    for k in range(x.rank):
        one = indices[k] if k < len(indices) else None
        coordinates.append(next(plain) if one is None else checked(load(one, block[width - one.rank:]), x.sizes[k], wrap=True))
    return tuple(coordinates)


def index_tensor(b: Builder, self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    place = advanced(b, self, indices, len(b.out.sizes))
    return b.compute(b.out, _load_exact(self, place))


def _load_exact(x: Tensor, where: Sequence[Index]) -> Expr:
    """x[where] with checks kept on dimensions of size 1."""
    plain = load(x, where)
    return type(plain)(x.name, tuple([at if isinstance(at, CheckIndex) else one for at, one in zip(where, plain.index)]), x.dtype)


def index_put_in_place(b: Builder, self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if all(one is None for one in indices):
        raise Unsupported("TW517", "an index of nothing but slices")
    if any(one is not None and one.dtype in ("bool", "uint8") for one in indices):
        return _masked_put(b, self, indices, values, accumulate)
    sizes = indexed_sizes(self, indices)
    place = advanced(b, self, indices, len(sizes))
    return b.write(self, place, load_broadcast(values, len(sizes)), axes_of(sizes), "add" if accumulate else "set")


def _masked_put(b: Builder, self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """x[mask] = one value: a selection over all of x."""
    mask = indices[0]
    if len(indices) != 1 or mask.dtype != "bool" or values.rank or accumulate:
        raise Unsupported("TW517", "indexing by a mask")
    from_mask = cast(load(mask, axis_indices(mask.rank)), "bool")
    axes = axis_indices(self.rank)
    return b.write(self, axes, where(from_mask, cast(load(values, ()), self.dtype), b.here(self)), axes_of(self.sizes))


def indexed_sizes(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[SizeLike, ...]:
    """The sizes of x[indices]."""
    places = [k for k, one in enumerate(indices) if one is not None]
    block = broadcast_sizes([indices[k].sizes for k in places])
    plain = [size for k, size in enumerate(x.sizes) if k not in places]
    first = places[0] if places == list(range(places[0], places[0] + len(places))) else 0
    return (*plain[:first], *block, *plain[first:])


def broadcast_sizes(shapes: Sequence[Sequence[SizeLike]]) -> tuple[SizeLike, ...]:
    result: list[SizeLike] = [1] * max(len(shape) for shape in shapes)
    for shape in shapes:
        for k, size in enumerate(reversed(shape)):
            if size != 1:
                result[-1 - k] = size
    return tuple(result)


def index_copy_in_place(b: Builder, self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _along(b, self, dim, index, source, "set")


def index_add_in_place(b: Builder, self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    return _along(b, self, dim, index, source, "add", alpha)


def index_fill_in_place(b: Builder, self: Tensor, dim: int, index: Tensor, value: object) -> Tensor:
    if not self.rank:
        raise Unsupported("TW518", "an index write into a 0-dimensional tensor")
    dim, axes = wrap_dim(dim, self.rank), list(axis_indices(self.rank))
    sizes = [*self.sizes[:dim], index.sizes[0] if index.rank else 1, *self.sizes[dim + 1:]]
    place = [*axes[:dim], checked(load(index, (axes[dim],) if index.rank else ()), self.sizes[dim], wrap=True), *axes[dim + 1:]]
    return b.write(self, place, scalar(value, self.dtype), axes_of(sizes))


def _along(b: Builder, self: Tensor, dim: int, index: Tensor, source: Tensor, mode: str, alpha: float = 1) -> Tensor:
    """self[…, index[k], …] (mode)= alpha * source[…, k, …]."""
    if not self.rank or source.rank != self.rank:
        raise Unsupported("TW518", "an index write into a 0-dimensional tensor")
    dim, axes = wrap_dim(dim, self.rank), list(axis_indices(self.rank))
    value = _times(load(source, axes), alpha)
    place = [*axes[:dim], checked(load(index, (axes[dim],) if index.rank else ()), self.sizes[dim]), *axes[dim + 1:]]
    return _combine(b, self, place, value, source.sizes, mode)


def _combine(b: Builder, self: Tensor, place: Sequence[Index], value: Expr, sizes: Sequence[SizeLike], mode: str) -> Tensor:
    """self[place] (mode)= value over `sizes`; bf16 and fp16 add up in float32 and are rounded once, as torch's kernels do."""
    if mode == "set" or self.dtype not in LOW_FLOATS:
        return b.write(self, place, value, axes_of(sizes), mode)
    wide = b.temp(self.sizes, cast(b.here(self), "float32"), "wide")
    b.write(wide, place, cast(value, "float32"), axes_of(sizes), mode)
    axes = axis_indices(self.rank)
    return b.write(self, axes, load(wide, axes), axes_of(self.sizes))


def _times(x: Expr, alpha: float) -> Expr:
    if alpha == 1:
        return x
    wide = compute_dtype(x.dtype)
    return cast(op("mul", cast(x, wide), scalar(alpha, wide)), x.dtype)


_REDUCE_MODES = {None: "set", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def scatter_in_place(b: Builder, self: Tensor, dim: int, index: Tensor, src: Operand, *, reduce: str | None = None,
                     include_self: bool = True) -> Tensor:
    """self[…, index[p], …] (mode)= src[p] for each place p of `index`."""
    if not self.rank or index.rank != self.rank or not include_self or reduce not in _REDUCE_MODES:
        raise Unsupported("TW518", f"scatter with reduce={reduce}, include_self={include_self}")
    dim, axes = wrap_dim(dim, self.rank), list(axis_indices(self.rank))
    value = load(src, axes) if isinstance(src, Tensor) and src.rank else scalar(src, self.dtype)
    place = [*axes[:dim], checked(load(index, axes), self.sizes[dim]), *axes[dim + 1:]]
    return _combine(b, self, place, value, index.sizes, _REDUCE_MODES[reduce])


def scatter_value(b: Builder, self: Tensor, dim: int, index: Tensor, value: Operand, *, reduce: str | None = None) -> Tensor:
    return scatter_in_place(b, self, dim, index, value, reduce=reduce)


def scatter_add(b: Builder, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return scatter_in_place(b, self, dim, index, src, reduce="add")


def scatter_reduce(b: Builder, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    return scatter_in_place(b, self, dim, index, src, reduce=reduce, include_self=include_self)


def on_a_copy(row: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The functional operator: the in-place one on a fresh copy."""
    def functional(b: Builder, self: Tensor, *args: object, **kwargs: object) -> Tensor:
        return row(b, b.compute(b.out, load(self, axis_indices(self.rank))), *args, **kwargs)
    return functional


def select_scatter(b: Builder, self: Tensor, src: Tensor, dim: int, index: SizeLike) -> Tensor:
    return _write_part(b, self, src, lambda copy, layout: select_at(b, copy, wrap_dim(dim, self.rank), index, layout))


def slice_scatter(b: Builder, self: Tensor, src: Tensor, dim: int = 0, start=None, end=None, step: int = 1) -> Tensor:
    dim = wrap_dim(dim, self.rank)
    if all(one is None or type(one) is int for one in (start, end)) and type(self.sizes[dim]) is int:
        if len(range(*slice(start, end, step).indices(self.sizes[dim]))) != src.sizes[dim]:
            raise Unsupported("TW518", "a slice and what is written into it have other sizes")
    return _write_part(b, self, src, lambda copy, layout: slice_from(b, copy, dim, slice_start(start, self.sizes[dim]), step, layout))


def _write_part(b: Builder, self: Tensor, src: Tensor, part: Callable[[Tensor, TensorMeta], Tensor]) -> Tensor:
    copy = b.compute(b.out, load(self, axis_indices(self.rank)))
    layout = replace(src.meta, dtype=self.dtype)
    b.write(part(copy, layout), axis_indices(src.rank), load(src, axis_indices(src.rank)), axes_of(src.sizes))
    return copy


_IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "index_put.default": index_put_in_place, "index_copy.default": index_copy_in_place, "index_add.default": index_add_in_place,
    "index_fill.int_Scalar": index_fill_in_place, "index_fill.int_Tensor": index_fill_in_place,
    "scatter.src": scatter_in_place, "scatter.value": scatter_value, "scatter.reduce": scatter_in_place, "scatter.value_reduce": scatter_value,
    "scatter_add.default": scatter_add, "scatter_reduce.two": scatter_reduce,
}


def _in_place_name(name: str) -> str:
    operator, overload = name.split(".")
    return f"aten.{operator}_.{overload}"


ROWS: dict[str, Callable[..., Tensor]] = {
    "aten.embedding.default": embedding, "aten.index_select.default": index_select, "aten.gather.default": gather,
    "aten.take_along_dim.default": take_along_dim, "aten.index.Tensor": index_tensor, "aten._unsafe_index.Tensor": index_tensor,
    **{_in_place_name(name): row for name, row in _IN_PLACE.items()},
    **{f"aten.{name}": on_a_copy(row) for name, row in _IN_PLACE.items()},
    "aten._unsafe_index_put.default": on_a_copy(index_put_in_place),
    "aten.select_scatter.default": select_scatter, "aten.slice_scatter.default": slice_scatter,
}
