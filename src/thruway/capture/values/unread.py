"""Items of a list or deque found outside whose length changes between calls: those at a fixed distance from its start or its end, and those appended.

That there are so many items is asked of the symbolic length, and holds for the entry. Where an item stands is a Source from the start or the end.
"""

from __future__ import annotations

from typing import Any

from thruway.capture.effects import ALWAYS
from thruway.capture.state import State
from thruway.capture.tensors import to_trace
from thruway.capture.values.base import Constant, ListValue, SizeValue, SliceValue, UnreadList, Value, is_plain_size
from thruway.capture.values.constants import from_python
from thruway.capture.values.errors import raise_error
from thruway.capture.wrap import wrap
from thruway.frame.source import Item
from thruway.shapes.symbolic import bare


def unread_length(state: State, target: UnreadList) -> Value:
    """A number that changes between calls, as the length does."""
    return from_python(state, _length(target))


def _length(target: UnreadList) -> Any:
    return _left(target) + len(_appended(target))


def _left(target: UnreadList) -> Any:
    """How many of the items that were found are still there."""
    return to_trace(target.count()) - target.dropped


def _appended(target: UnreadList) -> tuple[Value, ...]:
    if target.appended is None:
        raise target.refuse()
    return target.appended


def append_unread(state: State, target: UnreadList, value: Value) -> None:
    """In a side of a branch it is not known whether the item is added. A full deque loses its first one."""
    before = target.appended, target.dropped

    def undo() -> None:
        target.appended, target.dropped = before
    state.effects.remember(undo, ALWAYS)
    limit = target.options.get("maxlen")
    if before[0] is None or state.sides:
        target.appended = None
        return
    if limit is not None and _length(target) >= limit.value:
        if not _left(target) > 0:
            raise target.refuse()
        target.dropped += 1
    target.appended = (*before[0], value)


def unread_item(state: State, target: UnreadList, index: int) -> Value:
    """`target[index]`."""
    appended = _appended(target)
    if -len(appended) <= index < 0:
        return appended[index]
    place = index + len(appended) if index < 0 else index + target.dropped
    if _left(target) >= -place if index < 0 else to_trace(target.count()) > place:
        return _found(state, target, place)
    if index < 0:
        raise_error(state, IndexError, f"{target.cls.__name__} index out of range")
    raise target.refuse()


def _found(state: State, target: UnreadList, place: int) -> Value:
    """The item that the container came with at `place`, counted from its end where negative. At another call two places may be one."""
    for other in target.places:
        start, end = max(place, other), min(place, other)
        if start >= 0 > end and not (found := to_trace(target.count()) + end) > start:
            bool(found == start)
    target.places.add(place)
    return wrap(state, target.real[place], Item(target.source, place))


def unread_slice(state: State, target: UnreadList, start: int | None, stop: int | None) -> Value:
    """`target[start:stop]` where both count from the same side."""
    begin = start or 0
    end = 0 if stop is None and begin < 0 else stop
    if end is None or target.cls is not list or (begin < 0) != (end < 0 or stop is None):
        raise target.refuse()
    places = range(begin, end)
    if places and not (_length(target) >= -begin if begin < 0 else to_trace(target.count()) >= end):
        raise target.refuse()
    return ListValue([unread_item(state, target, one) for one in places])


def place_in(target: UnreadList, key: Value) -> int | None:
    """An index or a bound of a slice as a number, from the end where it is made of the length; None for None."""
    match key:
        case SizeValue() if is_plain_size(key.size):
            found = bare(key.size - _length(target))
            if isinstance(found, int) and found < 0:
                return found
        case Constant(value=int() | None):
            return key.value
    raise target.refuse()


def read_unread(state: State, target: UnreadList, key: Value) -> Value:
    """`target[key]`."""
    if not isinstance(key, SliceValue):
        place = place_in(target, key)
        if place is None:
            raise target.refuse()
        return unread_item(state, target, place)
    if place_in(target, key.step) not in (None, 1):
        raise target.refuse()
    return unread_slice(state, target, place_in(target, key.start), place_in(target, key.stop))
