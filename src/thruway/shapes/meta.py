"""TensorMeta: everything about a tensor but its elements."""

from __future__ import annotations

from dataclasses import dataclass

from thruway.core.sizes import SizeLike, mul


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Sizes and strides in elements; `offset` of the first element in its storage; dtype and device by name ("cpu", "cuda:0")."""

    sizes: tuple[SizeLike, ...]
    strides: tuple[SizeLike, ...]
    dtype: str
    device: str = "cpu"
    requires_grad: bool = False
    offset: SizeLike = 0


def contiguous_strides(sizes: tuple[SizeLike, ...]) -> tuple[SizeLike, ...]:
    """Row-major strides as torch gives them: a dimension of size 0 counts as 1."""
    strides: list[SizeLike] = []
    step: SizeLike = 1
    for size in reversed(sizes):
        strides.append(step)
        step = mul(step, 1 if size == 0 else size)
    return tuple(reversed(strides))
