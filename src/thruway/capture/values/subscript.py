"""`value[key]`, `value[key] = new`, `del value[key]`."""

from __future__ import annotations

import operator
import types
from typing import NoReturn

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.caught import refuse_caught_error
from thruway.capture.state import Inline, State
from thruway.capture.tensors import NotTensorArguments, add_node, call_torch, run_trace, to_trace
from thruway.capture.values.arrays import array_item, write_array
from thruway.capture.values.attribute import bind, class_attribute_source
from thruway.capture.values.base import (
    NONE, ArrayValue, Constant, DictValue, ListValue, ObjectValue, SizeValue, SliceValue, TensorValue, TextValue, TupleValue, UnreadList, Value,
)
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import NotConstant, as_python, from_python, specialize
from thruway.capture.values.errors import raise_error, raise_real
from thruway.capture.values.iterate import items_of
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import delete_key, is_written_unread, read_key, read_unread_key, write_key, write_unread
from thruway.capture.values.mutate import replace_items
from thruway.capture.values.number_index import is_free_copy, selected, with_numbers
from thruway.capture.values.torch_function import is_users, overridden_operator
from thruway.capture.values.types_ import python_type
from thruway.capture.values.unread import read_unread
from thruway.capture.wrap import wrap
from thruway.frame.guard import MISSING

Result = Value | Inline


def get_item(state: State, value: Value, key: Value) -> Result:
    if state.overrides and not _has_own(state, value, "__getitem__") and (answer := overridden_operator(state, operator.getitem, value, key)) is not None:
        return answer
    match value:
        case TensorValue():
            return _tensor_item(state, value, key)
        case ArrayValue():
            return array_item(state, value, key)
        case UnreadList():
            return read_unread(state, value, key if isinstance(key, SizeValue | SliceValue) else Constant(_index(state, key)))
        case ListValue() | TupleValue():
            return sequence_item(state, value, key)
        case DictValue():
            return dict_item(state, value, key)
        case Constant() if isinstance(value.value, type):
            return _class_item(state, value, key)
        case Constant():
            return _constant_item(state, value, key)
        case ObjectValue():
            return _object_item(state, value, key)
        case TextValue():
            return _constant_item(state, Constant(value.value), key)
        case _:
            raise_error(state, TypeError, f"'{python_type(value).__name__}' object is not subscriptable")


def _has_own(state: State, value: Value, slot: str) -> bool:
    """Whether no function of torch's is asked: the class says itself what its items are, or it is no tensor."""
    return not isinstance(value, TensorValue | ObjectValue) or isinstance(value, ObjectValue) and is_users(state.type_lookup(value.cls, slot))


def _tensor_item(state: State, value: TensorValue, key: Value) -> Value:
    key = with_numbers(state, key)
    view = selected(state, value, key)
    if view is not None:
        return view
    if isinstance(key, ObjectValue) and state.type_lookup(key.cls, "__index__") is not MISSING:
        key = Constant(_index(state, key))
    result = call_torch(state, operator.getitem, [value, key], {})
    if result is None:
        raise unsupported(state, "TW104", "subscript", "Tensor")
    return result


def _index(state: State, key: Value) -> int | slice:
    """A key as list and tuple take it."""
    match key:
        case SizeValue():
            return specialize(state, key).value
        case Constant() if hasattr(key.value, "__index__"):
            return operator.index(key.value)
        case SliceValue():
            try:
                return as_python(state, key)
            except NotConstant:
                raise unsupported(state, "TW103", "a slice bound") from None
        case ObjectValue() if isinstance(found := state.type_lookup(key.cls, "__index__"), types.FunctionType):
            return _index(state, run_inline(state, call(state, bind(state, found, key, key.cls, "__index__"), [], {})))
        case ObjectValue(storage=Constant()):
            return _index(state, key.storage)
        case TensorValue():
            raise unsupported(state, "TW103", "an index into a list")
        case _:
            raise_error(state, TypeError, f"list indices must be integers or slices, not {python_type(key).__name__}")


def sequence_item(state: State, value: ListValue | TupleValue, key: Value) -> Value:
    index = _index(state, key)
    try:
        found = value.items[index]
    except IndexError:
        raise_error(state, IndexError, f"{value.cls.__name__} index out of range")
    if not isinstance(index, slice):
        return found
    if isinstance(value, ListValue):
        return ListValue(list(found))
    return TupleValue(found, cls=value.cls if value.cls.__name__ == "Size" else tuple)


def dict_item(state: State, value: DictValue, key: Value) -> Result:
    if (written := read_unread_key(value, key)) is not None:
        return written
    found = read_key(state, value, key_of(state, key))
    if found is not None:
        return found
    if value.factory is not None and value.factory is not NONE:
        made = state.call(value.factory, [])
        write_key(state, value, key_of(state, key), key, made)
        return made
    raise_error(state, KeyError, key)


def _class_item(state: State, value: Constant, key: Value) -> Result:
    """`Class[key]`: generic aliases, enum members by name, `__class_getitem__`."""
    cls = value.value
    if hasattr(type(cls), "__getitem__") or not _has_user_class_getitem(cls):
        try:
            return from_python(state, cls[as_python(state, key)])
        except NotConstant:
            return value
        except KeyError as error:
            raise_real(state, error)
    found = state.type_lookup(value, "__class_getitem__")
    return call(state, bind(state, found, None, value, "__class_getitem__"), [key], {})


def _has_user_class_getitem(cls: type) -> bool:
    found = next((base.__dict__["__class_getitem__"] for base in cls.__mro__ if "__class_getitem__" in base.__dict__), None)
    return isinstance(getattr(found, "__func__", None), types.FunctionType) and found.__func__.__module__ != "typing"


def _constant_item(state: State, value: Constant, key: Value) -> Value:
    if isinstance(key, ObjectValue) and isinstance(value.value, str | bytes | range):
        key = Constant(_index(state, key))
    try:
        return from_python(state, value.value[as_python(state, key)])
    except NotConstant:
        raise unsupported(state, "TW104", "subscript", type(value.value).__name__) from None
    except (LookupError, TypeError) as error:
        raise_real(state, error)


def _object_item(state: State, value: ObjectValue, key: Value) -> Result:
    found = state.type_lookup(value.cls, "__getitem__")
    if found is MISSING:
        raise_error(state, TypeError, f"'{value.cls.value.__name__}' object is not subscriptable")
    if isinstance(found, types.FunctionType):
        return call(state, wrap(state, found, class_attribute_source(value.cls, "__getitem__"), True), [value, key], {})
    if isinstance(value.storage, DictValue) and read_key(state, value.storage, key_of(state, key)) is None:
        missing = state.type_lookup(value.cls, "__missing__")
        if isinstance(missing, types.FunctionType):
            return call(state, wrap(state, missing, class_attribute_source(value.cls, "__missing__"), True), [value, key], {})
    if value.storage is not None:
        return get_item(state, value.storage, key)
    raise unsupported(state, "TW104", "subscript", value.cls.value.__name__)


def set_item(state: State, value: Value, key: Value, new: Value) -> Result | None:
    if state.overrides and not _has_own(state, value, "__setitem__") and overridden_operator(state, operator.setitem, value, key, new) is not None:
        return None
    match value:
        case TensorValue():
            return _set_tensor_item(state, value, key, new)
        case ArrayValue():
            return write_array(state, operator.setitem, value, key, new)
        case ListValue():
            return _set_list_item(state, value, key, new)
        case DictValue() if is_written_unread(state, value, key):
            return write_unread(state, value, key, new)
        case DictValue():
            return write_key(state, value, key_of(state, key), key, new)
        case ObjectValue():
            found = state.type_lookup(value.cls, "__setitem__")
            if isinstance(found, types.FunctionType):
                return call(state, wrap(state, found, class_attribute_source(value.cls, "__setitem__"), True), [value, key, new], {})
            if found is not MISSING and value.storage is not None:
                return set_item(state, value.storage, key, new)
            if found is not MISSING:
                raise unsupported(state, "TW106", f"an item of {value.cls.value.__name__}")
    return _refuse_item(state, value, "does not support item assignment")


def _refuse_item(state: State, value: Value, why: str) -> NoReturn:
    cls = python_type(value)
    if cls in IMMUTABLE or isinstance(value, TupleValue):
        raise_error(state, TypeError, f"'{cls.__name__}' object {why}")
    raise unsupported(state, "TW106", f"an item of {cls.__name__}")


IMMUTABLE = (int, float, complex, bool, str, bytes, range, type(None), set, frozenset)


def _set_tensor_item(state: State, value: TensorValue, key: Value, new: Value) -> None:
    key = with_numbers(state, key)
    view = selected(state, value, key)
    if view is not None:
        value, key = view, Constant(Ellipsis)
    if is_free_copy(value, key, new):
        view = call_torch(state, operator.getitem, [value, key], {})
        if new.trace.dim() <= view.trace.dim():
            call_torch(state, torch.Tensor.copy_, [view, new], {})
            return
    try:
        run_trace(state, operator.setitem, [value.trace, to_trace(key), to_trace(new)], {})
    except NotTensorArguments:
        raise unsupported(state, "TW106", "an item of Tensor") from None
    add_node(state, operator.setitem, [value, key, new], {})
    if state.is_hanging:
        refuse_caught_error(state, "setitem")


def _set_list_item(state: State, value: ListValue, key: Value, new: Value) -> None:
    index = _index(state, key)
    items = list(value.items)
    try:
        items[index] = items_of(state, new) if isinstance(index, slice) else new
    except (IndexError, ValueError) as error:
        raise_real(state, error)
    replace_items(state, value, items)


def delete_item(state: State, value: Value, key: Value) -> Result | None:
    match value:
        case ListValue():
            items = list(value.items)
            try:
                del items[_index(state, key)]
            except IndexError as error:
                raise_real(state, error)
            return replace_items(state, value, items)
        case DictValue():
            if read_key(state, value, key_of(state, key)) is None:
                raise_error(state, KeyError, key)
            return delete_key(state, value, key_of(state, key), key)
        case ObjectValue():
            found = state.type_lookup(value.cls, "__delitem__")
            if isinstance(found, types.FunctionType):
                return call(state, wrap(state, found, class_attribute_source(value.cls, "__delitem__"), True), [value, key], {})
            if found is not MISSING and value.storage is not None:
                return delete_item(state, value.storage, key)
            if found is not MISSING:
                raise unsupported(state, "TW106", f"an item of {value.cls.value.__name__}")
    return _refuse_item(state, value, "doesn't support item deletion")
