"""Binary and unary operators: numbers run, tensors are recorded, sequences concatenate, objects use their slots."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import numpy
import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import Inline, State
from thruway.capture.tensors import call_torch
from thruway.capture.values.arrays import beside_tensor, is_scalar_of_numpy, operate, write_array
from thruway.capture.values.attribute import class_attribute_source
from thruway.capture.values.base import (
    NOT_IMPLEMENTED, ArrayValue, Constant, DictValue, ListValue, ObjectValue, SetValue, SizeValue, TensorValue, TextValue, TupleValue, Value, ViewValue,
)
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import NotConstant, as_python, from_python, specialize
from thruway.capture.values.errors import raise_error, raise_real
from thruway.capture.values.held_text import has_numbers, held_text, is_held, joined
from thruway.capture.values.iterate import items_of
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import complete, write_key
from thruway.capture.values.mutate import extend_list, remove_member, replace_items, update_set
from thruway.capture.values.numbers import divide_elements, is_element
from thruway.capture.values.overriding import is_tensor_object
from thruway.capture.values.sizes import size_operation
from thruway.capture.values.torch_function import is_users, overridden_operator
from thruway.capture.values.types_ import python_type
from thruway.capture.wrap import wrap
from thruway.frame.guard import MISSING

Result = Value | Inline

SYMBOLS: dict[str, tuple[Callable[..., Any], str]] = {
    "+": (operator.add, "add"), "-": (operator.sub, "sub"), "*": (operator.mul, "mul"), "/": (operator.truediv, "truediv"),
    "//": (operator.floordiv, "floordiv"), "%": (operator.mod, "mod"), "**": (operator.pow, "pow"), "@": (operator.matmul, "matmul"),
    "&": (operator.and_, "and"), "|": (operator.or_, "or"), "^": (operator.xor, "xor"), "<<": (operator.lshift, "lshift"),
    ">>": (operator.rshift, "rshift"),
}
IN_PLACE: dict[str, Callable[..., Any]] = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv, "//=": operator.ifloordiv, "%=": operator.imod,
    "**=": operator.ipow, "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift,
    ">>=": operator.irshift,
}
UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "-": (operator.neg, "__neg__"), "+": (operator.pos, "__pos__"), "~": (operator.invert, "__invert__"),
}


def binary(state: State, symbol: str, left: Value, right: Value) -> Result:
    """`left symbol right`; augmented assignments have symbols that end in "="."""
    in_place = symbol.endswith("=")
    plain = symbol[:-1] if in_place else symbol
    function, name = SYMBOLS[plain]
    if state.overrides and (answer := _overridden(state, symbol, left, right)) is not None:
        return answer
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _on_constants(state, function, left, right)
    if plain in "+%" and (text := _held(state, plain, left, right)) is not None:
        return text
    if isinstance(left, TensorValue):
        right = beside_tensor(state, right)
    if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
        if in_place and isinstance(left, ArrayValue) and issubclass(left.cls, numpy.ndarray):
            write_array(state, IN_PLACE[symbol], left, right)
            return left
        return operate(state, function, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        target = IN_PLACE[symbol] if in_place and isinstance(left, TensorValue) else function
        result = call_torch(state, target, [left, right], {})
        if result is not None:
            return result
    if in_place:
        result = _augment(state, plain, left, right)
        if result is not None:
            return result
    if isinstance(left, ObjectValue) or isinstance(right, ObjectValue):
        return _by_slots(state, name, symbol, left, right)
    if plain == "/" and is_element(right) and (quotient := divide_elements(state, left, right)) is not None:
        return quotient
    if isinstance(left, SizeValue | Constant) and isinstance(right, SizeValue | Constant):
        if is_scalar_of_numpy(left) or is_scalar_of_numpy(right):
            return _on_constants(state, function, *(specialize(state, one) if isinstance(one, SizeValue) else one for one in (left, right)))
        return size_operation(state, function, left, right)
    left, right = (specialize(state, one) if isinstance(one, SizeValue) else one for one in (left, right))
    return _on_containers(state, plain, function, left, right)


def _held(state: State, symbol: str, left: Value, right: Value) -> Value | None:
    """A text made of others, or of what tensors hold; None where the operands are none."""
    if symbol == "+":
        is_text = {python_type(one) for one in (left, right)} == {str} and not all(isinstance(one, Constant) for one in (left, right))
        return TextValue(joined, (left, right), {}) if is_text and not isinstance(left, ObjectValue) and not isinstance(right, ObjectValue) else None
    if not isinstance(left, Constant) or type(left.value) is not str or not (is_held(right) or has_numbers(right)) or "%c" in left.value:
        return None
    return held_text(state, operator.mod, [left, right])


def _overridden(state: State, symbol: str, left: Value, right: Value) -> Value | None:
    """What classes with `__torch_function__` and function modes make of it; operators that such a class defines itself go first."""
    function, name = SYMBOLS[symbol.removesuffix("=")]
    if not _has_own(state, name, left, right):
        return overridden_operator(state, IN_PLACE.get(symbol, function), left, right)
    if symbol in IN_PLACE or not any(isinstance(one, TensorValue) or is_tensor_object(one) for one in (left, right)):
        return None
    return _by_slots(state, name, symbol, left, right)


def _has_own(state: State, name: str, *operands: Value) -> bool:
    """Whether the class of an operand defines the operator in Python."""
    return any(isinstance(one, ObjectValue) and is_users(state.type_lookup(one.cls, slot)) for one in operands
               for slot in (f"__{name}__", f"__r{name}__", f"__i{name}__"))


def _on_constants(state: State, function: Callable[..., Any], left: Constant, right: Constant) -> Value:
    try:
        return from_python(state, function(left.value, right.value))
    except Exception as error:
        raise_real(state, error)


def _augment(state: State, symbol: str, left: Value, right: Value) -> Value | None:
    """In-place operators of builtin containers; None where the type has none."""
    match left, symbol:
        case ListValue(), "+":
            extend_list(state, left, items_of(state, right))
        case ListValue(), "*" if isinstance(right, Constant | SizeValue):
            replace_items(state, left, _repeat(state, left, right).items)
        case SetValue(cls=cls), "&" | "-" | "^" if cls is set and isinstance(right, SetValue):
            _replace_members(state, left, _set_operation(SYMBOLS[symbol][0], set, left.items, right.items))
        case SetValue(cls=cls), "|" if cls is set and isinstance(right, SetValue):
            update_set(state, left, list(right.items.values()))
        case DictValue(), "|" if isinstance(right, DictValue | ListValue | TupleValue | ViewValue):
            for key_value, value in _pairs(state, right):
                write_key(state, left, key_of(state, key_value), key_value, value)
        case ObjectValue(), _:
            found = state.type_lookup(left.cls, f"__i{SYMBOLS[symbol][1]}__")
            if not isinstance(found, types.FunctionType):
                return None
            result = _call_slot(state, left, f"__i{SYMBOLS[symbol][1]}__", found, [right])
            return None if result is NOT_IMPLEMENTED else result
        case _:
            return None
    return left


def _call_slot(state: State, owner: ObjectValue, name: str, found: types.FunctionType, args: list[Value]) -> Value:
    source = class_attribute_source(owner.cls, name)
    result = run_inline(state, call(state, wrap(state, found, source, True), [owner, *args], {}))
    return NOT_IMPLEMENTED if isinstance(result, Constant) and result.value is NotImplemented else result


def _call_torchs_slot(state: State, owner: Value, found: Any, other: Value) -> Value:
    result = run_inline(state, call(state, Constant(found), [owner, other], {}))
    return NOT_IMPLEMENTED if isinstance(result, Constant) and result.value is NotImplemented else result


def _by_slots(state: State, name: str, symbol: str, left: Value, right: Value) -> Result:
    """The left operand's method, then the right's reflected one; a subclass on the right goes first."""
    tries = [(left, f"__{name}__", right), (right, f"__r{name}__", left)]
    left_type, right_type = python_type(left), python_type(right)
    if right_type is not left_type and left_type in right_type.__mro__ and _lookup(right_type, f"__r{name}__") is not _lookup(left_type, f"__r{name}__"):
        tries.reverse()
    for owner, slot, other in tries:
        if isinstance(owner, TensorValue):
            result = _call_torchs_slot(state, owner, _lookup(torch.Tensor, slot), other)
            if result is not NOT_IMPLEMENTED:
                return result
        if not isinstance(owner, ObjectValue):
            continue
        found = state.type_lookup(owner.cls, slot)
        if found is MISSING:
            continue
        if isinstance(found, types.FunctionType):
            result = _call_slot(state, owner, slot, found, [other])
            if result is not NOT_IMPLEMENTED:
                return result
        elif is_tensor_object(owner):
            result = _call_torchs_slot(state, owner, found, other)
            if result is not NOT_IMPLEMENTED:
                return result
        elif owner.storage is not None:
            args = [owner.storage, _content(other)]
            return binary(state, symbol.rstrip("=") or symbol, *(args if slot == f"__{name}__" else args[::-1]))
        else:
            raise unsupported(state, "TW104", symbol, owner.cls.value.__name__)
    if not isinstance(left, ObjectValue) and not isinstance(_content(right), ObjectValue):
        return binary(state, symbol, left, _content(right))
    raise_error(state, TypeError, f"unsupported operand type(s) for {symbol}: '{left_type.__name__}' and '{right_type.__name__}'")


def divide_with_rest(state: State, left: Value, right: Value) -> Result:
    """divmod(left, right)."""
    if isinstance(left, ObjectValue) or isinstance(right, ObjectValue):
        return _by_slots(state, "divmod", "divmod()", left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        raise_error(state, TypeError, f"unsupported operand type(s) for divmod(): '{python_type(left).__name__}' and '{python_type(right).__name__}'")
    return TupleValue((run_inline(state, binary(state, "//", left, right)), run_inline(state, binary(state, "%", left, right))))


def _lookup(cls: type, name: str) -> Any:
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)


def _content(value: Value) -> Value:
    return value.storage if isinstance(value, ObjectValue) and value.storage is not None else value


def _on_containers(state: State, symbol: str, function: Callable[..., Any], left: Value, right: Value) -> Value:
    match left, symbol, right:
        case ListValue(), "+", ListValue():
            return ListValue(left.items + right.items, cls=left.cls)
        case TupleValue(), "+", TupleValue():
            return TupleValue(left.items + right.items, cls=torch.Size if torch.Size in (left.cls, right.cls) else tuple)
        case (ListValue() | TupleValue(), "*", Constant() | SizeValue()):
            return _repeat(state, left, right)
        case (Constant() | SizeValue(), "*", ListValue() | TupleValue()):
            return _repeat(state, right, left)
        case DictValue(), "|", DictValue():
            complete(state, left)
            complete(state, right)
            kept = right if right.cls is not left.cls and issubclass(right.cls, left.cls) else left         # a subclass answers
            made = DictValue(left.items | right.items, cls=kept.cls)
            made.factory = kept.factory
            return made
        case (SetValue(), "|" | "&" | "-" | "^", SetValue()):
            return _set_operation(function, left.cls, left.items, right.items)
        case (_, "|" | "&" | "-" | "^", _) if _is_set_operation(left, right):
            return _set_operation(function, set, *(members_of(state, one) for one in (left, right)))
    try:
        return from_python(state, function(as_python(state, left), as_python(state, right)))
    except NotConstant:
        raise unsupported(state, "TW104", symbol, f"{python_type(left).__name__} and {python_type(right).__name__}") from None
    except Exception as error:
        raise_real(state, error)


def _pairs(state: State, value: Value) -> list[tuple[Value, Value]]:
    """What `dict |= value` takes: a dict, or pairs."""
    if isinstance(value, DictValue):
        complete(state, value)
        return list(value.items.values())
    pairs = [tuple(items_of(state, one)) for one in items_of(state, value)]
    if any(len(pair) != 2 for pair in pairs):
        raise unsupported(state, "TW104", "|=", "dict and pairs of another length")
    return pairs


def _repeat(state: State, sequence: ListValue | TupleValue, count: Value) -> Value:
    number = specialize(state, count).value if isinstance(count, SizeValue) else count.value
    try:
        items = sequence.items * number
    except TypeError as error:
        raise_real(state, error)
    return ListValue(items, cls=sequence.cls) if isinstance(sequence, ListValue) else TupleValue(items, cls=torch.Size if sequence.cls is torch.Size else tuple)


def set_items(state: State, value: SetValue | ViewValue) -> dict[Any, Value]:
    """Members by key."""
    if isinstance(value, SetValue):
        return value.items
    complete(state, value.mapping)
    if value.kind == "items":
        return {(key, key_of(state, pair[1])): TupleValue(pair) for key, pair in value.mapping.items.items()}
    return {key: pair[0] for key, pair in value.mapping.items.items()}


def is_set_like(value: Value) -> bool:
    """Sets, and views of keys or items, which compute with each other as sets."""
    return isinstance(value, SetValue) or isinstance(value, ViewValue) and value.kind != "values"


def _is_set_operation(left: Value, right: Value) -> bool:
    """A view of keys or items on one side; the other may be any iterable."""
    return isinstance(left, ViewValue) and left.kind != "values" or isinstance(right, ViewValue) and right.kind != "values"


def members_of(state: State, value: Value) -> dict[Any, Value]:
    return set_items(state, value) if is_set_like(value) else {key_of(state, item): item for item in items_of(state, value)}


def _set_operation(function: Callable[..., Any], cls: type, left: dict[Any, Value], right: dict[Any, Value]) -> SetValue:
    both = right | left
    return SetValue({key: both[key] for key in function(set(left), set(right))}, cls=cls)





def _replace_members(state: State, target: SetValue, wanted: SetValue) -> None:
    for key, member in list(target.items.items()):
        if key not in wanted.items:
            remove_member(state, target, member)
    update_set(state, target, [member for key, member in wanted.items.items() if key not in target.items])


def unary(state: State, symbol: str, value: Value) -> Result:
    function, slot = UNARY[symbol]
    if state.overrides and not _has_own(state, slot.strip("_"), value) and (answer := overridden_operator(state, function, value)) is not None:
        return answer
    match value:
        case Constant():
            try:
                return from_python(state, function(value.value))
            except Exception as error:
                raise_real(state, error)
        case TensorValue():
            return call_torch(state, function, [value], {})
        case ArrayValue():
            return operate(state, function, value)
        case SizeValue():
            return size_operation(state, function, value)
        case ObjectValue():
            found = state.type_lookup(value.cls, slot)
            if isinstance(found, types.FunctionType):
                return call(state, wrap(state, found, class_attribute_source(value.cls, slot), True), [value], {})
            if value.storage is not None:
                return unary(state, symbol, value.storage)
    raise unsupported(state, "TW104", symbol, python_type(value).__name__)
