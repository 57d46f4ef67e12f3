"""str(), repr(), format() and f-strings of known values."""

from __future__ import annotations

import types
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.attribute import class_attribute_source
from thruway.capture.values.base import Constant, DictValue, ListValue, ObjectValue, TextValue, TupleValue, Value, ViewValue
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import NotConstant, as_python
from thruway.capture.values.errors import raise_error, raise_real
from thruway.capture.values.held_text import has_numbers, held_text, is_held, number_in
from thruway.capture.values.mapping import complete
from thruway.capture.values.types_ import python_type
from thruway.capture.wrap import wrap

CONVERSIONS = {"s": str, "r": repr, "a": ascii}


def format_value(state: State, value: Value, conversion: str | None, spec: str) -> Value:
    """`f"{value!conversion:spec}"`."""
    own = state.type_lookup(value.cls, "__format__") if isinstance(value, ObjectValue) and conversion is None else None
    if isinstance(own, types.FunctionType):
        return run_inline(state, call(state, wrap(state, own, class_attribute_source(value.cls, "__format__"), True), [value, Constant(spec)], {}))
    if own is object.__format__ and spec:
        raise_error(state, TypeError, f"unsupported format string passed to {value.cls.value.__name__}.__format__")
    if is_held(value):
        return _held_format(state, value, conversion, spec)
    if has_numbers(value) and not spec.endswith("c") and (made := _number_format(state, value, conversion, spec)) is not None:
        return made
    if isinstance(value, ObjectValue) and not isinstance(value.storage, Constant):
        if conversion == "a":
            raise unsupported(state, "TW104", "ascii", python_type(value).__name__)
        value, conversion = text_of(state, value, "__repr__" if conversion == "r" else "__str__"), None
    if _holds_objects(value):
        value, conversion = Constant(_composed(state, value)), None
    try:
        known = _known(state, value)
    except NotConstant:
        raise unsupported(state, "TW104", "formatting", python_type(value).__name__) from None
    try:
        return Constant(format(CONVERSIONS[conversion](known) if conversion else known, spec))
    except Exception as error:
        raise_real(state, error)


def _held_format(state: State, value: Value, conversion: str | None, spec: str) -> Value:
    if isinstance(value, TextValue) and not spec and conversion in (None, "s"):
        return value
    shown = number_in(state, value) if conversion is None else held_text(state, CONVERSIONS[conversion], [value])
    made = held_text(state, format, [shown, Constant(spec)]) if shown is not None and not spec.endswith("c") else None
    if made is None:
        raise unsupported(state, "TW104", "formatting", python_type(value).__name__)
    return made


def _number_format(state: State, value: Value, conversion: str | None, spec: str) -> TextValue | None:
    """None where the number is to be a constant after all."""
    shown = value if conversion is None else held_text(state, CONVERSIONS[conversion], [value])
    return None if shown is None else held_text(state, format, [shown, Constant(spec)])


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
    if is_held(value):
        return _held_text(state, value, slot)
    if has_numbers(value) and (made := held_text(state, repr if slot == "__repr__" else str, [value])) is not None:
        return made
    if _holds_objects(value):
        return Constant(_composed(state, value))
    try:
        known = _known(state, value)
    except NotConstant:
        raise unsupported(state, "TW104", slot.strip("_"), python_type(value).__name__) from None
    return Constant(repr(known) if slot == "__repr__" else str(known))


def _held_text(state: State, value: Value, slot: str) -> Value:
    if isinstance(value, TextValue) and slot == "__str__":
        return value
    made = held_text(state, repr if slot == "__repr__" else str, [value])
    if made is None:
        raise unsupported(state, "TW104", slot.strip("_"), python_type(value).__name__)
    return made


def _holds_objects(value: Value) -> bool:
    """Whether it is a plain list, tuple or dict with objects in it, whose classes say how they are shown."""
    if not isinstance(value, ListValue | TupleValue | DictValue) or value.cls not in (list, tuple, dict):
        return False
    parts = [part for pair in value.items.values() for part in pair] if isinstance(value, DictValue) else value.items
    return any(isinstance(part, ObjectValue) or _holds_objects(part) for part in parts)


def _composed(state: State, value: Value) -> str:
    """repr() of a container, part by part."""
    def shown(part: Value) -> str:
        return as_python(state, text_of(state, part, "__repr__"))
    match value:
        case DictValue():
            complete(state, value)
            return "{" + ", ".join(f"{shown(key)}: {shown(one)}" for key, one in value.items.values()) + "}"
        case TupleValue(items=(only,)):
            return f"({shown(only)},)"
        case TupleValue():
            return f"({', '.join(map(shown, value.items))})"
        case _:
            return f"[{', '.join(map(shown, value.items))}]"


def _known(state: State, value: Value) -> Any:
    """The object to be printed; of a dict found outside everything is read."""
    if isinstance(value, DictValue | ViewValue):
        complete(state, value if isinstance(value, DictValue) else value.mapping)
    return as_python(state, value)


def _exception_text(state: State, value: ObjectValue, slot: str) -> Value:
    if slot == "__str__" and len(value.new_args) == 1 and isinstance(value.new_args[0], TextValue):
        return value.new_args[0]
    args = as_python(state, TupleValue(value.new_args))
    base = next(b for b in value.cls.value.__mro__ if b.__module__ == "builtins")
    text = str(base(*args)) if slot == "__str__" else f"{value.cls.value.__name__}{args if len(args) != 1 else f'({args[0]!r})'}"
    return Constant(text)
