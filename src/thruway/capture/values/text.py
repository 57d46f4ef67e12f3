"""str(), repr(), format() and f-strings of known values."""

from __future__ import annotations

import types
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.attribute import class_attribute_source
from thruway.capture.values.base import Constant, DictValue, ObjectValue, TupleValue, Value, ViewValue
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import NotConstant, as_python
from thruway.capture.values.errors import raise_real
from thruway.capture.values.mapping import complete
from thruway.capture.values.types_ import python_type
from thruway.capture.wrap import wrap

CONVERSIONS = {"s": str, "r": repr, "a": ascii}


def format_value(state: State, value: Value, conversion: str | None, spec: str) -> Value:
    """`f"{value!conversion:spec}"`."""
    if isinstance(value, ObjectValue) and not isinstance(value.storage, Constant):
        value = text_of(state, value, "__repr__" if conversion == "r" else "__str__")
    try:
        known = _known(state, value)
    except NotConstant:
        raise unsupported(state, "TW104", "formatting", python_type(value).__name__) from None
    try:
        return Constant(format(CONVERSIONS[conversion](known) if conversion else known, spec))
    except Exception as error:
        raise_real(state, error)


def text_of(state: State, value: Value, slot: str) -> Value:
    """`str(value)` or `repr(value)`."""
    if isinstance(value, ObjectValue):
        found = state.type_lookup(value.cls, slot)
        if found is object.__str__:
            found, slot = state.type_lookup(value.cls, "__repr__"), "__repr__"
        if isinstance(found, types.FunctionType):
            return run_inline(state, call(state, wrap(state, found, class_attribute_source(value.cls, slot), True), [value], {}))
        if issubclass(value.cls.value, BaseException):
            return _exception_text(state, value, slot)
    try:
        known = _known(state, value)
    except NotConstant:
        raise unsupported(state, "TW104", slot.strip("_"), python_type(value).__name__) from None
    return Constant(repr(known) if slot == "__repr__" else str(known))


def _known(state: State, value: Value) -> Any:
    """The object to be printed; of a dict found outside everything is read."""
    if isinstance(value, DictValue | ViewValue):
        complete(state, value if isinstance(value, DictValue) else value.mapping)
    return as_python(state, value)


def _exception_text(state: State, value: ObjectValue, slot: str) -> Value:
    args = as_python(state, TupleValue(value.new_args))
    base = next(b for b in value.cls.value.__mro__ if b.__module__ == "builtins")
    text = str(base(*args)) if slot == "__str__" else f"{value.cls.value.__name__}{args if len(args) != 1 else f'({args[0]!r})'}"
    return Constant(text)
