"""The type of a Value, as a Value."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from thruway.capture.state import State
from thruway.capture.values.base import (
    CellValue, Constant, DictValue, FunctionValue, GeneratorValue, IteratorValue, ListValue, MethodValue, ObjectValue, PartialValue, SetValue,
    SizeValue, SliceValue, SuperValue, TensorValue, TupleValue, Value, ViewValue,
)

FIXED: dict[type, type] = {
    FunctionValue: types.FunctionType, MethodValue: types.MethodType, PartialValue: functools.partial, SliceValue: slice, CellValue: types.CellType,
    GeneratorValue: types.GeneratorType, SuperValue: super,
}
VIEWS = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
SIZES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def python_type(value: Value) -> type:
    """The exact type that the object has."""
    match value:
        case Constant():
            return type(value.value)
        case ObjectValue():
            return value.cls.value
        case TensorValue():
            return torch.Tensor if value.real is None else type(value.real)
        case ListValue() | TupleValue() | DictValue() | SetValue():
            return value.cls
        case SizeValue():
            return SIZES[type(value.size)]
        case ViewValue():
            return VIEWS[value.kind]
        case IteratorValue():
            return value.python_type
        case MethodValue() if isinstance(value.function, Constant):
            return types.BuiltinMethodType
        case _:
            return FIXED[type(value)]


def type_value(state: State, value: Value) -> Constant:
    """`type(value)` as a value."""
    if isinstance(value, ObjectValue):
        return value.cls
    return state.class_of(python_type(value), value.source)


def is_instance(value: Value, cls: Any) -> bool:
    return issubclass(python_type(value), cls)
