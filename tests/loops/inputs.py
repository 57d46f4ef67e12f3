"""Tensors that tests feed to operators: every dtype, with the values that go wrong, and layouts that are not row-major."""

from __future__ import annotations

import math

import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
NUMBERS = FLOATS + (torch.int64, torch.int32, torch.uint8)
ALL = NUMBERS + (torch.bool,)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, math.inf, -math.inf, math.nan, 1e-30, 1e30, 65504.0, 7e4, 2.0**-24)


def name_of(x: object) -> str:
    return str(x).removeprefix("torch.").removeprefix("aten.")


def random(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers times 3; integers around 0 (wrapped where unsigned)."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    x = torch.randn(shape, generator=generator) * 3
    return x.to(dtype) if dtype.is_floating_point else (x > 0) if dtype == torch.bool else (x * 9).round().long().to(dtype)


def special(dtype: torch.dtype) -> torch.Tensor:
    """Signed zeros, infinities, NaN, values that overflow 16-bit floats; for integers the ends of their range."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.tensor([limits.min, limits.max, 0, 1, 2, 7, limits.min + 1, limits.max - 1], dtype=dtype)


def layouts(dtype: torch.dtype) -> list[torch.Tensor]:
    """The same kind of values as 0-dimensional, empty, transposed, strided, broadcast and plain tensors."""
    return [
        random(dtype, 4, 5), random(dtype, 1)[0], random(dtype, 0, 3), random(dtype, 5, 4).t(), random(dtype, 4, 10)[:, ::2],
        random(dtype, 1, 5).expand(4, 5), random(dtype, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    ]
