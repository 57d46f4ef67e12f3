"""The truth of a Value: what `if`, `while`, `not`, `and`, `or`, `bool()` ask for."""

from __future__ import annotations

import types

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import to_trace
from thruway.capture.values.arrays import array_truth
from thruway.capture.values.attribute import class_attribute_source
from thruway.capture.values.base import (
    ArrayValue, Constant, DictValue, ListValue, ObjectValue, SetValue, SizeValue, TensorValue, TextValue, TupleValue, UnreadList, Value, ViewValue,
)
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.errors import raise_error
from thruway.capture.values.mapping import complete
from thruway.capture.values.overriding import plain_part
from thruway.capture.values.unread import unread_length
from thruway.capture.wrap import wrap
from thruway.frame.guard import MISSING
from thruway.shapes.known_elements import known_number


def truth(state: State, value: Value) -> bool:
    match value:
        case Constant() | TextValue():
            return bool(value.value)
        case UnreadList():
            return bool(value.appended) or bool(to_trace(unread_length(state, value)) > 0)
        case ListValue() | TupleValue() | SetValue():
            return bool(value.items)
        case DictValue():
            return _dict_truth(state, value)
        case SizeValue():
            return bool(value.size)
        case TensorValue():
            if (found := known_number(value.trace)) is None:
                raise unsupported(state, "TW103", "the truth of a tensor")
            return bool(found)
        case ArrayValue():
            return array_truth(state, value)
        case ObjectValue():
            return _object_truth(state, value)
        case ViewValue():
            return _dict_truth(state, value.mapping)
        case _:
            return True


def _dict_truth(state: State, value: DictValue) -> bool:
    """Emptiness of a dict found outside is guarded as such; its keys are not read."""
    if value.complete or value.items or value.removed:
        complete(state, value)
        return bool(value.items)
    state.guard("truth", value.source, bool(dict.__len__(value.real)))
    return bool(dict.__len__(value.real))


def _object_truth(state: State, value: ObjectValue) -> bool:
    for name in ("__bool__", "__len__"):
        found = state.type_lookup(value.cls, name)
        if found is MISSING:
            continue
        if isinstance(found, types.FunctionType):
            return _checked(state, name, run_inline(state, call(state, wrap(state, found, class_attribute_source(value.cls, name), True), [value], {})))
        if value.storage is not None:
            return truth(state, plain_part(state, value))
        raise unsupported(state, "TW100", f"the truth of {value.cls.value.__name__}")
    return True


def _checked(state: State, slot: str, answer: Value) -> bool:
    """What a user's own `__bool__` or `__len__` answers, or the error that Python raises about it."""
    if not isinstance(answer, Constant):
        return truth(state, answer)
    found, name = answer.value, type(answer.value).__name__
    if slot == "__bool__" and not isinstance(found, bool):
        raise_error(state, TypeError, f"__bool__ should return bool, returned {name}")
    if slot == "__len__":
        if not isinstance(found, int):
            raise_error(state, TypeError, f"'{name}' object cannot be interpreted as an integer")
        if found < 0:
            raise_error(state, ValueError, "__len__() should return >= 0")
    return bool(found)
