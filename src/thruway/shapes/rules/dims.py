"""Dimensions and fresh results: what most families share."""

from __future__ import annotations

from collections.abc import Iterable

from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import require
from thruway.shapes.rules.strides import Sizes, channels_last_strides, contiguous_strides, suggests_channels_last


def wrap_dim(dim: int, rank: int) -> int:
    """`dim` counted from the front; a 0-dim tensor counts as one dimension."""
    limit = rank or 1
    require(-limit <= dim < limit, f"dimension {dim} of a tensor of {rank} dimensions")
    return dim % limit


def wrap_dims(dims: Iterable[int] | int | None, rank: int) -> tuple[int, ...]:
    """The dimensions meant by a reduction's `dim`: none or empty means all."""
    if isinstance(dims, int):
        dims = (dims,)
    wrapped = tuple(wrap_dim(d, rank) for d in dims or ())
    require(rank <= 64, "more than 64 dimensions")
    require(len(set(wrapped)) == len(wrapped), "a dimension appears twice")
    return wrapped or tuple(range(rank))


def fresh(like: TensorMeta, sizes: Sizes, dtype: str | None = None) -> TensorMeta:
    """A contiguous result on `like`'s device."""
    return TensorMeta(tuple(sizes), contiguous_strides(sizes), dtype or like.dtype, like.device)


def fresh_as_suggested(like: TensorMeta, sizes: Sizes, dtype: str | None = None) -> TensorMeta:
    """A result in channels_last where `like` is laid out so, else contiguous."""
    if len(sizes) == len(like.sizes) and suggests_channels_last(like.sizes, like.strides):
        return TensorMeta(tuple(sizes), channels_last_strides(sizes), dtype or like.dtype, like.device)
    return fresh(like, sizes, dtype)
