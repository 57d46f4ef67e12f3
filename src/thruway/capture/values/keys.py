"""Dict keys and set members: what Python compares when it looks a Value up."""

from __future__ import annotations

from typing import Any

import numpy

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import (
    ArrayValue, Constant, FunctionValue, MethodValue, ObjectValue, SetValue, SizeValue, TensorValue, TextValue, TupleValue, Value,
)
from thruway.capture.values.errors import raise_error
from thruway.capture.values.constants import specialize


def key_of(state: State, value: Value) -> Any:
    """A hashable that is equal for equal keys: constants by value, other objects by identity where their type leaves hashing alone."""
    match value:
        case Constant():
            try:
                hash(value.value)
            except TypeError:
                raise_error(state, TypeError, f"unhashable type: '{type(value.value).__name__}'")
            return value.value
        case TextValue():
            return value.value
        case SizeValue():
            return specialize(state, value).value
        case TupleValue():
            return tuple(key_of(state, item) for item in value.items)
        case SetValue(cls=cls) if cls is frozenset:
            return frozenset(value.items)
        case TensorValue() | FunctionValue():
            return value
        case MethodValue():
            return MethodKey(key_of(state, value.function), key_of(state, value.owner))
        case ArrayValue() if issubclass(value.cls, numpy.generic):
            raise unsupported(state, "TW114", value.cls.__name__)
        case ObjectValue():
            return _object_key(state, value)
        case _:
            name = getattr(value, "cls", type(value)).__name__
            raise_error(state, TypeError, f"unhashable type: '{name}'")


class MethodKey(tuple):
    """Bound methods are equal where function and owner are."""

    __slots__ = ()

    def __new__(cls, function: Any, owner: Any) -> MethodKey:
        return super().__new__(cls, (function, owner))


def _object_key(state: State, value: ObjectValue) -> Any:
    cls = value.cls
    if state.type_lookup(cls, "__hash__") is object.__hash__ and state.type_lookup(cls, "__eq__") is object.__eq__:
        return value
    if isinstance(value.storage, (TupleValue, Constant)) and value.cls.value.__hash__ is type(value.storage).__hash__:
        return key_of(state, value.storage)
    raise unsupported(state, "TW114", cls.value.__name__)
