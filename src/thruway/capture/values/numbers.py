"""Numbers and truth values that tensors hold: what the graph knows them by, comparisons of them, and what a branch asks for.

Python compares such numbers as float64 and int64; so do the tensors made here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.caught import may_be_caught
from thruway.capture.state import State
from thruway.capture.tensors import call_torch, result_value, size_node
from thruway.capture.values.base import Constant, DictValue, SizeValue, TensorValue, TupleValue, Value, holds_element
from thruway.capture.values.effect import record
from thruway.core.sizes import Size, SizeLike, Symbol, show, symbols
from thruway.shapes.floats import BoolElementNode, Element, IntElementNode
from thruway.shapes.known_elements import known_number
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import dtype_name
from thruway.shapes.nodes import make_node
from thruway.shapes.symbolic import SizeNode, bare
from thruway.shapes.trace_tensor import from_meta

EXACT, INT64 = 1 << 53, 1 << 63
SMALL, STEP = 1 << 40, 1 << 20           # of numbers that loops count: where they start, and how far a round may take them
NUMBERS = {torch.SymBool: bool, torch.SymInt: int, torch.SymFloat: float}
WIDE = {bool: torch.bool, int: torch.int64, float: torch.float64}


def kind_of_number(value: Value) -> type | None:
    """bool, int or float, where the value is one that a tensor can hold exactly, or that one holds."""
    match value:
        case Constant(value=bool() | float()):
            return type(value.value)
        case Constant(value=int(number)) if type(number) is int and -INT64 <= number < INT64:
            return int
        case SizeValue() if is_element(value):
            return NUMBERS[type(value.size)]
        case _:
            return None


def kind_of_any(value: Value) -> type | None:
    """The same, also of a number that comes in from outside, or from sizes."""
    found = kind_of_number(value)
    return NUMBERS.get(type(value.size)) if found is None and isinstance(value, SizeValue) else found


def is_element(value: Value) -> bool:
    """Whether a tensor holds the number, or it is made of such numbers."""
    return isinstance(value, SizeValue) and holds_element(value.size)


def is_truth(value: Value) -> bool:
    return isinstance(value, SizeValue) and isinstance(value.size.node, BoolElementNode)


def truth_value(state: State, condition: TensorValue) -> SizeValue:
    """The Python bool that a 0-dim bool tensor holds; nobody else writes the tensor."""
    return SizeValue(torch.SymBool(BoolElementNode(Element(condition.node), True, state.facts)))


def number_value(state: State, tensor: TensorValue, kind: type) -> SizeValue:
    """The number in a 0-dim tensor that nobody else writes."""
    if kind is bool:
        return truth_value(state, tensor)
    made: SizeValue = state.known[torch.Tensor.item](state, [tensor], {})
    if (distance := state.counted.get(id(tensor.trace))) is not None and isinstance(made, SizeValue):
        state.counters[show(state.facts.number_of(made.size.node.expression.node).size)] = tensor, distance
    return made


def counted_distance(state: State, value: Value) -> int | None:
    """How far an integer has come from what its round of a loop started with, in steps that need more time to reach the end of int64 than there
    is; None of other values."""
    if isinstance(value, Constant) and type(value.value) is int and abs(value.value) < SMALL:
        return 0
    found = _counter(state, value)
    return None if found is None else found[2]


def _counter(state: State, value: Value) -> tuple[TensorValue, int, int] | None:
    """The tensor behind a counter, what is added to its number, and the distance of both."""
    node = value.size.node if isinstance(value, SizeValue) else None
    if isinstance(node, IntElementNode):
        node = state.facts.number_of(node.expression.node)
    if not state.counters or type(node) is not SizeNode or not isinstance(node.size, Size):
        return None
    terms = dict(node.size.terms)
    added = terms.pop((), 0)
    (monomial, factor), *others = terms.items()
    if others or factor != 1 or len(monomial) != 1 or not isinstance(monomial[0], Symbol) or monomial[0].name not in state.counters:
        return None
    tensor, distance = state.counters[monomial[0].name]
    distance += abs(added)
    return (tensor, added, distance) if distance <= STEP else None


def _counter_tensor(state: State, value: Value) -> TensorValue | None:
    if (found := _counter(state, value)) is None:
        return None
    tensor, added, distance = found
    if not added:
        return tensor
    made = call_torch(state, torch.add, [tensor, Constant(added)], {})
    state.counted[id(made.trace)] = distance
    return made


def joined_number(state: State, tensor: TensorValue, leaves: tuple[Value, Value], kind: type) -> SizeValue:
    """The number in a tensor that a branch chose from two."""
    distances = [counted_distance(state, one) for one in leaves] if kind is int else [None]
    if None not in distances:
        state.counted[id(tensor.trace)] = max(distances)
    return number_value(state, tensor, kind)


def tensor_of_truth(state: State, value: SizeValue) -> TensorValue:
    return state.by_trace[id(value.size.node.expression.node.meta["example_value"])]


def number_tensor(state: State, value: Value) -> TensorValue:
    """A 0-dim tensor of the number."""
    if is_truth(value):
        return tensor_of_truth(state, value)
    if (counter := _counter_tensor(state, value)) is not None:
        return counter
    dtype = WIDE[kind_of_any(value)]
    number = value.value if isinstance(value, Constant) else size_node(state, value)
    node = make_node(state.graph, "call_function", torch.scalar_tensor, (number,), {"dtype": dtype, "device": "cpu"})
    node.meta["line"] = state.where()
    if isinstance(value, SizeValue) and type(value.size.node) is SizeNode:
        node.meta["opaque"] = True                          # it fails where int64 is too narrow
        if state.sides:
            state.sides[-1].unselectable = "an integer may be too large for a tensor"
    return result_value(state, node, from_meta(TensorMeta((), (), dtype_name(dtype), "cpu", False)))


def size_tensor(state: State, value: SizeValue) -> TensorValue:
    """A 0-dim tensor of an integer that is a size, or may be one: int64 is wide enough."""
    node = make_node(state.graph, "call_function", torch.scalar_tensor, (size_node(state, value),), {"dtype": torch.int64, "device": "cpu"})
    node.meta["line"] = state.where()
    return result_value(state, node, from_meta(TensorMeta((), (), "int64", "cpu", False)))


def compare_elements(state: State, function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value | None:
    """The truth value of a comparison with a number from a tensor; None where tensors would not compare as Python does."""
    if (known := _known_comparison(state, function, left, right)) is not None:
        return Constant(known)
    left, right = _alike(left, right), _alike(right, left)
    kinds = kind_of_any(left), kind_of_any(right)
    if kinds not in ((int, int), (float, float)) and not (kinds == (bool, bool) and function in (operator.eq, operator.ne)):
        return None
    operands = [one if isinstance(one, Constant) else number_tensor(state, one) for one in (left, right)]
    result = call_torch(state, function, operands, {})
    if not isinstance(result, TensorValue):
        return None
    if (sizes := _sizes(left, right)) is not None:
        state.relations[id(result.trace)] = sizes[0], SIGNS[function], sizes[1]
    return truth_value(state, result)


def divide_elements(state: State, left: Value, right: Value) -> Value | None:
    """`left / right` of floats, `right` from a tensor; None for other numbers. That it is not 0 is checked behind the graph."""
    left = Constant(float(left.value)) if isinstance(left, Constant) and type(left.value) is int and abs(left.value) <= EXACT else left
    if kind_of_number(left) is not float or kind_of_number(right) is not float:
        return None
    if may_be_caught(state, ZeroDivisionError):
        raise unsupported(state, "TW103", "a divisor, whose error would be caught here")
    quotient = call_torch(state, operator.truediv, [number_tensor(state, left), number_tensor(state, right)], {})
    record(state, "call", Constant(check_divisor), TupleValue((right,)), DictValue())
    return number_value(state, quotient, float)


def check_divisor(number: float) -> None:
    """Raises what dividing by `number` raises."""
    1.0 / number


def learn(state: State, condition: TensorValue, holds: bool) -> None:
    """What the condition says of integers, where they are sizes: for the side of the branch where it holds, or does not."""
    left, sign, right = state.relations.get(id(condition.trace), (0, "==", 0))
    if state.sides and any(one.name not in state.counters for side in (left, right) if isinstance(side, Size) for one in symbols(side)):
        state.sides[-1].unselectable = "what holds of sizes there holds on that side alone"
    match sign if holds else OPPOSITE[sign]:
        case ">" | ">=" as found:
            state.facts.raise_bound(left, right, found == ">")
        case "<" | "<=" as found:
            state.facts.raise_bound(right, left, found == "<")
        case "!=" if state.facts.surely(left, ">=", right):
            state.facts.raise_bound(left, right, True)


def _known_comparison(state: State, function: Callable[[Any, Any], Any], left: Value, right: Value) -> bool | None:
    """The answer where it holds for every number that the tensors may hold."""
    sizes = _sizes(left, right)
    if sizes is None:
        return None
    if state.facts.surely(sizes[0], SIGNS[function], sizes[1]):
        return True
    return False if state.facts.surely(sizes[0], OPPOSITE[SIGNS[function]], sizes[1]) else None


def _sizes(*values: Value) -> list[SizeLike] | None:
    """Integers that sizes may be made of; None where there are others."""
    found = [one.value if isinstance(one, Constant) else one.size.node for one in values]
    return [bare(one) for one in found] if all(type(one) in (int, SizeNode) for one in found) else None


SIGNS = {operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _alike(one: Value, other: Value) -> Value:
    """A constant in the type of the number that it is compared with, where that is the same number."""
    wanted = kind_of_number(other)
    if isinstance(one, Constant) and {type(one.value), wanted} == {int, float} and abs(one.value) <= EXACT and wanted(one.value) == one.value:
        return Constant(wanted(one.value))
    return one


def condition_of(state: State, value: Value) -> TensorValue | None:
    """A 0-dim bool tensor that holds the truth of a value read from a tensor; None for other values."""
    if state.transforms:
        return None                                         # what torch.func makes of it is not one value
    if is_element(value):
        tensor = number_tensor(state, value)
        return tensor if is_truth(value) else call_torch(state, torch.ne, [tensor, Constant(0)], {})
    if not isinstance(value, TensorValue) or not _has_one_element(value.trace) or known_number(value.trace) is not None:
        return None
    tensor = value if not value.trace.dim() else call_torch(state, torch.Tensor.reshape, [value, TupleValue(())], {})
    return tensor if tensor.trace.dtype is torch.bool else call_torch(state, torch.ne, [tensor, Constant(0)], {})


def _has_one_element(trace: torch.Tensor) -> bool:
    return all(type(size) is int for size in trace.shape) and trace.numel() == 1


def kept_condition(state: State, value: Value) -> TensorValue | None:
    """As `condition_of`, as a tensor that nobody writes."""
    tensor = condition_of(state, value)
    if tensor is None or is_element(value):
        return tensor
    return call_torch(state, torch.clone, [tensor], {})


def negated(state: State, condition: TensorValue) -> TensorValue:
    return call_torch(state, torch.logical_not, [condition], {})


def choose_number(state: State, condition: TensorValue, when_true: Value, when_false: Value) -> Value:
    """One of two numbers of the same kind."""
    kind = kind_of_any(when_true)
    if kind is bool and isinstance(when_true, Constant) and isinstance(when_false, Constant):
        return truth_value(state, call_torch(state, torch.clone, [condition], {}) if when_true.value else negated(state, condition))
    chosen = call_torch(state, torch.where, [condition, number_tensor(state, when_true), number_tensor(state, when_false)], {})
    return joined_number(state, chosen, (when_true, when_false), kind)
