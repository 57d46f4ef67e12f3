"""Pieces, rearrangements and fills: split and unbind to single views, repeat, roll, pixel shuffle, triangles, one-hot."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.fx import Node

from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike
from thruway.graph.rewrite import Context, Emitter, aten, meta


def _dim(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _static(size: SizeLike, what: str) -> int:
    if type(size) is not int:
        raise Unsupported("TW304", f"{what} over a symbolic size")
    return size


def _pieces(emit: Emitter, x: Node, dim: int, lengths: list[int]) -> tuple[Node, ...]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return tuple(emit(aten.slice.Tensor, x, dim, start, start + length) for start, length in zip(starts, lengths, strict=True))


def split(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> tuple[Node, ...]:
    dim = _dim(a.dim, len(meta(a.self).sizes))
    return _pieces(emit, a.self, dim, [_static(piece.sizes[dim], "split") for piece in meta(node)])


def unbind(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> tuple[Node, ...]:
    return tuple(emit(aten.select.int, a.self, a.dim, i) for i in range(len(meta(node))))


def reshape(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    return a.self if meta(a.self).sizes == meta(node).sizes else emit.view(a.self, meta(node).sizes)


def stack(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    dim = _dim(a.dim, len(meta(node).sizes))
    return emit(aten.cat.default, [emit(aten.unsqueeze.default, one, dim) for one in a.tensors], dim)


def repeat(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    """x[1, s0, 1, s1, …] expanded to [r0, s0, r1, s1, …] and copied."""
    sizes, rank = meta(a.self).sizes, len(a.repeats)
    sizes = (1,) * (rank - len(sizes)) + sizes
    counts = [meta_or_int(n) for n in a.repeats]
    apart = emit.view(a.self, [n for size in sizes for n in (1, size)])
    wide = emit.expand(apart, [n for count, size in zip(counts, sizes, strict=True) for n in (count, size)])
    copy = emit(aten.clone.default, wide, memory_format=torch.contiguous_format)
    return emit.view(copy, meta(node).sizes)


def meta_or_int(size: int | Node) -> SizeLike:
    return meta(size) if isinstance(size, Node) else size


def roll(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    sizes, x = meta(a.self).sizes, a.self
    shifts, dims = _listed(a.shifts), _listed(a.dims)
    if not dims:
        return None
    for shift, dim in zip(shifts, dims, strict=True):
        size = _static(sizes[dim], "roll")
        cut = -shift % size if size else 0
        if cut:
            x = emit(aten.cat.default, [emit(aten.slice.Tensor, x, dim, cut, size), emit(aten.slice.Tensor, x, dim, 0, cut)], dim)
    return emit(aten.clone.default, x, memory_format=torch.contiguous_format) if x is a.self else x


def _listed(numbers) -> list[int]:
    return list(numbers) if isinstance(numbers, (tuple, list)) else [numbers]


def pixel_shuffle(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    *batch, c, h, w = meta(a.self).sizes
    r, n = a.upscale_factor, len(batch)
    apart = emit.view(a.self, (*batch, c // (r * r), r, r, h, w))
    mixed = emit(aten.permute.default, apart, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return emit.view(emit(aten.clone.default, mixed, memory_format=torch.contiguous_format), meta(node).sizes)


def pixel_unshuffle(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    *batch, c, h, w = meta(a.self).sizes
    r, n = a.downscale_factor, len(batch)
    apart = emit.view(a.self, (*batch, c, h // r, r, w // r, r))
    mixed = emit(aten.permute.default, apart, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return emit.view(emit(aten.clone.default, mixed, memory_format=torch.contiguous_format), meta(node).sizes)


def _triangle(upper: bool):
    def triangle(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
        x = meta(node)
        *_, rows, columns = x.sizes
        device = torch.device(x.device)
        row = emit(aten.arange.default, emit.size(rows), dtype=torch.int64, device=device)
        column = emit(aten.arange.default, emit.size(columns), dtype=torch.int64, device=device)
        distance = emit(aten.sub.Tensor, column, emit(aten.unsqueeze.default, row, 1))
        keep = emit((aten.ge if upper else aten.le).Scalar, distance, a.diagonal)
        zero = emit(aten.full.default, [], False if x.dtype == "bool" else 0, dtype=getattr(torch, x.dtype), device=device)
        return emit(aten.where.self, keep, a.self, zero)
    return triangle


def one_hot(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Written by index, so that a class out of range is found as in eager."""
    if a.num_classes < 0:
        return None
    sizes = [emit.size(size) for size in (*meta(a.self).sizes, a.num_classes)]
    zeros = emit(aten.full.default, sizes, 0, dtype=torch.int64, device=torch.device(meta(node).device))
    return emit(aten.scatter.value, zeros, -1, emit(aten.unsqueeze.default, a.self, -1), 1)


def glu(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    dim = _dim(a.dim, len(meta(a.self).sizes))
    half = _static(meta(node).sizes[dim], "glu")
    value, gate = _pieces(emit, a.self, dim, [half, half])
    compute = "float32" if meta(node).dtype in {"bfloat16", "float16"} else meta(node).dtype
    product = emit(aten.mul.Tensor, emit.cast(value, compute), emit(aten.sigmoid.default, emit.cast(gate, compute)))
    return emit.cast(product, meta(node).dtype)


RULES = {
    aten.split.Tensor: split, aten.split.sizes: split, aten.split_with_sizes.default: split, aten.chunk.default: split,
    aten.tensor_split.sections: split, aten.tensor_split.indices: split, aten.unsafe_chunk.default: split,
    aten.unsafe_split.Tensor: split, aten.unsafe_split_with_sizes.default: split,
    aten.unbind.int: unbind,
    aten.reshape.default: reshape, aten.flatten.using_ints: reshape, aten.unflatten.int: reshape, aten._unsafe_view.default: reshape,
    aten.stack.default: stack,
    aten.repeat.default: repeat,
    aten.roll.default: roll,
    aten.pixel_shuffle.default: pixel_shuffle, aten.pixel_unshuffle.default: pixel_unshuffle,
    aten.tril.default: _triangle(False), aten.triu.default: _triangle(True),
    aten.one_hot.default: one_hot,
    aten.glu.default: glu,
}
