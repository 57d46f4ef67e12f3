"""Prints one Kernel as C: `int NAME(void **pointers, const long long *sizes)` and the functions it runs over pieces of its work.

Four shapes, by where memory runs on: *rows* (the last loop of a phase is vectorised: pointwise kernels, reductions along
contiguous data), *tiles* (a pointwise kernel that reads along one axis and writes along another), *lanes* (neighbouring outer
points side by side: reductions across rows), and *grid* (no outer axes: each phase is spread over the threads by itself).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thruway.codegen.flatten import flatten
from thruway.codegen.grid_c import Grid
from thruway.codegen.lanes_c import Lanes
from thruway.codegen.moments_c import hold_rows
from thruway.codegen.printer import Printer
from thruway.codegen.rows_c import Rows
from thruway.codegen.shape import choose_shape
from thruway.codegen.tiles_c import Tiles
from thruway.core.sizes import Symbol
from thruway.core.target import Target
from thruway.loops.ir import Buffer, Kernel
from thruway.schedule.space import unsafe_axes

SHAPES: dict[str, type[Printer]] = {"rows": Rows, "tiles": Tiles, "lanes": Lanes, "grid": Grid}


@dataclass(frozen=True, slots=True)
class KernelText:
    """The C text, and which storages and size symbols its pointers and sizes are."""

    text: str
    pointers: tuple[str, ...]
    sizes: tuple[Symbol, ...]


def print_kernel(name: str, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> KernelText:
    """The C text of `kernel` under `name`."""
    flat = flatten(kernel, buffers, unsafe_axes(kernel))
    shape = choose_shape(flat)
    printer = SHAPES[shape](name, hold_rows(flat, in_place=shape != "lanes"), target)
    return KernelText(printer.text(), printer.pointers, printer.symbols)
