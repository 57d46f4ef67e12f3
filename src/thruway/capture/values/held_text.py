"""Texts of what tensors hold (`f"{loss:.3f}"`, `str(x)`, `"%s" % x`), and of numbers that change between calls: they are made where they are
needed, of copies of the tensors as they are now.

A text that nobody needs costs nothing: the copies are dropped from the graph.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.state import State
from thruway.capture.tensors import call_torch
from thruway.capture.values.base import Constant, DictValue, ListValue, SizeValue, TensorValue, TextValue, TupleValue, Value
from thruway.capture.values.constants import NotConstant, specialize
from thruway.capture.values.mapping import complete
from thruway.capture.values.numbers import NUMBERS, is_element
from thruway.capture.values.overriding import modes_on
from thruway.capture.values.types_ import python_type

PLAIN = (str, int, float, bool, complex, type(None), torch.dtype, torch.device)


def is_held(value: Value) -> bool:
    """Whether a tensor holds what the text of the value shows."""
    match value:
        case TensorValue() | TextValue():
            return True
        case SizeValue():
            return is_element(value)
        case ListValue(items=list()) | TupleValue() if value.cls in SEQUENCES:
            return any(map(is_held, value.items))
        case DictValue(cls=cls) if cls is dict and value.complete:
            return any(is_held(pair[1]) for pair in value.items.values())
        case _:
            return False


SEQUENCES = (list, tuple, torch.Size)


def has_numbers(value: Value) -> bool:
    """Whether the text of the value shows a number that changes between calls."""
    match value:
        case SizeValue():
            return isinstance(value.size, torch.SymInt | torch.SymFloat)
        case ListValue(items=list()) | TupleValue() if value.cls in SEQUENCES:
            return any(map(has_numbers, value.items))
        case _:
            return False


def held_text(state: State, function: Callable[..., str], args: list[Value], kwargs: dict[str, Value] | None = None) -> TextValue | None:
    """`function(*args)`, a text, to be called after the graph. None where an argument's own text is not known to be the same then, and where
    the call may raise."""
    if modes_on(state) or state.transforms:
        return None
    try:
        kept = [_copied(state, one) for one in args]
        named = {name: _copied(state, one) for name, one in (kwargs or {}).items()}
    except NotConstant:
        return None
    return TextValue(function, tuple(kept), named) if _works(function, kept, named) else None


def _works(function: Callable[..., str], args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether the call succeeds with arguments of these kinds; the error of one that does not is eager's to raise."""
    try:
        with torch._C._DisableTorchDispatch():                   # capture's own mode is on
            function(*map(_like, args), **{name: _like(one) for name, one in kwargs.items()})
    except Exception:
        return False
    return True


def number_in(state: State, value: Value) -> Value:
    """Of a tensor of no dimensions `format` shows the number alone, not that it requires a gradient."""
    is_number = isinstance(value, TensorValue) and python_type(value) is torch.Tensor and not value.trace.dim() and value.trace.requires_grad
    return call_torch(state, torch.Tensor.detach, [value], {}) or value if is_number else value


def joined(*parts: str) -> str:
    return "".join(parts)


def joined_by(between: str, *parts: str) -> str:
    return between.join(parts)


def plain_fields(text: str) -> bool:
    """Whether `text.format(…)` shows its arguments as they are: no attributes and items of them, no formats from other arguments."""
    try:
        fields = [(field, spec or "") for _, field, spec, _ in string.Formatter().parse(text) if field is not None]
    except ValueError:
        return False
    return all((not field or field.isidentifier() or field.isdecimal()) and "{" not in spec and not spec.endswith("c") for field, spec in fields)


def _copied(state: State, value: Value) -> Value:
    """The value as it is now; nobody else writes it."""
    match value:
        case TextValue():
            return value
        case Constant() if isinstance(value.value, PLAIN):
            return value
        case TensorValue() if python_type(value) is torch.Tensor and not value.trace.requires_grad:
            return call_torch(state, torch.clone, [value], {})
        case SizeValue():
            return value if is_element(value) or has_numbers(value) else specialize(state, value)
        case ListValue(items=list()) if value.cls is list:
            return ListValue([_copied(state, one) for one in value.items])
        case TupleValue() if value.cls in SEQUENCES:
            return TupleValue(tuple(_copied(state, one) for one in value.items), cls=value.cls)
        case DictValue(cls=cls) if cls is dict:
            complete(state, value)
            return DictValue({key: (_copied(state, pair[0]), _copied(state, pair[1])) for key, pair in value.items.items()})
        case _:
            raise NotConstant


def _like(value: Value) -> Any:
    """Something that is shown as the value would be, but for the elements."""
    match value:
        case TensorValue():
            return torch.zeros((1,) * value.trace.dim(), dtype=value.trace.dtype)
        case TextValue():
            return "text"
        case SizeValue():
            return NUMBERS[type(value.size)](1)
        case ListValue():
            return [_like(one) for one in value.items]
        case TupleValue():
            return tuple(map(_like, value.items))
        case DictValue():
            return {_like(key): _like(one) for key, one in value.items.values()}
        case Constant():
            return value.value
        case _:
            raise NotConstant
