"""Split and unbind to single views, reshape to a view or a copy and a view, pixel unshuffle, one-hot."""

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


def pixel_unshuffle(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    *batch, c, h, w = meta(a.self).sizes
    r, n = a.downscale_factor, len(batch)
    apart = emit.view(a.self, (*batch, c, h // r, r, w // r, r))
    mixed = emit(aten.permute.default, apart, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return emit.view(emit(aten.clone.default, mixed, memory_format=torch.contiguous_format), meta(node).sizes)


def one_hot(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Written by index, so that a class out of range is found as in eager."""
    if a.num_classes < 0:
        return None
    sizes = [emit.size(size) for size in (*meta(a.self).sizes, a.num_classes)]
    zeros = emit(aten.full.default, sizes, 0, dtype=torch.int64, device=torch.device(meta(node).device))
    return emit(aten.scatter.value, zeros, -1, emit(aten.unsqueeze.default, a.self, -1), 1)


RULES = {
    aten.split.Tensor: split, aten.split.sizes: split, aten.split_with_sizes.default: split, aten.chunk.default: split,
    aten.tensor_split.sections: split, aten.tensor_split.indices: split, aten.unsafe_chunk.default: split,
    aten.unsafe_split.Tensor: split, aten.unsafe_split_with_sizes.default: split,
    aten.unbind.int: unbind,
    aten.reshape.default: reshape, aten.flatten.using_ints: reshape, aten.unflatten.int: reshape, aten._unsafe_view.default: reshape,
    aten.pixel_unshuffle.default: pixel_unshuffle,
    aten.one_hot.default: one_hot,
}
