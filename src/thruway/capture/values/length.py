"""`len()`: of a dict found outside only the length is guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.state import Inline, State
from thruway.capture.tensors import call_torch
from thruway.capture.values.arrays import array_length
from thruway.capture.values.attribute import bind
from thruway.capture.values.base import (
    ArrayValue, Constant, DictValue, ListValue, ObjectValue, SetValue, TensorValue, TextValue, TupleValue, UnreadList, Value, ViewValue,
)
from thruway.capture.values.call import call, call_pure
from thruway.capture.values.errors import raise_error
from thruway.capture.values.mapping import complete
from thruway.capture.values.torch_function import overridden_operator
from thruway.capture.values.types_ import python_type
from thruway.capture.values.unread import unread_length
from thruway.capture.wrap import number_of_items, wrap
from thruway.frame.guard import MISSING
from thruway.frame.source import Length


def length_of(state: State, value: Value) -> Value | Inline:
    """`len(value)`."""
    match value:
        case UnreadList():
            return unread_length(state, value)
        case ListValue() | TupleValue() | SetValue() | TextValue():
            return Constant(len(value.items))
        case DictValue():
            return _dict_length(state, value)
        case ViewValue():
            return _dict_length(state, value.mapping)
        case TensorValue():
            return _tensor_length(state, value)
        case ArrayValue():
            return array_length(state, value)
        case Constant():
            return call_pure(state, len, [value], {})
        case ObjectValue():
            found = state.type_lookup(value.cls, "__len__")
            if found is not MISSING and value.storage is not None and (not hasattr(found, "__code__") or found is torch.Tensor.__len__):
                answer = overridden_operator(state, len, value) if state.overrides else None
                return length_of(state, value.storage) if answer is None else answer
            if found is not MISSING:
                method = bind(state, found, value, value.cls, "__len__")
                return call(state, wrap(state, checked_length, state.made(checked_length), True), [method], {})
    raise_error(state, TypeError, f"object of type '{python_type(value).__name__}' has no len()")


def checked_length(method: Callable[[], Any]) -> int:
    """What `len()` makes of the answer of a `__len__`. Captured code calls it, so that a break in the method resumes here."""
    length = method()
    if not isinstance(length, int):
        raise TypeError(f"'{type(length).__name__}' object cannot be interpreted as an integer")
    if length < 0:
        raise ValueError("__len__() should return >= 0")
    return length


def _dict_length(state: State, value: DictValue) -> Value:
    if not value.complete and not value.items and not value.removed and value.source is not None:
        if value.cls is dict and state.dynamic and (Length(value.source, "dict"), None) in state.dynamic:
            return number_of_items(state, value.source, dict, len(value.real))
        state.guard("length", value.source, dict.__len__(value.real))
        return Constant(dict.__len__(value.real))
    complete(state, value)
    return Constant(len(value.items))


def _tensor_length(state: State, value: TensorValue) -> Value:
    if value.trace.dim() == 0:
        raise_error(state, TypeError, "len() of a 0-d tensor")
    return call_torch(state, torch.Tensor.size, [value, Constant(0)], {})
