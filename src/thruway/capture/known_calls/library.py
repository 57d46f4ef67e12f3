"""The standard library: functools, contextlib, dataclasses, collections, copy, weakref."""

from __future__ import annotations

import copy
import dataclasses
import functools

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import (
    Constant, DictValue, FunctionValue, ListValue, SetValue, SliceValue, TupleValue, Value,
)
from thruway.capture.values.iterate import items_of
from thruway.capture.values.types_ import python_type

Args = list[Value]
Kwargs = dict[str, Value]


def reduce(state: State, args: Args, kwargs: Kwargs) -> Value:
    function, iterable, *initial = args
    items = items_of(state, iterable)
    result = initial[0] if initial else items.pop(0)
    for item in items:
        result = state.call(function, [result, item])
    return result


def dataclass_fields(state: State, args: Args, kwargs: Kwargs) -> Value:
    """The Field objects; they are part of the class."""
    cls = args[0].value if isinstance(args[0], Constant) else python_type(args[0])
    return TupleValue(tuple(Constant(field) for field in dataclasses.fields(cls)))


def shallow_copy(state: State, args: Args, kwargs: Kwargs) -> Value:
    (value,) = args
    match value:
        case Constant() | TupleValue() | FunctionValue() | SliceValue():
            return value
        case ListValue():
            return ListValue(list(value.items), cls=value.cls, options=value.options)
        case SetValue():
            return SetValue(dict(value.items), cls=value.cls)
        case DictValue() if value.complete:
            made = DictValue(dict(value.items), cls=value.cls)
            made.factory = value.factory
            return made
        case _:
            raise unsupported(state, "TW101", f"copy.copy of {python_type(value).__name__}")


ROWS = {functools.reduce: reduce, dataclasses.fields: dataclass_fields, copy.copy: shallow_copy}
