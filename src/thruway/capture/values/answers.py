"""Guards that ask Python: that a cell is still empty, that a set still gives its members in one order, that nobody registered classes."""

from __future__ import annotations

import abc
import sys
import types
from dataclasses import dataclass
from typing import Any

from thruway.capture.effects import Write, each_step
from thruway.capture.state import State
from thruway.capture.values.base import CellValue, SetValue
from thruway.frame.source import Cell


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing is in the cell; `key` is what the guard is shown by."""

    key: str = "an empty cell"

    def __call__(self, cell: types.CellType) -> bool:
        try:
            return cell.cell_contents is cell
        except ValueError:
            return True


@dataclass(frozen=True, slots=True)
class SameOrder:
    """Equal sets may give their members in another order, which hangs on how they came to be."""

    key: tuple[Any, ...]

    def __call__(self, found: Any) -> bool:
        return tuple(found) == self.key


@dataclass(frozen=True, slots=True)
class SameRegistrations:
    """`ABCMeta.register` changes what `isinstance` says; its counter tells."""

    key: object

    def __call__(self, nothing: object) -> bool:
        return abc.get_cache_token() == self.key


@dataclass(frozen=True, slots=True)
class SameSubclasses:
    """The class has these direct subclasses."""

    key: tuple[type, ...]

    def __call__(self, found: type) -> bool:
        return tuple(type.__subclasses__(found)) == self.key


@dataclass(frozen=True, slots=True)
class AnotherCell:
    """The cell found is not this one."""

    key: types.CellType

    def __call__(self, found: types.CellType) -> bool:
        return found is not self.key


def guard_cells_apart(state: State) -> None:
    """Cells found in different functions stay different ones where one of them is written."""
    found = [value for value in state.by_id.values() if isinstance(value, CellValue) and value.real is not None]
    for step in each_step(state.effects.steps):
        if isinstance(step, Write) and step.operation == "cell_store" and (written := step.operands[0]).real is not None:
            for other in found:
                if other is not written:
                    _guard_apart(state, written, other)


def _guard_apart(state: State, one: CellValue, other: CellValue) -> None:
    """The compiled function's own cells never change."""
    match isinstance(one.source, Cell), isinstance(other.source, Cell):
        case True, True:
            pass
        case True, False:
            state.guard("answer", other.source, AnotherCell(one.real))
        case False, True:
            state.guard("answer", one.source, AnotherCell(other.real))
        case _:
            state.guard("not_same_object", one.source, other.source)


def guard_empty(state: State, cell: CellValue) -> None:
    """The cell found outside is empty: it may be filled at a later call."""
    state.guard("answer", state.made(cell.real) if isinstance(cell.source, Cell) else cell.source, Empty())


def guard_order(state: State, value: SetValue) -> None:
    """The members of a set found outside are read in order."""
    if value.source is not None and value.found_order is not None and len(value.found_order) > 1:
        state.guard("answer", value.source, SameOrder(value.found_order))


def guard_registrations(state: State, wanted: type) -> None:
    """Something was asked of an abstract class. Nobody registers with those of libraries after the fact; with their own users do."""
    if isinstance(wanted, abc.ABCMeta) and wanted.__module__.split(".")[0] not in (*sys.stdlib_module_names, "torch"):
        if not any(isinstance(one.expected, SameRegistrations) for one in state.guards.values()):
            state.guard("answer", state.made(None), SameRegistrations(abc.get_cache_token()))
