"""Between Values and plain Python objects: fully known values in, known values out."""

from __future__ import annotations

import collections
from types import MappingProxyType
from typing import Any

import torch

from thruway.capture.state import State
from thruway.capture.values.base import (
    FALSE, NONE, TRUE, ArrayValue, Constant, DictValue, ListValue, ObjectValue, SetValue, SizeValue, SliceValue, TextValue, TupleValue, Value, ViewValue,
)


class NotConstant(Exception):
    """Internal: the value holds something that is not known at capture."""


def as_python(state: State, value: Value) -> Any:
    """The Python object that a fully known value is; containers are fresh. NotConstant where something in it is not known."""
    match value:
        case Constant():
            return value.value
        case SizeValue():
            return specialize(state, value).value
        case TextValue() if value.is_known:
            return value.value
        case TupleValue():
            return make_tuple(value.cls, [as_python(state, item) for item in value.items])
        case ListValue():
            items = [as_python(state, item) for item in value.items]
            return items if value.cls is list else collections.deque(items)
        case SliceValue():
            return slice(*(as_python(state, part) for part in (value.start, value.stop, value.step)))
        case DictValue() if value.complete and value.cls in (dict, collections.OrderedDict):
            return value.cls((as_python(state, k), as_python(state, v)) for k, v in value.items.values())
        case SetValue():
            return value.cls(as_python(state, item) for item in value.items.values())
        case ViewValue() if value.mapping.complete:
            return getattr(as_python(state, value.mapping), value.kind)()
        case ObjectValue(storage=Constant()):
            return value.storage.value
        case ArrayValue() if value.memory.is_known:
            return value.example
        case _:
            raise NotConstant


def make_tuple(cls: type, items: list) -> Any:
    """A tuple of class `cls` from its items: plain, torch.Size, named tuple or structseq."""
    if cls is tuple:
        return tuple(items)
    return cls._make(items) if hasattr(cls, "_make") else cls(items)


def from_python(state: State, obj: Any) -> Value:
    """A value made inside from a plain Python object (containers are copied, leaves kept)."""
    if obj is None:
        return NONE
    if obj is True:
        return TRUE
    if obj is False:
        return FALSE
    cls = type(obj)
    if cls in SIZE_TYPES:
        return SizeValue(obj)
    if isinstance(obj, torch.Tensor):
        return state.by_trace[id(obj)]
    if isinstance(obj, tuple):
        return TupleValue(tuple(from_python(state, item) for item in obj), cls=cls)
    if cls in (list, collections.deque):
        return ListValue([from_python(state, item) for item in obj], cls=cls)
    if cls in (dict, collections.OrderedDict):
        return DictValue({k: (from_python(state, k), from_python(state, v)) for k, v in obj.items()}, cls=cls)
    if cls in (set, frozenset):
        return SetValue({item: from_python(state, item) for item in obj}, cls=cls)
    if cls is slice:
        return SliceValue(*(from_python(state, part) for part in (obj.start, obj.stop, obj.step)))
    if isinstance(obj, MappingProxyType):
        return from_python(state, dict(obj))
    return Constant(obj)


SIZE_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)


def specialize(state: State, value: SizeValue) -> Constant:
    """The size's value at this call; torch's SymInt protocol records the relation that must hold."""
    size = value.size
    match size:
        case torch.SymInt():
            return Constant(int(size))
        case torch.SymFloat():
            return Constant(float(size))
        case _:
            return Constant(bool(size))
