"""The pairs of a mapping, as `**mapping` and dict.update read them."""

from __future__ import annotations

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.attribute import find_attribute
from thruway.capture.values.base import Constant, DictValue, ObjectValue, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.iterate import items_of
from thruway.capture.values.mapping import complete
from thruway.capture.values.subscript import get_item
from thruway.capture.values.types_ import python_type


def mapping_items(state: State, value: Value) -> list[tuple[Value, Value]]:
    match value:
        case DictValue():
            complete(state, value)
            return list(value.items.values())
        case ObjectValue(storage=DictValue()) if _uses_dict_iteration(state, value):
            return mapping_items(state, value.storage)
        case ObjectValue():
            keys = find_attribute(state, value, "keys")
            if keys is not None:
                return [(key, run_inline(state, get_item(state, value, key))) for key in items_of(state, state.call(keys, []))]
        case Constant() if hasattr(value.value, "keys"):
            return [(Constant(k), Constant(v)) for k, v in dict(value.value).items()]
    raise unsupported(state, "TW105", python_type(value).__name__)


def _uses_dict_iteration(state: State, value: ObjectValue) -> bool:
    base = value.storage.cls
    return all(state.type_lookup(value.cls, name) is base.__dict__.get(name, dict.__dict__[name]) for name in ("keys", "__iter__", "__getitem__"))
