"""len, sum, min, max, any, all, abs, round, sorted and the like."""

from __future__ import annotations

import operator
import types
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.known_calls.rounding import rounded as rounded_size
from thruway.capture.state import Inline, State
from thruway.capture.tensors import call_torch
from thruway.capture.values.attribute import bind
from thruway.capture.values.base import (
    FALSE, NONE, TRUE, Constant, ListValue, ObjectValue, SizeValue, TensorValue, TupleValue, Value,
)
from thruway.capture.values.binary import binary, divide_with_rest, unary
from thruway.capture.values.call import call, call_pure, run_inline
from thruway.capture.values.compare import boolean, compare, contains, identical
from thruway.capture.values.errors import raise_as_python_does, raise_error
from thruway.capture.values.length import length_of
from thruway.capture.values.iterate import Exhausted, items_of, iterator_of, next_value
from thruway.capture.values.number_calls import call_with_numbers
from thruway.capture.values.numbers import choose_number, condition_of, is_element, is_truth, kind_of_number, tensor_of_truth, truth_value
from thruway.capture.values.order import sort_values
from thruway.capture.values.sizes import size_operation
from thruway.capture.values.subscript import delete_item, get_item, set_item
from thruway.capture.values.truth import truth
from thruway.capture.values.types_ import python_type
from thruway.frame.guard import MISSING
from thruway.shapes.symbolic import SizeNode

Args = list[Value]
Kwargs = dict[str, Value]
Result = Value | Inline


def length(state: State, args: Args, kwargs: Kwargs) -> Result:
    return length_of(state, args[0])


def total(state: State, args: Args, kwargs: Kwargs) -> Value:
    result = args[1] if len(args) > 1 else kwargs.get("start", Constant(0))
    for item in items_of(state, args[0]):
        result = run_inline(state, binary(state, "+", result, item))
    return result


def _extreme(symbol: str, function: Any):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        key = None if kwargs.get("key") is NONE else kwargs.get("key")
        items = items_of(state, args[0]) if len(args) == 1 else args
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            raise_as_python_does(state, lambda: function(()))
        best = items[0]
        best_key = _keyed(state, key, best)
        for item in items[1:]:
            item_key = _keyed(state, key, item)
            if key is None and is_element(best) | is_element(item) and not _are_sizes(best, item):
                best = best_key = _extreme_element(state, symbol, item, best)
            elif key is None and SizeValue in {type(best_key), type(item_key)} <= {SizeValue, Constant}:
                best = best_key = size_operation(state, EXTREMES[function] if _is_whole(best_key) and _is_whole(item_key) else function, best_key, item_key)
            elif truth(state, run_inline(state, compare(state, symbol, item_key, best_key))):
                best, best_key = item, item_key
        return best
    return handler


def _are_sizes(*values: Value) -> bool:
    """Whether they are integers, one of which is a size that depends on elements."""
    return all(map(_is_whole, values)) and any(isinstance(one, SizeValue) and isinstance(one.size.node, SizeNode) and one.size.node.is_free for one in values)


def _is_whole(value: Value) -> bool:
    return isinstance(getattr(value, "size", None), torch.SymInt) or type(getattr(value, "value", None)) is int


EXTREMES = {min: torch.sym_min, max: torch.sym_max}


def _extreme_element(state: State, symbol: str, item: Value, best: Value) -> Value:
    """`item if item > best else best` where a tensor holds one of them."""
    greater = compare(state, symbol, item, best) if kind_of_number(item) is kind_of_number(best) else NONE
    if not is_truth(greater):
        raise unsupported(state, "TW103", "the greater or lesser of numbers of two types")
    return choose_number(state, tensor_of_truth(state, greater), item, best)


def _keyed(state: State, key: Value | None, item: Value) -> Value:
    return item if key is None or key is NONE else state.call(key, [item])


def any_of(state: State, args: Args, kwargs: Kwargs) -> Value:
    return _first_with(state, args[0], True, TRUE, FALSE)


def all_of(state: State, args: Args, kwargs: Kwargs) -> Value:
    return _first_with(state, args[0], False, FALSE, TRUE)


def _first_with(state: State, iterable: Value, wanted: bool, found: Value, otherwise: Value) -> Value:
    if isinstance(iterable, ListValue | TupleValue) and (held := _held_truth(state, list(iterable.items), wanted)) is not None:
        return held
    iterator = iterator_of(state, iterable)
    while True:
        try:
            if truth(state, next_value(state, iterator)) == wanted:
                return found
        except Exhausted:
            return otherwise


def _held_truth(state: State, items: list[Value], wanted: bool) -> Value | None:
    """What any() or all() says of items of which some are truths that tensors hold; None where none is, or an earlier item decides."""
    function = torch.logical_or if wanted else torch.logical_and
    held: TensorValue | None = None
    for one in items:
        condition = condition_of(state, one)
        if condition is None:
            if truth(state, one) == wanted:
                return None if held is None else boolean(wanted)
        else:
            held = condition if held is None else call_torch(state, function, [held, condition], {})
    return None if held is None else truth_value(state, call_torch(state, torch.clone, [held], {}))


def sorted_list(state: State, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(sort_values(state, items_of(state, args[0]), kwargs.get("key", NONE), kwargs.get("reverse", FALSE)))


def absolute(state: State, args: Args, kwargs: Kwargs) -> Result:
    (value,) = args
    match value:
        case TensorValue():
            return call_torch(state, operator.abs, args, {})
        case SizeValue():
            made = call_with_numbers(state, abs, args) if kind_of_number(value) is int else None
            return size_operation(state, abs, value) if made is None else made
        case ObjectValue():
            found = state.type_lookup(value.cls, "__abs__")
            if found is MISSING:
                raise_error(state, TypeError, f"bad operand type for abs(): '{value.cls.value.__name__}'")
            return call(state, bind(state, found, value, value.cls, "__abs__"), [], {})
        case _:
            return call_pure(state, abs, args, {})


def rounded(state: State, args: Args, kwargs: Kwargs) -> Result:
    if isinstance(args[0], ObjectValue) and isinstance(found := state.type_lookup(args[0].cls, "__round__"), types.FunctionType):
        return call(state, bind(state, found, args[0], args[0].cls, "__round__"), args[1:], kwargs)
    if isinstance(args[0], TensorValue):
        raise_error(state, TypeError, f"type {python_type(args[0]).__name__} doesn't define __round__ method")
    found = rounded_size(state, args, kwargs)
    return call_pure(state, round, args, kwargs) if found is None else found


def divided(state: State, args: Args, kwargs: Kwargs) -> Result:
    return divide_with_rest(state, *args)


def power(state: State, args: Args, kwargs: Kwargs) -> Result:
    return binary(state, "**", *args) if len(args) == 2 else call_pure(state, pow, args, kwargs)


def hash_of(state: State, args: Args, kwargs: Kwargs) -> Result:
    (value,) = args
    if isinstance(value, ObjectValue):
        found = state.type_lookup(value.cls, "__hash__")
        if isinstance(found, types.FunctionType):
            return call(state, bind(state, found, value, value.cls, "__hash__"), [], {})
        if value.storage is None or hasattr(found, "__code__"):
            raise unsupported(state, "TW101", "hash")
        return hash_of(state, [value.storage], {})
    if isinstance(value, TupleValue):
        parts = TupleValue(tuple(run_inline(state, hash_of(state, [one], {})) if isinstance(one, ObjectValue | TupleValue) else one for one in value.items))
        return call_pure(state, hash, [parts], {})
    return call_pure(state, hash, args, kwargs)


def identity_number(state: State, args: Args, kwargs: Kwargs) -> Value:
    raise unsupported(state, "TW101", "id")


def _operator(symbol: str):
    return lambda state, args, kwargs: binary(state, symbol, *args)


def _comparison(symbol: str):
    return lambda state, args, kwargs: compare(state, symbol, *args)


def _effect(function: Any):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        result = function(state, *args)
        if isinstance(result, Inline):
            state.finish_inline(result)
        return NONE
    return handler


ROWS = {
    len: length, sum: total, min: _extreme("<", min), max: _extreme(">", max), any: any_of, all: all_of, sorted: sorted_list,
    abs: absolute, round: rounded, divmod: divided, pow: power, hash: hash_of, id: identity_number,
    operator.add: _operator("+"), operator.sub: _operator("-"), operator.mul: _operator("*"), operator.truediv: _operator("/"),
    operator.floordiv: _operator("//"), operator.mod: _operator("%"), operator.pow: _operator("**"), operator.matmul: _operator("@"),
    operator.and_: _operator("&"), operator.or_: _operator("|"), operator.xor: _operator("^"), operator.lshift: _operator("<<"),
    operator.rshift: _operator(">>"), operator.iadd: _operator("+="), operator.isub: _operator("-="), operator.imul: _operator("*="),
    operator.itruediv: _operator("/="), operator.iand: _operator("&="), operator.ior: _operator("|="),
    operator.concat: _operator("+"),
    operator.eq: _comparison("=="), operator.ne: _comparison("!="), operator.lt: _comparison("<"), operator.le: _comparison("<="),
    operator.gt: _comparison(">"), operator.ge: _comparison(">="),
    operator.neg: lambda state, args, kwargs: unary(state, "-", args[0]), operator.pos: lambda state, args, kwargs: unary(state, "+", args[0]),
    operator.invert: lambda state, args, kwargs: unary(state, "~", args[0]), operator.abs: absolute,
    operator.not_: lambda state, args, kwargs: boolean(not truth(state, args[0])),
    operator.truth: lambda state, args, kwargs: boolean(truth(state, args[0])),
    operator.is_: lambda state, args, kwargs: boolean(identical(state, *args)),
    operator.is_not: lambda state, args, kwargs: boolean(not identical(state, *args)),
    operator.contains: lambda state, args, kwargs: boolean(contains(state, *args)),
    operator.getitem: lambda state, args, kwargs: get_item(state, *args),
    operator.setitem: _effect(set_item), operator.delitem: _effect(delete_item),
}
