"""`mapping.get(key, sentinel)` for any mapping."""

from __future__ import annotations

from thruway.capture.state import State, UserRaise
from thruway.capture.values.base import DictValue, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import read_key
from thruway.capture.values.subscript import get_item


def find_item(state: State, mapping: Value, key: Value) -> Value | None:
    """None where the key is missing."""
    if isinstance(mapping, DictValue):
        return read_key(state, mapping, key_of(state, key))
    try:
        return run_inline(state, get_item(state, mapping, key))
    except UserRaise as raised:
        if issubclass(raised.value.cls.value, KeyError):
            return None
        raise
