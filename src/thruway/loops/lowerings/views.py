"""Views: each is a copy through an index map, and a handle from which writes and aliases find the storage behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from thruway.core.dtypes import COMPLEX, ITEMSIZE
from thruway.core.errors import Unsupported
from thruway.core.sizes import Ranges, Size, SizeLike, Symbol, add, bounds, floordiv, mod, mul, product
from thruway.loops.builder import Builder, Tensor, axis_indices, load
from thruway.loops.ir import Index, Op
from thruway.shapes.meta import TensorMeta, contiguous_strides


def wrap_dim(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def axis_ranges(sizes: Sequence[SizeLike]) -> Ranges:
    """Inclusive bounds of the axes i0 … that run over `sizes`."""
    return {Symbol(f"i{k}"): (0, add(size, -1)) for k, size in enumerate(sizes)}


def reshape_index(old: Sequence[SizeLike], new: Sequence[SizeLike]) -> tuple[SizeLike, ...]:
    """For each dimension of `old` the coordinate of the element that stands at axes i0 … of `new`: dimensions are matched in groups of
    equal product, and only inside a group split by division."""
    if tuple(old) == tuple(new):
        return axis_indices(len(new))
    index: list[SizeLike] = []
    ranges = axis_ranges(new)
    for olds, news in _groups(tuple(old), tuple(new)):
        sizes = [new[k] for k in news]
        flat: SizeLike = 0
        for k, stride in zip(news, contiguous_strides(tuple(sizes))):
            if new[k] != 1:
                flat = add(flat, mul(axis_indices(k + 1)[k], stride))
        index.extend(_split(flat, [old[k] for k in olds], ranges))
    return tuple(index)


def _split(flat: SizeLike, sizes: Sequence[SizeLike], ranges: Ranges) -> list[SizeLike]:
    """The coordinates within `sizes` of the element number `flat`."""
    result: list[SizeLike] = []
    large = [k for k, size in enumerate(sizes) if size != 1]
    for k, (size, stride) in enumerate(zip(sizes, contiguous_strides(tuple(sizes)))):
        if size == 1 or size == 0:
            result.append(0)
            continue
        at = floordiv(flat, stride, ranges)
        result.append(at if k == large[0] else mod(at, size, ranges))
    return result


def _groups(old: tuple[SizeLike, ...], new: tuple[SizeLike, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of `old` and `new` with equal products, as small as they can be seen to be; dimensions of 1 join any run."""
    groups, olds, news = [], [], []
    i = j = 0
    left: SizeLike = 1
    right: SizeLike = 1
    while i < len(old) or j < len(new):
        if i < len(old) and (j == len(new) or not olds or (news and _smaller(left, right))):
            left, olds, i = mul(left, old[i]), [*olds, i], i + 1
        elif j < len(new):
            right, news, j = mul(right, new[j]), [*news, j], j + 1
        else:
            left, olds, i = mul(left, old[i]), [*olds, i], i + 1
        if olds and news and left == right:
            groups.append((olds, news))
            olds, news, left, right = [], [], 1, 1
    if olds or news:
        groups.append((olds, news))
    return groups


def _smaller(a: SizeLike, b: SizeLike) -> bool:
    """Whether `a` is the one to grow: it is less than `b`, or divides it, or (where neither is known) comes first."""
    if type(a) is int and type(b) is int:
        return a < b
    if isinstance(b, Size) and mul(floordiv(b, a), a) == b:
        return True
    if isinstance(a, Size) and mul(floordiv(a, b), b) == a:
        return False
    return bounds(add(a, mul(b, -1)))[1] is not None


def view_strides(sizes: Sequence[SizeLike], strides: Sequence[SizeLike], new: tuple[SizeLike, ...]) -> tuple[SizeLike, ...] | None:
    """The strides with which `new` sizes can view a tensor of `sizes` and `strides`, or None where that needs a copy."""
    result: list[SizeLike] = []
    for olds, news in _groups(tuple(sizes), new):
        real = [k for k in olds if sizes[k] != 1]
        if any(strides[a] != mul(strides[b], sizes[b]) for a, b in zip(real, real[1:])):
            return None
        step = strides[real[-1]] if real else 1
        inner = contiguous_strides(tuple([new[k] for k in news]))
        result.extend([mul(step, one) for one in inner])
    return tuple(result)


def view(b: Builder, self: Tensor, *size: object) -> Tensor:
    return b.view(self, reshape_index(self.sizes, b.out.sizes))


def reshape(b: Builder, self: Tensor, *shape: object) -> Tensor:
    """A view where strides allow it, else a copy."""
    strides = view_strides(self.sizes, self.meta.strides, b.out.sizes)
    index = reshape_index(self.sizes, b.out.sizes)
    if strides is None or not same_layout(b.out, strides):
        return b.compute(b.out, load(self, index))
    return b.view(self, index)


def same_layout(meta: TensorMeta, strides: Sequence[SizeLike]) -> bool:
    return all(a == c for size, a, c in zip(meta.sizes, meta.strides, strides) if size != 1)


def permute(b: Builder, self: Tensor, dims: Sequence[int]) -> Tensor:
    index: list[Index] = [0] * self.rank
    for out, dim in enumerate(dims):
        index[wrap_dim(dim, self.rank)] = axis_indices(self.rank)[out]
    return b.view(self, index)


def transpose(b: Builder, self: Tensor, dim0: int, dim1: int) -> Tensor:
    if not self.rank:
        return b.view(self, ())
    order = list(range(self.rank))
    dim0, dim1 = wrap_dim(dim0, self.rank), wrap_dim(dim1, self.rank)
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(b, self, order)


def t(b: Builder, self: Tensor) -> Tensor:
    return transpose(b, self, 0, 1) if self.rank == 2 else b.view(self, axis_indices(self.rank))


def select(b: Builder, self: Tensor, dim: int, index: SizeLike) -> Tensor:
    return select_at(b, self, wrap_dim(dim, self.rank), index, b.out)


def select_at(b: Builder, self: Tensor, dim: int, index: SizeLike, meta: TensorMeta) -> Tensor:
    if not isinstance(index, (int, Size)):
        raise Unsupported("TW510", "select at an index that only the run knows")
    at = add(self.sizes[dim], index) if type(index) is int and index < 0 else index
    axes = axis_indices(self.rank - 1)
    return b.view(self, (*axes[:dim], at, *axes[dim:]), meta)


def slice_(b: Builder, self: Tensor, dim: int = 0, start: SizeLike | None = None, end: SizeLike | None = None, step: int = 1) -> Tensor:
    dim = wrap_dim(dim, self.rank)
    return slice_from(b, self, dim, slice_start(start, self.sizes[dim]), step, b.out)


def slice_start(start: SizeLike | None, size: SizeLike) -> SizeLike:
    """Where a slice of a dimension of `size` begins, as Python clamps it."""
    if start is None:
        return 0
    if type(start) is int and start < 0:
        start = add(size, start)
    low, high = bounds(start)[0], bounds(add(size, mul(start, -1)))[0]
    if type(start) is int and type(size) is int:
        return min(max(start, 0), size)
    if type(start) is int and start >= 0 or low is not None and low >= 0 and high is not None and high >= 0:
        return start
    raise Unsupported("TW511", f"a slice from {start} of a dimension of size {size}")


def slice_from(b: Builder, self: Tensor, dim: int, start: SizeLike, step: SizeLike, meta: TensorMeta) -> Tensor:
    index = list(axis_indices(self.rank))
    index[dim] = add(start, mul(index[dim], step))
    return b.view(self, index, meta)


def narrow(b: Builder, self: Tensor, dim: int, start: SizeLike, length: SizeLike) -> Tensor:
    return slice_(b, self, dim, start)


def split(b: Builder, self: Tensor, split_size: object, dim: int = 0) -> tuple:
    """Pieces one after the other along `dim`, as long as the metadata of the results says."""
    dim = wrap_dim(dim, self.rank)
    pieces, start = [], 0
    metas: Any = b.meta
    for meta in metas:
        pieces.append(slice_from(b, self, dim, start, 1, meta))
        start = add(start, meta.sizes[dim])
    return tuple(pieces)


def unbind(b: Builder, self: Tensor, dim: int = 0) -> tuple:
    dim = wrap_dim(dim, self.rank)
    return tuple([select_at(b, self, dim, k, meta) for k, meta in enumerate(b.meta)])


def squeeze(b: Builder, self: Tensor, dim: object = None) -> Tensor:
    dims = range(self.rank) if dim is None else [wrap_dim(d, self.rank) for d in (dim if isinstance(dim, tuple) else (dim,))]
    gone = {d for d in dims if self.rank and self.sizes[d] == 1}
    axes = iter(axis_indices(self.rank))
    return b.view(self, [0 if k in gone else next(axes) for k in range(self.rank)])


def unsqueeze(b: Builder, self: Tensor, dim: int) -> Tensor:
    dim = wrap_dim(dim, self.rank + 1)
    axes = axis_indices(self.rank + 1)
    return b.view(self, (*axes[:dim], *axes[dim + 1:]))


def expand(b: Builder, self: Tensor, size: object, *, implicit: bool = False) -> Tensor:
    rank = len(b.out.sizes)
    axes = axis_indices(rank)[rank - self.rank:]
    return b.view(self, [0 if size == 1 else at for at, size in zip(axes, self.sizes)])


def alias(b: Builder, self: Tensor, *more: object, **named: object) -> Tensor:
    return b.view(self, axis_indices(self.rank))


def contiguous(b: Builder, self: Tensor, *, memory_format: object = None) -> Tensor:
    """The tensor itself where it is laid out as asked, else a copy."""
    if same_layout(b.out, self.meta.strides):
        return alias(b, self)
    return b.compute(b.out, load(self, axis_indices(self.rank)))


def diagonal(b: Builder, self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    dim1, dim2 = wrap_dim(dim1, self.rank), wrap_dim(dim2, self.rank)
    axes = axis_indices(self.rank - 1)
    along, rest = axes[-1], iter(axes[:-1])
    place = {dim1: add(along, max(0, -offset)), dim2: add(along, max(0, offset))}
    return b.view(self, [place[k] if k in place else next(rest) for k in range(self.rank)])


def unfold(b: Builder, self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    if not self.rank:
        return b.view(self, ())
    dim = wrap_dim(dimension, self.rank)
    axes = list(axis_indices(self.rank + 1))
    inside = axes.pop()
    axes[dim] = add(mul(axes[dim], step), inside)
    return b.view(self, axes)


def view_dtype(b: Builder, self: Tensor, dtype: object) -> Tensor:
    """The same bits as another dtype of the same width."""
    if ITEMSIZE[self.dtype] != ITEMSIZE[b.out.dtype] or {self.dtype, b.out.dtype} & (COMPLEX | {"bool"}):
        raise Unsupported("TW522", "a view as another dtype that changes sizes")
    bits = Op("bitcast", (load(self, axis_indices(self.rank)),), b.out.dtype)
    return replace(b.compute(b.dense(b.out.sizes, b.out.dtype), bits), detached=True)


def as_strided(b: Builder, self: Tensor, size: Sequence[SizeLike], stride: Sequence[SizeLike], storage_offset: object = None) -> Tensor:
    """A view by strides over storage that is row-major and wholly known."""
    root = self.root
    if root.meta.strides != contiguous_strides(root.sizes) or root.dtype != self.dtype:
        raise Unsupported("TW524", "as_strided over storage that is not row-major")
    flat = first = last = add(b.out.offset, mul(root.meta.offset, -1))
    for at, size, step in zip(axis_indices(len(b.out.sizes)), b.out.sizes, b.out.strides):
        flat, last = add(flat, mul(at, step)), add(last, mul(add(size, -1), step))
    whole = product(root.sizes)
    if type(first) is int and first < 0 or type(last) is int and type(whole) is int and last >= whole > 0:
        raise Unsupported("TW524", "as_strided that leaves the part of its storage that its argument shows")
    return b.view(root, _split(flat, root.sizes, axis_ranges(b.out.sizes)))


ROWS: dict[str, Callable[..., Tensor | tuple]] = {
    "aten.view.default": view, "aten._unsafe_view.default": view, "aten.unflatten.int": view, "aten.flatten.using_ints": reshape,
    "aten.reshape.default": reshape, "aten._reshape_alias.default": view,
    "aten.permute.default": permute, "aten.transpose.int": transpose, "aten.t.default": t, "aten.numpy_T.default":
    lambda b, self: permute(b, self, tuple(reversed(range(self.rank)))), "aten.mT.default": lambda b, self: transpose(b, self, -2, -1),
    "aten.select.int": select, "aten.slice.Tensor": slice_, "aten.narrow.default": narrow,
    "aten.split.Tensor": split, "aten.split_with_sizes.default": split, "aten.chunk.default": split, "aten.split.sizes": split,
    "aten.unsafe_split.Tensor": split, "aten.unsafe_chunk.default": split, "aten.unsafe_split_with_sizes.default": split,
    "aten.tensor_split.sections": split, "aten.unbind.int": unbind,
    "aten.squeeze.default": squeeze, "aten.squeeze.dim": squeeze, "aten.squeeze.dims": squeeze, "aten.unsqueeze.default": unsqueeze,
    "aten.expand.default": expand, "aten.expand_as.default": expand, "aten.alias.default": alias, "aten.detach.default": alias,
    "aten.view_as.default": view, "aten.lift_fresh.default": alias, "aten.contiguous.default": contiguous,
    "aten.view.dtype": view_dtype, "aten.as_strided.default": as_strided, "aten.diagonal.default": diagonal, "aten.unfold.default": unfold,
}
