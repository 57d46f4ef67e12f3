"""The truth of a Value: what `if`, `while`, `not`, `and`, `or`, `bool()` ask for."""

from __future__ import annotations

import types

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.attribute import class_attribute_source
from thruway.capture.values.base import (
    Constant, DictValue, ListValue, ObjectValue, SetValue, SizeValue, TensorValue, TupleValue, Value, ViewValue,
)
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.mapping import complete
from thruway.capture.wrap import wrap
from thruway.frame.guard import MISSING


def truth(state: State, value: Value) -> bool:
    match value:
        case Constant():
            return bool(value.value)
        case ListValue() | TupleValue() | SetValue():
            return bool(value.items)
        case DictValue():
            return _dict_truth(state, value)
        case SizeValue():
            return bool(value.size)
        case TensorValue():
            raise unsupported(state, "TW103", "the truth of a tensor")
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
            return truth(state, run_inline(state, call(state, wrap(state, found, class_attribute_source(value.cls, name), True), [value], {})))
        if value.storage is not None:
            return truth(state, value.storage)
        raise unsupported(state, "TW100", f"the truth of {value.cls.value.__name__}")
    return True
