"""Objects made inside that a side of a branch changes though they are older: each side's content is kept, and merged like a local."""

from __future__ import annotations

from typing import Any

from thruway.capture.effects import ALWAYS
from thruway.capture.state import State
from thruway.capture.values.base import CellValue, DictValue, ListValue, SetValue, Value

Kept = tuple[Any, Any]


def age_to_change(state: State, target: Value) -> int:
    """For the undo log, before `target` changes. What nobody outside has seen may change: it is noted as it was."""
    if not state.sides or target.exposed or target.age >= state.effects.oldest or not isinstance(target, CellValue | ListValue | DictValue | SetValue):
        return target.age
    state.sides[-1].changed.setdefault(target, keep(target))
    return ALWAYS


def keep(target: Value) -> Kept:
    """The content, and the object that holds it."""
    match target:
        case CellValue():
            return target.content, target.real
        case ListValue():
            return target.items, list(target.items)
        case DictValue() | SetValue():
            return target.items, dict(target.items)
        case _:
            raise TypeError(f"not an object with content: {target!r}")


def put_back(target: Value, kept: Kept) -> None:
    """Makes `target` hold again what it held, in the same object, which the undo log knows."""
    match target:
        case CellValue():
            target.content, target.real = kept
        case ListValue():
            target.items = kept[0]
            target.items[:] = kept[1]
        case DictValue() | SetValue():
            target.items = kept[0]
            target.items.clear()
            target.items.update(kept[1])
        case _:
            raise TypeError(f"not an object with content: {target!r}")
