"""The Plan: fused kernels and library calls in order, where each buffer lives and how long, and what each choice should gain."""

from __future__ import annotations

from dataclasses import dataclass

from thruway.core.sizes import SizeLike
from thruway.loops.ir import Buffer, Extern, Kernel


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a buffer lives. `where`: "input", "weight", "constant", "output" (fresh tensor), "arena" (at `offset` bytes),
    "derived" (kept between calls), "returned" (allocated by the library call that makes it), "alias" (of `of`)."""

    where: str
    offset: SizeLike = 0
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """One choice of the scheduler with its predicted gain in bytes moved and microseconds; `report` sets the measurement beside it."""

    what: str
    bytes_saved: int
    microseconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    inputs: tuple[str, ...]
    buffers: dict[str, Buffer]
    derived: tuple[Kernel | Extern, ...]
    steps: tuple[Kernel | Extern, ...]
    outputs: tuple[str, ...]
    placements: dict[str, Placement]
    arena_bytes: SizeLike
    predictions: tuple[Prediction, ...] = ()
