"""A fold: what is said of a stack of equal blocks of which only some are compiled, and the others' steps are copies.

`graph.repeats` makes it from the captured graph, `codegen.unfold` reads it. Blocks are numbered as in the whole graph.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """`missing` blocks after block `block`, which is compiled like `block - 1` is, and like the missing ones would be."""

    block: int
    missing: int


@dataclass(frozen=True, slots=True)
class Fold:
    """`inputs`: for each input of the folded graph its position among the `total` inputs of the whole one; `outputs` likewise. `blocks[k]`: the
    positions of the inputs that block k alone reads, in the same order for every block; `leaving[k]` those of the outputs that every block gives.
    `gaps` in order."""

    inputs: tuple[int, ...]
    total: int
    outputs: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    leaving: tuple[tuple[int, ...], ...]
    gaps: tuple[Gap, ...]
