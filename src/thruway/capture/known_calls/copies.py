"""copy.copy and copy.deepcopy: containers and plain objects are copied as values, tensors in the graph. What copies itself in a way of its
own, or in C, is left to Python."""

from __future__ import annotations

import copy
import copyreg
import enum
import functools
import types
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import call_torch
from thruway.capture.values.attribute import find_attribute
from thruway.capture.values.base import (
    CompiledValue, Constant, DictValue, FunctionValue, ListValue, MethodValue, ObjectValue, SetValue, SizeValue, SliceValue, TensorValue, TupleValue, Value,
)
from thruway.capture.values.mapping import complete
from thruway.capture.values.types_ import python_type
from thruway.capture.wrap import instance_dict
from thruway.frame.guard import MISSING
from thruway.frame.source import Attr

Args = list[Value]
Kwargs = dict[str, Value]
ATOMS = (
    type(None), bool, int, float, complex, str, bytes, type, enum.Enum, types.EllipsisType, types.NotImplementedType, types.BuiltinFunctionType, range,
    torch.dtype, torch.device, torch.Size, types.CodeType, property,
)
MOST_TENSORS = 8           # each pair of them is guarded
DEFAULTS = {
    "__reduce_ex__": object.__reduce_ex__, "__reduce__": object.__reduce__, "__getstate__": object.__getstate__, "__new__": object.__new__,
    "__getnewargs__": MISSING, "__getnewargs_ex__": MISSING,
}


def shallow_copy(state: State, args: Args, kwargs: Kwargs) -> Value:
    (value,) = args
    match value:
        case Constant() | TupleValue() | FunctionValue() | SliceValue() | SizeValue():
            return value
        case ListValue():
            return ListValue(list(value.items), cls=value.cls, options=value.options)
        case SetValue():
            return SetValue(dict(value.items), cls=value.cls)
        case DictValue():
            return _new_dict(state, value, dict(_pairs(state, value)))
        case ObjectValue() if isinstance(hook := state.type_lookup(value.cls, "__copy__"), types.FunctionType):
            return state.call(state.wrap(state, hook, state.made(hook), True), [value])
        case ObjectValue():
            made = _new_object(state, value, "__copy__")
            made.attributes = DictValue(dict(_pairs(state, instance_dict(state, value))))
            return made
        case _:
            raise unsupported(state, "TW101", f"copy.copy of {python_type(value).__name__}")


def deep_copy(state: State, args: Args, kwargs: Kwargs) -> Value:
    memo = args[1] if len(args) > 1 else kwargs.get("memo")
    if isinstance(memo, Memo) and args:
        return memo.copier.copy(args[0])
    if len(args) + len(kwargs) != 1:
        raise unsupported(state, "TW101", "copy.deepcopy with a memo")
    return Copier(state).copy(*args, *kwargs.values())


class Memo(Value):
    """What a `__deepcopy__` of the user's gets, to be handed on to deepcopy: anything else that is done with it breaks."""

    __slots__ = ("copier",)

    def __init__(self, copier: Copier):
        super().__init__()
        self.copier = copier


class Copier:
    """One call of deepcopy: `copies` holds what was copied, so that what is shared stays shared."""

    def __init__(self, state: State):
        self.state = state
        self.copies: dict[Value, Value] = {}
        self.memo = Memo(self)
        self.roots: set[int] = set()
        self.found: list[TensorValue] = []

    def copy(self, value: Value) -> Value:
        known = self.copies.get(value)
        if known is None:
            known = self._copy(value)
            self.copies[value] = known
        return known

    def _copy(self, value: Value) -> Value:
        match value:
            case Constant() if isinstance(value.value, ATOMS):
                return value
            case FunctionValue() | SizeValue():
                return value
            case TensorValue():
                return self._tensor(value)
            case TupleValue():
                items = tuple(self.copy(one) for one in value.items)
                return value if all(a is b for a, b in zip(items, value.items)) else TupleValue(items, cls=value.cls)
            case ListValue():
                made = self.copies[value] = ListValue([], cls=value.cls, options=value.options)
                made.items.extend(self.copy(one) for one in value.items)
                return made
            case DictValue():
                made = self.copies[value] = _new_dict(self.state, value, {})
                made.items.update((key, (self.copy(name), self.copy(one))) for key, (name, one) in _pairs(self.state, value))
                return made
            case SetValue() if all(isinstance(one, Constant) for one in value.items.values()):
                return SetValue(dict(value.items), cls=value.cls)
            case MethodValue(function=FunctionValue()):
                return MethodValue(value.function, self.copy(value.owner))
            case ObjectValue() if isinstance(hook := self.state.type_lookup(value.cls, "__deepcopy__"), types.FunctionType):
                return self.state.call(self.state.wrap(self.state, hook, self.state.made(hook), True), [value, self.memo])
            case ObjectValue():
                return self._object(value)
            case _:
                raise unsupported(self.state, "TW101", f"copy.deepcopy of {python_type(value).__name__}")

    def _object(self, value: ObjectValue) -> Value:
        made = self.copies[value] = _new_object(self.state, value, "__deepcopy__")
        made.attributes = DictValue()
        made.attributes.items.update((key, (name, self.copy(one))) for key, (name, one) in _pairs(self.state, instance_dict(self.state, value)))
        return made

    def _tensor(self, value: TensorValue) -> Value:
        """A clone, where that is all: a plain leaf that covers its memory, and of which there is no other view in what is copied."""
        trace = value.trace
        meta = trace.meta
        plain = type(value.real) in (torch.Tensor, type(None)) and not meta.requires_grad and not getattr(value.real, "__dict__", None)
        dense = trace.layout is torch.strided and not trace.is_complex() and meta.offset == 0 and torch.empty_like(trace).stride() == trace.stride()
        if not plain or not dense or trace.root is not trace or id(trace.root) in self.roots or not self._has_memory_of_its_own(value):
            raise unsupported(self.state, "TW101", "copy.deepcopy of such a tensor")
        self.roots.add(id(trace.root))
        if value.real is not None:
            self._keep_apart(value)
        return call_torch(self.state, torch.clone, [value], {})

    def _keep_apart(self, value: TensorValue) -> None:
        """Copies of tensors that share memory share theirs too."""
        if len(self.found) == MOST_TENSORS:
            raise unsupported(self.state, "TW101", f"copy.deepcopy of more than {MOST_TENSORS} tensors")
        for other in self.found:
            if other.real.untyped_storage().data_ptr() == value.real.untyped_storage().data_ptr():
                raise unsupported(self.state, "TW101", "copy.deepcopy of tensors that share memory")
            self.state.guard("no_overlap", value.source, other.source)
        self.found.append(value)

    @staticmethod
    def _has_memory_of_its_own(value: TensorValue) -> bool:
        real = value.real
        return real is None or real._base is None and real.untyped_storage().nbytes() == real.numel() * real.element_size()


def _pairs(state: State, mapping: DictValue) -> list[tuple[Any, tuple[Value, Value]]]:
    complete(state, mapping)
    return list(mapping.items.items())


def _new_dict(state: State, value: DictValue, items: dict) -> DictValue:
    if value.real is not None and value.cls.__dictoffset__:              # an OrderedDict may have attributes
        if vars(value.real):
            raise unsupported(state, "TW101", f"copy of {value.cls.__name__} with attributes")
        state.guard("length", Attr(value.source, "__dict__"), 0)
    made = DictValue(items, cls=value.cls)
    made.factory = value.factory
    return made


def _new_object(state: State, value: ObjectValue, hook: str) -> ObjectValue:
    """An empty instance, where copying one is what `object` does: a new one with the same attributes."""
    cls = value.cls.value
    plain = all(state.type_lookup(value.cls, name) in (default, MISSING) for name, default in DEFAULTS.items())
    if not plain or value.storage is not None or isinstance(value, CompiledValue) or _has_slots(cls) or cls in copyreg.dispatch_table \
            or instance_dict(state, value) is None or issubclass(cls, (BaseException, torch.Tensor)) or find_attribute(state, value, hook) is not None:
        raise unsupported(state, "TW101", f"copy of {cls.__name__}")
    made = ObjectValue(value.cls)
    made.attributes = DictValue()
    if find_attribute(state, made, "__setstate__") is not None:
        raise unsupported(state, "TW101", f"copy of {cls.__name__}")
    return made


@functools.lru_cache(maxsize=4096)
def _has_slots(cls: type) -> bool:
    """Whether instances hold something outside their dict: slots, or what a base class written in C keeps."""
    return any("__slots__" in vars(base) and vars(base)["__slots__"] not in ((), []) for base in cls.__mro__) \
        or cls.__basicsize__ > _Plain.__basicsize__


class _Plain:
    pass


ROWS = {copy.copy: shallow_copy, copy.deepcopy: deep_copy}
