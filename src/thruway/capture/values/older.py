"""Objects, and global names, that a side of a branch changes though they are older: each side's content is kept, and merged like a local."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thruway.capture.effects import ALWAYS
from thruway.capture.state import Namespace, State
from thruway.capture.values.base import CellValue, DictValue, ListValue, SetValue, Unknown, Value

Kept = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GlobalSlot:
    """A global name, where a side writes it."""

    space: Namespace
    name: str


Target = Value | GlobalSlot


def age_to_change(state: State, target: Value) -> int:
    """For the undo log, before `target` changes, which is noted as it was. What can be seen outside is changed by steps of the side."""
    if not state.sides or target.age >= state.effects.oldest or not isinstance(target, CellValue | ListValue | DictValue | SetValue):
        return target.age
    state.sides[-1].changed.setdefault(target, keep(target))
    return ALWAYS


def note_global(state: State, slot: GlobalSlot) -> int:
    """The same for a global name."""
    if state.sides:
        state.sides[-1].changed.setdefault(slot, keep(slot))
    return ALWAYS


def keep(target: Target) -> Kept:
    """The content, and the object that holds it."""
    match target:
        case CellValue():
            return target.content, target.real
        case GlobalSlot():
            return (target.space.values.get(target.name),)
        case ListValue():
            return target.items, target.items if isinstance(target.items, Unknown) else list(target.items)
        case DictValue():
            return target.items, dict(target.items), set(target.removed), target.complete
        case SetValue():
            return target.items, dict(target.items)
        case _:
            raise TypeError(f"not an object with content: {target!r}")


def put_back(target: Target, kept: Kept) -> None:
    """Makes `target` hold again what it held, in the same object, which the undo log knows."""
    match target:
        case CellValue():
            target.content, target.real = kept
        case GlobalSlot():
            if kept[0] is None:
                target.space.values.pop(target.name, None)
            else:
                target.space.values[target.name] = kept[0]
        case ListValue():
            target.items = kept[0]
            if not isinstance(target.items, Unknown):
                target.items[:] = kept[1]
        case DictValue() | SetValue():
            target.items = kept[0]
            target.items.clear()
            target.items.update(kept[1])
            if isinstance(target, DictValue):
                target.removed, target.complete = kept[2:]
        case _:
            raise TypeError(f"not an object with content: {target!r}")
