"""Comparisons, identity and membership."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.links import may_be_one
from thruway.capture.state import Inline, State
from thruway.capture.tensors import call_torch
from thruway.capture.values.arrays import beside_tensor, is_scalar_of_numpy, operate
from thruway.capture.values.attribute import class_attribute_source
from thruway.capture.values.base import (
    FALSE, TRUE, ArrayValue, Constant, DictValue, ListValue, MethodValue, ObjectValue, SetValue, SizeValue, SliceValue, TensorValue, TextValue,
    TupleValue, Value, ViewValue,
)
from thruway.capture.values.binary import is_set_like, set_items
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import NotConstant, as_python, from_python
from thruway.capture.values.errors import raise_error, raise_real
from thruway.capture.values.iterate import items_of
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import complete, read_key
from thruway.capture.values.numbers import compare_elements, is_element, is_truth
from thruway.capture.values.sizes import size_operation
from thruway.capture.values.torch_function import is_users, overridden_operator
from thruway.capture.values.truth import truth
from thruway.capture.values.types_ import python_type
from thruway.capture.wrap import wrap
from thruway.frame.guard import MISSING

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}
SLOTS = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
REFLECTED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def boolean(flag: bool) -> Constant:
    return TRUE if flag else FALSE


def compare(state: State, symbol: str, left: Value, right: Value) -> Value | Inline:
    """`left symbol right`."""
    function = OPERATORS[symbol]
    if state.overrides and not any(isinstance(one, ObjectValue) and is_users(state.type_lookup(one.cls, SLOTS[sign])) for one, sign in (
            (left, symbol), (right, REFLECTED[symbol]))) and (answer := overridden_operator(state, function, left, right)) is not None:
        return answer
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _on_constants(state, function, left.value, right.value)
    if isinstance(left, TensorValue):
        right = beside_tensor(state, right)
    if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
        return operate(state, function, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        result = call_torch(state, function, [left, right], {})
        if result is not None:
            return result
        if symbol in ("==", "!=") and not isinstance(left, ObjectValue) and not isinstance(right, ObjectValue):
            return boolean(symbol == "!=")
    if isinstance(left, ObjectValue) or isinstance(right, ObjectValue):
        return _by_slots(state, symbol, left, right)
    if (isinstance(left, SizeValue) or isinstance(right, SizeValue)) and {type(left), type(right)} <= {Constant, SizeValue}:
        if is_scalar_of_numpy(left) or is_scalar_of_numpy(right):
            return _on_constants(state, function, as_python(state, left), as_python(state, right))
        result = compare_elements(state, function, left, right) if is_element(left) or is_element(right) else None
        if result is not None:
            return result
        return size_operation(state, function, left, right)
    if symbol in ("==", "!="):
        return boolean(equal(state, left, right) == (symbol == "=="))
    return _order(state, symbol, function, left, right)


def _on_constants(state: State, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Value:
    try:
        return from_python(state, function(left, right))
    except Exception as error:
        raise_real(state, error)


def _by_slots(state: State, symbol: str, left: Value, right: Value) -> Value:
    tries = [(left, symbol, right), (right, REFLECTED[symbol], left)]
    if python_type(right) is not python_type(left) and python_type(left) in python_type(right).__mro__:
        tries.reverse()
    for owner, sign, other in tries:
        if not isinstance(owner, ObjectValue):
            if other.storage is not None and python_type(owner) in python_type(other).__mro__:
                return run_inline(state, compare(state, sign, owner, other.storage))
            continue
        found = state.type_lookup(owner.cls, SLOTS[sign])
        if isinstance(found, types.FunctionType):
            source = class_attribute_source(owner.cls, SLOTS[sign])
            result = run_inline(state, call(state, wrap(state, found, source, True), [owner, other], {}))
            if not (isinstance(result, Constant) and result.value is NotImplemented):
                return result
        elif found is not MISSING and sign == "!=" and isinstance(state.type_lookup(owner.cls, "__eq__"), types.FunctionType):
            return boolean(not truth(state, _by_slots(state, "==", left, right)))
        elif found not in NO_ANSWER and owner.storage is not None:
            other = other.storage if isinstance(other, ObjectValue) and other.storage is not None else other
            return run_inline(state, compare(state, sign, owner.storage, other))
        elif found not in NO_ANSWER:
            raise unsupported(state, "TW111", python_type(left).__name__, python_type(right).__name__)
    if symbol in ("==", "!="):
        return boolean((left is right) == (symbol == "=="))
    raise_error(state, TypeError, f"'{symbol}' not supported between instances of '{python_type(left).__name__}' and '{python_type(right).__name__}'")


NO_ANSWER = (MISSING, object.__eq__, object.__ne__, object.__lt__, object.__le__, object.__gt__, object.__ge__)


def equal(state: State, left: Value, right: Value) -> bool:
    """`left == right` as containers ask it: identity first, then equality as a truth."""
    if left is right:
        return True
    match left, right:
        case (ListValue(), ListValue()) | (TupleValue(), TupleValue()):
            return len(left.items) == len(right.items) and all(equal(state, a, b) for a, b in zip(left.items, right.items))
        case DictValue(), DictValue():
            return _dicts_equal(state, left, right)
        case SliceValue(), SliceValue():
            return equal(state, _parts(left), _parts(right))
        case (SetValue() | ViewValue(), SetValue() | ViewValue()) if is_set_like(left) and is_set_like(right):
            return set(set_items(state, left)) == set(set_items(state, right))
        case MethodValue(), MethodValue():
            return identical(state, left.owner, right.owner) and equal(state, left.function, right.function)
        case (TextValue(), _):
            return equal(state, Constant(left.value), right)
        case (_, TextValue()):
            return equal(state, left, Constant(right.value))
        case (ArrayValue(), _) | (_, ArrayValue()):
            raise unsupported(state, "TW103", "the equality of arrays")
        case (Constant() | SizeValue() | ObjectValue() | TensorValue(), Constant() | SizeValue() | ObjectValue() | TensorValue()):
            return truth(state, run_inline(state, compare(state, "==", left, right)))
        case (ObjectValue(), _) | (_, ObjectValue()):
            return truth(state, _by_slots(state, "==", left, right))
        case _:
            return False


def _dicts_equal(state: State, left: DictValue, right: DictValue) -> bool:
    complete(state, left)
    complete(state, right)
    if issubclass(left.cls, collections.OrderedDict) and issubclass(right.cls, collections.OrderedDict) and [*left.items] != [*right.items]:
        return False
    return left.items.keys() == right.items.keys() and all(equal(state, pair[1], right.items[key][1]) for key, pair in left.items.items())


def _parts(value: SliceValue) -> TupleValue:
    """Slices compare as the tuple of what they hold."""
    return TupleValue((value.start, value.stop, value.step))


def _order(state: State, symbol: str, function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    match left, right:
        case (ListValue(), ListValue()) | (TupleValue(), TupleValue()):
            for a, b in zip(left.items, right.items):
                if not equal(state, a, b):
                    return run_inline(state, compare(state, symbol, a, b))
            return boolean(function(len(left.items), len(right.items)))
        case SliceValue(), SliceValue():
            return _order(state, symbol, function, _parts(left), _parts(right))
        case (SetValue() | ViewValue(), SetValue() | ViewValue()) if is_set_like(left) and is_set_like(right):
            return boolean(function(set(set_items(state, left)), set(set_items(state, right))))
    try:
        return _on_constants(state, function, as_python(state, left), as_python(state, right))
    except NotConstant:
        raise unsupported(state, "TW111", python_type(left).__name__, python_type(right).__name__) from None


def identical(state: State, left: Value, right: Value) -> bool:
    """`left is right`. Two Values found outside are two objects; that is guarded unless one of them is a constant."""
    if left is right:
        return True
    if is_truth(left) or is_truth(right) or state.links and may_be_one(state, left, right):
        raise unsupported(state, "TW103", "which of two objects a branch gave")
    if isinstance(left, Constant) and isinstance(right, Constant):
        return left.value is right.value or type(left.value) is type(right.value) and type(left.value) in (int, str, float, bytes) \
            and left.value == right.value
    if left.source is not None and right.source is not None and not isinstance(left, Constant) and not isinstance(right, Constant) \
            and type(left) is type(right):
        state.guard("not_same_object", left.source, right.source)
    return False


def contains(state: State, container: Value, item: Value) -> bool:
    """`item in container`."""
    match container:
        case Constant() if isinstance(item, Constant):
            try:
                return item.value in container.value
            except TypeError as error:
                raise_real(state, error)
        case DictValue():
            return read_key(state, container, key_of(state, item)) is not None
        case SetValue():
            return key_of(state, item) in container.items
        case ViewValue(kind="keys"):
            return read_key(state, container.mapping, key_of(state, item)) is not None
        case ObjectValue():
            return _object_contains(state, container, item)
        case TensorValue() | ArrayValue():
            raise unsupported(state, "TW103", "membership in a tensor or an array")
        case _:
            return any(equal(state, one, item) for one in items_of(state, container))


def _object_contains(state: State, container: ObjectValue, item: Value) -> bool:
    found = state.type_lookup(container.cls, "__contains__")
    if isinstance(found, types.FunctionType):
        source = class_attribute_source(container.cls, "__contains__")
        return truth(state, run_inline(state, call(state, wrap(state, found, source, True), [container, item], {})))
    if found is not MISSING and container.storage is not None:
        return contains(state, container.storage, item)
    if found is not MISSING:
        raise unsupported(state, "TW104", "in", container.cls.value.__name__)
    return any(equal(state, one, item) for one in items_of(state, container))
