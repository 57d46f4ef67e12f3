"""`len()`: of a dict found outside only the length is guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.state import Inline, State
from thruway.capture.tensors import call_torch, to_trace
from thruway.capture.values.arrays import array_length
from thruway.capture.values.attribute import bind
from thruway.capture.values.base import (
    ArrayValue, Constant, DictValue, ListValue, ObjectValue, SetValue, TensorValue, TextValue, TupleValue, UnreadList, Value, ViewValue,
)
from thruway.capture.values.call import call, call_pure
from thruway.capture.values.constants import from_python
from thruway.capture.values.errors import raise_error
from thruway.capture.values.mapping import complete
from thruway.capture.values.torch_function import overridden_operator
from thruway.capture.values.types_ import python_type
from thruway.capture.wrap import wrap
from thruway.frame.guard import MISSING


def length_of(state: State, value: Value) -> Value | Inline:
    """`len(value)`."""
    match value:
        case UnreadList():
            return _unread_length(state, value)
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
        state.guard("length", value.source, dict.__len__(value.real))
        return Constant(dict.__len__(value.real))
    complete(state, value)
    return Constant(len(value.items))


def _unread_length(state: State, value: UnreadList) -> Value:
    """A number that changes between calls, as the list's length does."""
    if value.added is None:
        raise value.refuse()
    return from_python(state, to_trace(value.count()) + value.added)


def _tensor_length(state: State, value: TensorValue) -> Value:
    if value.trace.dim() == 0:
        raise_error(state, TypeError, "len() of a 0-d tensor")
    return call_torch(state, torch.Tensor.size, [value, Constant(0)], {})
