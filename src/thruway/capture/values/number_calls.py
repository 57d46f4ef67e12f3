"""Python's own functions of numbers that tensors hold: calls in the graph, which Python makes when it runs, between compiled pieces.

What they raise there, the function itself raises: it runs then, from its start.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.caught import writes_inputs
from thruway.capture.conditional import SideRaises
from thruway.capture.state import State
from thruway.capture.tensors import call_torch, size_node
from thruway.capture.values.base import Constant, SizeValue, Value
from thruway.capture.values.number_index import number_of
from thruway.capture.values.numbers import is_element, is_truth, kind_of_any, number_value, tensor_of_truth
from thruway.shapes.nodes import make_node

OF_FLOATS = frozenset({
    math.sqrt, math.exp, math.expm1, math.log, math.log2, math.log10, math.log1p, math.sin, math.cos, math.tan, math.asin, math.acos, math.atan, math.atan2,
    math.sinh, math.cosh, math.tanh, math.fabs, math.hypot, math.pow, math.degrees, math.radians, math.erf, math.erfc, math.gamma, math.lgamma,
    math.copysign, math.fmod, operator.truediv, operator.itruediv, float, torch.sym_float,
})
TO_INTEGERS = frozenset({math.floor, math.ceil, math.trunc, int, torch.sym_int})
WIDENING = frozenset({
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod,
})
POWERS = frozenset({operator.pow, operator.ipow, pow})
PLAIN = {torch.sym_float: float, torch.sym_int: int}


class NumberCall:
    """`function`, whose result is of type `kind` where nothing is raised."""

    def __init__(self, function: Callable[..., Any], kind: type):
        self.function, self.kind = function, kind
        self.__name__ = self.__qualname__ = f"python_{function.__name__}"

    def __call__(self, *numbers: Any) -> Any:
        try:
            result = self.function(*numbers)
        except (ArithmeticError, ValueError) as error:
            raise SideRaises("Python raises for a number that a tensor holds") from error
        if type(result) is not self.kind:
            raise SideRaises("a number that a tensor holds has a result of another type")
        return result


def call_with_numbers(state: State, function: Callable[..., Any], args: list[Value]) -> Value | None:
    """The call in the graph; None where no argument comes from a tensor, or what comes out is not known to be an int or a float."""
    if not any(map(is_element, args)) or state.transforms or writes_inputs(state):
        return None
    numbers = [_as_integer(state, one) if is_truth(one) else one for one in args]
    kind = _kind_of_result(function, numbers)
    if kind is None:
        return None
    operands = tuple(one.value if isinstance(one, Constant) else size_node(state, one) for one in numbers)
    node = make_node(state.graph, "call_function", NumberCall(PLAIN.get(function, function), kind), operands)
    node.meta.update(line=state.where(), opaque=True)
    if state.sides:
        state.sides[-1].unselectable = "a function of Python runs only where it is asked for"
    return number_of(state, node, kind is float)


def _as_integer(state: State, truth: SizeValue) -> Value:
    tensor = call_torch(state, torch.Tensor.to, [tensor_of_truth(state, truth), Constant(torch.int64)], {})
    return number_value(state, tensor, int)


def _kind_of_result(function: Callable[..., Any], numbers: list[Value]) -> type | None:
    kinds = [kind_of_any(one) for one in numbers]
    if not all(kind in (int, float) for kind in kinds):
        return None
    if function in OF_FLOATS:
        return float
    if function in TO_INTEGERS and len(kinds) == 1:
        return int
    if function in WIDENING and len(kinds) == 2:
        return float if float in kinds else int
    if function in POWERS and len(kinds) == 2:
        return _kind_of_power(kinds, numbers[1])
    if function in (abs, operator.abs, operator.neg):
        return kinds[0]
    if function is round:
        return int if len(kinds) == 1 else kinds[0] if len(kinds) == 2 and kinds[1] is int else None
    return None


def _kind_of_power(kinds: list[type | None], exponent: Value) -> type | None:
    if float in kinds:
        return float
    return (int if exponent.value >= 0 else float) if isinstance(exponent, Constant) else None
