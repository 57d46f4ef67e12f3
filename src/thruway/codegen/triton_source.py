"""A kernel as Triton text, and the ways to launch it."""

from __future__ import annotations

from dataclasses import dataclass

from thruway.core import sizes
from thruway.core.sizes import SizeLike

RESIDENT = 16384            # elements of a row that one program keeps in registers


@dataclass(frozen=True, slots=True)
class Config:
    """One way to launch: X outer points and R inner elements per program, and its warps. Of a matrix product X rows and R columns, `depth`
    inner elements at a time, so many steps' loads under way as `stages` says."""

    x: int
    r: int
    warps: int
    depth: int = 0
    stages: int = 0


@dataclass(frozen=True, slots=True)
class TritonSource:
    """`pointers` name buffers in argument order; a kernel with `checks` takes an int32 failure flag after them, then the values of
    `sizes`. The grid is ceil(points / X) programs. `row` is the inner extent, or None
    where the kernel has no R. `configs`: the cost model's guess first, then what autotuning may try. `tiles`: of a matrix product its
    batch, rows and columns, of which each program makes a tile. `wide`: its indices and `sizes` have 64 bits; else `reach` are the symbolic
    sizes that have to stay below FAR."""

    symbol: str
    text: str
    pointers: tuple[str, ...]
    checks: bool
    sizes: tuple[str, ...]
    points: SizeLike
    row: SizeLike | None
    configs: tuple[Config, ...]
    tiles: tuple[SizeLike, SizeLike, SizeLike] | None = None
    wide: bool = False
    reach: tuple[SizeLike, ...] = ()

    def programs(self, config: Config) -> tuple[SizeLike, int]:
        """Points to cover, and how many of them a program does."""
        return (self.points, config.x) if self.tiles is None else (tile_count(self.tiles, config), 1)

    def constants(self, config: Config) -> tuple[tuple[str, int], ...]:
        """What the text leaves open, as `config` has it."""
        if self.tiles is not None:
            return ("X", config.x), ("R", config.r), ("D", config.depth)
        return (("X", config.x),) if self.row is None else (("X", config.x), ("R", config.r))


def tile_count(tiles: tuple[SizeLike, SizeLike, SizeLike], config: Config) -> SizeLike:
    """The programs of a matrix product."""
    batch, rows, columns = tiles
    down, across = (sizes.floordiv(sizes.add(n, side - 1), side) for n, side in ((rows, config.x), (columns, config.r)))
    return sizes.product((batch, down, across))
