"""Subscripts of tensors by integers that change or depend on elements: torch's own indexing needs their values, `select` does not."""

from __future__ import annotations

from typing import NoReturn

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.caught import writes_inputs
from thruway.capture.state import State, UserRaise
from thruway.capture.tensors import READS_NUMBERS, add_node, call_torch, result_value, run_trace, size_node
from thruway.capture.values.base import NONE, Constant, ListValue, SizeValue, SliceValue, TensorValue, TupleValue, Value
from thruway.capture.values.constants import as_python
from thruway.capture.values.errors import raise_error
from thruway.capture.values.numbers import is_element
from thruway.core.errors import out_of_range
from thruway.shapes.known_elements import known_number
from thruway.shapes.floats import IntElementNode, IntInputNode, element
from thruway.shapes.nodes import make_node
from thruway.shapes.symbolic import SizeNode, as_node

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)
EVERYTHING = SliceValue(NONE, NONE, NONE)


def selected(state: State, value: TensorValue, key: Value) -> TensorValue | None:
    """`value[key]` as a view, where `key` is made of integers, some of which are symbols, slices, None and `...`; else None."""
    parts = _parts(key)
    if not any(map(_is_number, parts)) or not all(map(_is_basic, parts)):
        return None
    rank, result_dim = value.trace.dim(), 0
    consumed = sum(not _is(part, None) and not _is(part, Ellipsis) for part in parts)
    if consumed > rank:
        return None
    if state.effects.steps and any(map(_is_unknown, parts)) and writes_inputs(state):
        raise unsupported(state, "TW103", "an integer in a subscript: out of range, it raises behind a write and an effect that are seen outside")
    plain: list[Value] = []
    places: list[tuple[int, Value, int]] = []
    for at, part in enumerate(parts):
        if _is_number(part):
            places.append((result_dim, part, at))
        plain.append(EVERYTHING if _is_number(part) else part)
        result_dim += rank - consumed if _is(part, Ellipsis) else not (isinstance(part, Constant) and type(part.value) is int)
    if any(part is not EVERYTHING for part in plain):
        try:
            value = call_torch(state, torch.Tensor.__getitem__, [value, TupleValue(tuple(plain))], {})
        except UserRaise:                                        # a number before it may be out of range, and then raises first
            raise unsupported(state, "TW112", "a subscript", "it is out of range, and others in it are known at run time only") from None
    for taken, (dim, part, position) in enumerate(places):       # in eager's order: the first one out of range is the one that raises
        before, number = value, _number(state, part)
        try:
            value = call_torch(state, torch.Tensor.select, [value, Constant(dim - taken), number], {})
        except UserRaise:
            _raise_as_subscript(state, before, dim - taken, number, position)
        value.node.meta["subscript"] = position
    return value


def _raise_as_subscript(state: State, value: TensorValue, dim: int, number: Value, position: int) -> NoReturn:
    """What the subscript says where `select` refuses the integer that stands at `position` in it."""
    raise_error(state, IndexError, out_of_range(as_python(state, number), position, int(value.trace.shape[dim])))


def is_free_copy(value: TensorValue, key: Value, new: Value) -> bool:
    """Whether `value[key] = new` is a copy into a view, of sizes that torch's own indexing would have to know."""
    if not isinstance(new, TensorValue) or not all(map(_is_basic, _parts(key))):
        return False
    return any(isinstance(size, torch.SymInt) and as_node(size).is_free for size in new.trace.shape)


def _parts(key: Value) -> tuple[Value, ...]:
    return key.items if isinstance(key, TupleValue) and key.cls is tuple else (key,)


def with_numbers(state: State, key: Value) -> Value:
    """The subscript with numbers for tensors that bound its slices, and tensors for lists that hold integers which are data."""
    match key:
        case ListValue() if any(map(_is_data, key.items)) and all(_is_data(one) or _is_int(one) for one in key.items):
            return call_torch(state, torch.stack, [ListValue([_scalar(state, one) for one in key.items])], {})
        case SliceValue() if any(map(_is_bound, (key.start, key.stop, key.step))):
            return SliceValue(*(_number(state, part) if _is_bound(part) else part for part in (key.start, key.stop, key.step)))
        case TupleValue():
            return TupleValue(tuple(with_numbers(state, part) if isinstance(part, SliceValue | ListValue) else part for part in key.items))
        case _:
            return key


def _is_bound(part: Value) -> bool:
    return isinstance(part, TensorValue) and _is_number(part)


def _is_data(part: Value) -> bool:
    return isinstance(part, SizeValue) and isinstance(part.size.node, IntInputNode)


def _is_int(part: Value) -> bool:
    return isinstance(part, Constant) and type(part.value) is int


def _scalar(state: State, part: Value) -> Value:
    number = part.value if isinstance(part, Constant) else size_node(state, part)
    node = make_node(state.graph, "call_function", torch.scalar_tensor, (number,), {"dtype": torch.int64, "device": "cpu"})
    node.meta["line"] = state.where()
    return result_value(state, node, run_trace(state, torch.scalar_tensor, [1], {"dtype": torch.int64, "device": "cpu"}))


def read_number(state: State, tensor: TensorValue, is_float: bool) -> SizeValue:
    """The number that a tensor of one element holds."""
    return number_of(state, add_node(state, READS_NUMBERS[0], [tensor], {}), is_float)


def number_of(state: State, node: torch.fx.Node, is_float: bool) -> SizeValue:
    """The number that the graph's `node` reads."""
    made = element(node, is_float, state.facts)
    node.meta["number"] = float if is_float else state.facts.name_of(node)
    return SizeValue(torch.SymFloat(made) if is_float else torch.SymInt(made))


def _number(state: State, part: Value) -> Value:
    if not isinstance(part, TensorValue):
        return part
    found = known_number(part.trace)
    return read_number(state, part, False) if found is None else Constant(found)


def _is_number(part: Value) -> bool:
    match part:
        case SizeValue(size=torch.SymInt()):
            node = part.size.node
            return isinstance(node, IntElementNode | SizeNode)
        case TensorValue():
            return not part.trace.dim() and part.trace.dtype in INTEGERS
        case _:
            return False


def _is_unknown(part: Value) -> bool:
    """Whether it is known when the graph runs only."""
    return isinstance(part, TensorValue) or is_element(part)


def _is_basic(part: Value) -> bool:
    if isinstance(part, Constant):
        return part.value is None or part.value is Ellipsis or type(part.value) is int
    return isinstance(part, SliceValue) or _is_number(part)


def _is(part: Value, constant: object) -> bool:
    return isinstance(part, Constant) and part.value is constant
