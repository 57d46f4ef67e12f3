"""Writes to lists and sets (dicts: `mapping`): undoable, and effects where the object is older than the call or already referred to."""

from __future__ import annotations

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import CellValue, ListValue, SetValue, UnreadList, Value, in_set_order
from thruway.capture.values.effect import record
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import remember_items
from thruway.capture.values.older import age_to_change
from thruway.capture.values.unread import append_unread

MOST_ITEMS = 10_000             # in a list within a side of a branch, which may grow it for ever and never be taken


def append_item(state: State, target: ListValue, value: Value) -> None:
    if isinstance(target, UnreadList):
        append_unread(state, target, value)
    else:
        items = target.items
        state.effects.remember(items.pop, age_to_change(state, target))
        items.append(value)
    if target.exposed:
        record(state, "append", target, value)


def extend_list(state: State, target: ListValue, values: list[Value]) -> None:
    if isinstance(target, UnreadList):
        for value in values:
            append_item(state, target, value)
        return
    replace_items(state, target, target.items + values)


def replace_items(state: State, target: ListValue, items: list[Value]) -> None:
    """The list's whole content becomes `items`."""
    if state.sides and len(items) > MOST_ITEMS:
        raise unsupported(state, "TW103", "a side of the branch makes a list long")
    old = target.items

    def undo() -> None:
        target.items = old
    state.effects.remember(undo, age_to_change(state, target))
    target.items = items
    if target.exposed:
        record(state, "replace", target, *items)


def add_member(state: State, target: SetValue, value: Value) -> None:
    key = key_of(state, value)
    if key not in target.items:
        remember_items(state, target)
        target.items = in_set_order(target.items | {key: value})
        if target.exposed:
            record(state, "add", target, value)


def update_set(state: State, target: SetValue, values: list[Value]) -> None:
    for value in values:
        add_member(state, target, value)


def remove_member(state: State, target: SetValue, value: Value) -> None:
    remember_items(state, target)
    del target.items[key_of(state, value)]
    if target.exposed:
        record(state, "discard", target, value)


def write_cell(state: State, cell: CellValue, value: Value | None) -> None:
    """`value` None empties the cell: what the real one holds is then not its content any more."""
    old = cell.content, cell.real

    def undo() -> None:
        cell.content, cell.real = old
    state.effects.remember(undo, age_to_change(state, cell))
    cell.content = value
    if value is None:
        cell.real = None
    if cell.exposed:
        record(state, "cell_store", cell, *([value] if value is not None else []))
