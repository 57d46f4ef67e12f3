"""Functions of module `math` over numbers that change between calls: they stay expressions of their inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from thruway.capture.state import State
from thruway.capture.values.base import Constant, SizeValue, Value
from thruway.capture.values.call import call_pure
from thruway.capture.values.constants import from_python
from thruway.capture.values.numbers import is_element
from thruway.core.errors import Unsupported
from thruway.shapes.floats import FLOAT_FUNCTIONS, FloatNode
from thruway.shapes.symbolic import SizeNode

Args = list[Value]
Kwargs = dict[str, Value]


def row(function: Callable[..., float]) -> Callable[[State, Args, Kwargs], Value]:
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        nodes = [_as_float(state, one) for one in args]
        if kwargs or not any(isinstance(one, SizeValue) for one in args) or None in nodes:
            return call_pure(state, function, args, kwargs)
        try:
            return from_python(state, torch.SymFloat(nodes[0].through(function, *nodes[1:])))
        except Unsupported:                                 # it raises for this number
            return call_pure(state, function, args, kwargs)
    return handler


def _as_float(state: State, value: Value) -> FloatNode | None:
    """A number known before the run; None for other values."""
    match value:
        case Constant(value=int() | float() as number):
            return FloatNode(number, float(number), state.facts)
        case SizeValue(size=torch.SymInt() | torch.SymFloat() as size) if type(size.node) in (FloatNode, SizeNode) and not is_element(value):
            return size.node.sym_float()
        case _:
            return None


ROWS = {function: row(function) for function in FLOAT_FUNCTIONS}
