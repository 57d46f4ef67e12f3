"""Strides for buffers whose layout was left open: row-major, which is what library calls and eager's fresh tensors have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thruway.core import sizes
from thruway.core.sizes import SizeLike
from thruway.loops.ir import Buffer


def contiguous(dims: tuple[SizeLike, ...]) -> tuple[SizeLike, ...]:
    """Row-major strides; a dimension of size 0 counts as 1."""
    strides: list[SizeLike] = []
    step: SizeLike = 1
    for size in reversed(dims):
        strides.append(step)
        step = sizes.mul(step, 1 if size == 0 else size)
    return tuple(reversed(strides))


def settle_strides(buffers: Mapping[str, Buffer]) -> dict[str, Buffer]:
    """`buffers` with every layout decided."""
    return {name: b if b.strides is not None else replace(b, strides=contiguous(b.sizes)) for name, b in buffers.items()}
