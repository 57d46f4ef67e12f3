"""The type of a Value, as a Value."""

from __future__ import annotations

import abc
import functools
import types
import typing
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.refused import is_below, is_refused_module
from thruway.capture.state import State
from thruway.capture.values.answers import guard_registrations
from thruway.capture.values.base import (
    ArrayValue, CellValue, CompiledValue, Constant, DictValue, FunctionValue, GeneratorValue, IteratorValue, ListValue, MethodValue,
    ObjectValue, PartialValue, PulledValue, SetValue, SizeValue, SliceValue, SuperValue, TensorValue, TextValue, TracebackValue, TransformedValue,
    TupleValue, Value, ViewValue,
)
from thruway.frame.source import Attr

FIXED: dict[type, type] = {
    FunctionValue: types.FunctionType, MethodValue: types.MethodType, PartialValue: functools.partial, SliceValue: slice, CellValue: types.CellType,
    GeneratorValue: types.GeneratorType, SuperValue: super, TextValue: str, TransformedValue: types.FunctionType, PulledValue: types.FunctionType,
    TracebackValue: types.TracebackType,
}
SIZES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def python_type(value: Value) -> type:
    """The exact type that the object has."""
    match value:
        case Constant():
            return type(value.value)
        case ObjectValue():
            return value.cls.value
        case ArrayValue():
            return value.cls
        case TensorValue():
            return torch.Tensor if value.real is None else type(value.real)
        case ListValue() | TupleValue() | DictValue() | SetValue() | CompiledValue() | ViewValue():
            return value.cls
        case SizeValue():
            return SIZES[type(value.size)]
        case IteratorValue():
            return value.python_type
        case GeneratorValue() if value.plays is not None:
            builtin = value.plays[0]
            return builtin if isinstance(builtin, type) else type(builtin.__self__)
        case MethodValue() if isinstance(value.function, Constant):
            return types.BuiltinMethodType
        case _:
            return FIXED[type(value)]


def type_value(state: State, value: Value) -> Constant:
    """`type(value)` as a value."""
    if isinstance(value, ObjectValue):
        return value.cls
    return state.class_of(python_type(value), value.source)


PLAIN_METACLASSES = (type, abc.ABCMeta, type(torch.Tensor), *type(torch.Tensor).__mro__)
# Modules whose `__subclasshook__`s look at a class alone and whose metaclasses answer by type.
PURE_HOOKS = frozenset({"abc", "collections.abc", "_collections_abc", "numbers", "os", "io", "_io", "contextlib", "typing", "asyncio.events", "builtins"})


def is_subclass(state: State, cls: type, wanted: Any) -> bool:
    """issubclass(cls, wanted), and isinstance of an object of exactly `cls`, where no code of the user's answers that."""
    if isinstance(wanted, tuple):
        return any(is_subclass(state, cls, one) for one in wanted)
    if isinstance(wanted, types.UnionType):
        return any(is_subclass(state, cls, one) for one in wanted.__args__)
    if not isinstance(wanted, type):
        if type(wanted).__module__ == "typing":
            return is_subclass(state, cls, wanted.__origin__) if hasattr(wanted, "__origin__") and not typing.get_args(wanted) else issubclass(cls, wanted)
        raise TypeError("isinstance() arg 2 must be a type, a tuple of types, or a union")
    if not _hook_says_yes(cls, wanted) and not _answers_plainly(wanted):
        raise unsupported(state, "TW101", f"isinstance with {wanted.__qualname__}, whose class answers in code of its own")
    guard_registrations(state, wanted)
    return issubclass(cls, wanted)


def answering_code(state: State, wanted: Value) -> Value | None:
    """The user's `__instancecheck__` that answers whether an object is of the class `wanted`; None where Python's or a library's does."""
    if not isinstance(wanted, Constant) or not isinstance(wanted.value, type) or _has_plain_metaclass(wanted.value):
        return None
    meta = type_value(state, wanted)
    hook = state.type_lookup(meta, "__instancecheck__")
    if not isinstance(hook, types.FunctionType) or meta.source is None or is_below(hook.__module__, ("torch",)) or is_refused_module(hook.__module__):
        return None
    return state.wrap(state, hook, Attr(meta.source, "__instancecheck__"), True)


def _hook_says_yes(cls: type, wanted: type) -> bool:
    """An abstract class whose own hook says yes asks no other: what is derived from it (which libraries add to) plays no part."""
    return isinstance(wanted, abc.ABCMeta) and _has_plain_metaclass(wanted) and _has_known_hook(wanted) \
        and wanted.__subclasshook__(cls) is True


def _answers_plainly(wanted: type) -> bool:
    if wanted in (torch.nn.Parameter, torch.nn.Buffer):
        return True
    return _has_plain_metaclass(wanted) and (not isinstance(wanted, abc.ABCMeta) or _has_pure_hooks(wanted))


def _has_plain_metaclass(cls: type) -> bool:
    def has_hooks(base: type) -> bool:
        return not base.__dict__.keys().isdisjoint(("__instancecheck__", "__subclasscheck__"))
    return not any(has_hooks(base) and base not in PLAIN_METACLASSES and base.__module__ not in PURE_HOOKS for base in type(cls).__mro__)


def _has_known_hook(cls: type) -> bool:
    """Whether its hook is a library's, also where that put it into the user's class, as typing does with protocols."""
    owner = _hook_owner(cls)
    hook = vars(owner)["__subclasshook__"]
    return owner.__module__ in PURE_HOOKS or getattr(hook, "__func__", hook).__module__ == "typing"


def _hook_owner(cls: type) -> type:
    return next(base for base in cls.__mro__ if "__subclasshook__" in base.__dict__)


def _has_pure_hooks(cls: type) -> bool:
    """An abstract class asks its own hook, then all its subclasses."""
    return _hook_owner(cls).__module__ in PURE_HOOKS and all(_answers_plainly(below) for below in type.__subclasses__(cls))
