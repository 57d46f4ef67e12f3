"""Reading and writing the content of dicts, whether made inside or found outside (then key by key, guarded)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.links import Reconsider
from thruway.capture.state import State
from thruway.capture.values.base import DictValue, FunctionValue, InstanceDict, SizeValue, UnknownValue, Value, is_plain_size
from thruway.capture.values.constants import from_python
from thruway.capture.values.effect import record
from thruway.capture.values.older import age_to_change
from thruway.shapes.symbolic import bare

PLAIN_KEYS = (str, int, float, bool, bytes, type(None), type)


def read_key(state: State, mapping: DictValue, key: Any) -> Value | None:
    """The value at `key` (a result of key_of), or None where the dict lacks it; guarded either way."""
    hit = mapping.items.get(key)
    if hit is not None:
        if isinstance(hit[1], UnknownValue):
            raise unsupported(state, "TW103", f"it decides what {key} is")
        return hit[1]
    if mapping.complete or key in mapping.missing or key in mapping.removed:
        return None
    if isinstance(key, FunctionValue) and key.source is not None and key.real is not None:
        return _read_at_function(state, mapping, key)
    if not _is_plain(key):
        complete(state, mapping)
        hit = mapping.items.get(key)
        return hit and hit[1]
    if not dict.__contains__(mapping.real, key):
        state.guard("absent", mapping.source, key)
        mapping.missing.add(key)
        return None
    value = state.wrap(state, dict.__getitem__(mapping.real, key), mapping.item_source(key))
    mapping.items[key] = (from_python(state, key), value)
    return value


def _read_at_function(state: State, mapping: DictValue, key: FunctionValue) -> Value | None:
    """The key is a function found outside, which is looked up by its identity."""
    state.guard("identity", key.source, key.real)
    if not dict.__contains__(mapping.real, key.real):
        state.guard("absent", mapping.source, key.real)
        mapping.missing.add(key)
        return None
    value = state.wrap(state, dict.__getitem__(mapping.real, key.real), mapping.item_source(key.real))
    mapping.items[key] = (key, value)
    return value


def _is_plain(key: Any) -> bool:
    return all(_is_plain(k) for k in key) if isinstance(key, tuple) else not isinstance(key, Value)


def complete(state: State, mapping: DictValue) -> None:
    """Reads every key, in order; the keys are guarded."""
    if mapping.complete:
        return
    real = mapping.real
    has_own_order = isinstance(real, OrderedDict) and len(real) > 1
    keys = tuple(OrderedDict.__iter__(real)) if has_own_order else tuple(dict.keys(real))
    for key in keys:
        if isinstance(key, Value) or not _is_guardable(key):
            raise unsupported(state, "TW114", type(key).__name__)
    state.guard("ordered_keys" if has_own_order else "dict_keys", mapping.source, keys)
    written = mapping.items
    mapping.items = {}
    for key in keys:
        if key in mapping.removed:
            continue
        hit = written.pop(key, None)
        value = state.wrap(state, dict.__getitem__(real, key), mapping.item_source(key)) if hit is None else hit[1]
        mapping.items[key] = (from_python(state, key), value)              # it may have been read with an equal key of another type
    mapping.items.update(written)
    mapping.complete = True


def _is_guardable(key: Any) -> bool:
    return all(_is_guardable(k) for k in key) if type(key) is tuple else isinstance(key, PLAIN_KEYS) or type(key).__module__ in {"torch", "enum"} \
        or not isinstance(key, object) or hasattr(key, "_name_")


def write_key(state: State, mapping: DictValue, key: Any, key_value: Value, value: Value) -> None:
    old = mapping.items.get(key)
    _remember_key(state, mapping, key)
    mapping.items[key] = (old[0] if old else key_value, value)
    if mapping.exposed:
        record_write(state, mapping, "setitem", key_value, value)


class UnreadItems:
    """In place of the items of a dict found outside that was written at a number which changes between calls: whatever looks at them makes capture
    start again, with the number known. `last` is the last pair written so."""

    def __init__(self, site: Any, last: tuple[SizeValue, Value]):
        self.site, self.last = site, last

    def again(self, *args: Any) -> Any:
        raise Reconsider({self.site})

    __iter__ = __len__ = __bool__ = __contains__ = __getitem__ = __setitem__ = __delitem__ = again
    get = keys = values = items = copy = pop = update = clear = again


def is_written_unread(state: State, mapping: DictValue, key: Value) -> bool:
    """Whether `mapping[key] = …` is done without knowing the key."""
    is_found = type(mapping) is DictValue and type(mapping.real) is dict and not mapping.complete and not state.sides
    return is_found and isinstance(key, SizeValue) and is_plain_size(key.size) and ("key", mapping.source) not in state.caution


def write_unread(state: State, mapping: DictValue, key: SizeValue, value: Value) -> None:
    before = mapping.items

    def undo() -> None:
        mapping.items = before
    state.effects.remember(undo, age_to_change(state, mapping))
    mapping.items = UnreadItems(("key", mapping.source), (key, value))
    record_write(state, mapping, "setitem", key, value)


def read_unread_key(mapping: DictValue, key: Value) -> Value | None:
    """What was just written at that number; None where the dict is an ordinary one."""
    if not isinstance(mapping.items, UnreadItems):
        return None
    written, value = mapping.items.last
    is_same = isinstance(key, SizeValue) and is_plain_size(key.size) and bare(key.size) == bare(written.size)
    return value if is_same else mapping.items.again()


def delete_key(state: State, mapping: DictValue, key: Any, key_value: Value) -> None:
    """Removes a key that `read_key` found."""
    remember_items(state, mapping)
    del mapping.items[key]
    if mapping.real is not None:
        mapping.removed.add(key)
    if mapping.exposed:
        record_write(state, mapping, "delitem", key_value)


def record_write(state: State, mapping: DictValue, operation: str, *operands: Value) -> None:
    if isinstance(mapping, InstanceDict):
        operation = {"setitem": "setattr", "delitem": "delattr"}.get(operation, operation)
    record(state, operation, mapping, *operands)


def _remember_key(state: State, mapping: DictValue, key: Any) -> None:
    old = mapping.items.get(key)

    def undo() -> None:
        if old is None:
            del mapping.items[key]
        else:
            mapping.items[key] = old
    state.effects.remember(undo, age_to_change(state, mapping))


def remember_items(state: State, container: Any) -> None:
    """Undo restores `container.items` (and a dict's removed keys) as they are now."""
    state.effects.remember(_restorer(container), age_to_change(state, container))


def _restorer(container: Any) -> Callable[[], None]:
    items = container.items.copy()
    removed = set(container.removed) if isinstance(container, DictValue) else None

    def undo() -> None:
        container.items = items
        if removed is not None:
            container.removed = removed
    return undo
