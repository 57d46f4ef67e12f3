"""Questions about what tensors hold, answered by a truth value that stays in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import call_torch, result_value, to_node
from thruway.capture.values.base import TensorValue, Value
from thruway.capture.values.call import call_pure
from thruway.capture.values.numbers import is_element, kept_condition, number_tensor, truth_value
from thruway.shapes.meta import TensorMeta
from thruway.shapes.nodes import make_node
from thruway.shapes.trace_tensor import from_meta

Args = list[Value]
Kwargs = dict[str, Value]


def truth_of_tensor(state: State, args: Args, kwargs: Kwargs) -> Value:
    held = kept_condition(state, args[0])
    if held is None:
        raise unsupported(state, "TW103", "the truth of a tensor")
    return truth_value(state, held)


def answered(function: Callable[..., bool]) -> Callable[[State, Args, Kwargs], Value]:
    """A question of torch's whose answer depends on elements: torch itself answers it when the graph runs."""
    asked = Asked(function)

    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if state.transforms or not all(isinstance(one, TensorValue) for one in args[:2]) or len(args) < 2:
            raise unsupported(state, "TW103", f"torch.{function.__name__}")
        nodes = tuple(to_node(state, one) for one in args)
        node = make_node(state.graph, "call_function", asked, nodes, {name: to_node(state, one) for name, one in kwargs.items()})
        node.meta.update(line=state.where(), opaque=True)
        if state.sides:
            state.sides[-1].unselectable = f"torch.{function.__name__} runs only where it is asked for"
        return truth_value(state, result_value(state, node, from_meta(TensorMeta((), (), "bool", "cpu", False))))
    return handler


class Asked:
    """`function`, with its answer in a tensor."""

    def __init__(self, function: Callable[..., bool]):
        self.function = function
        self.__name__ = self.__qualname__ = f"asked_{function.__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor(self.function(*args, **kwargs))


def classified(function: Callable[[float], bool], torch_function: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """math.isnan and its like, also of numbers that tensors hold."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or not is_element(args[0]):
            return call_pure(state, function, args, kwargs)
        return truth_value(state, call_torch(state, torch_function, [number_tensor(state, args[0])], {}))
    return handler


ROWS = {
    torch.equal: answered(torch.equal), torch.allclose: answered(torch.allclose), torch.Tensor.equal: answered(torch.Tensor.equal),
    torch.Tensor.allclose: answered(torch.Tensor.allclose),
    torch.is_nonzero: truth_of_tensor, torch.Tensor.is_nonzero: truth_of_tensor, torch.Tensor.__bool__: truth_of_tensor,
    math.isnan: classified(math.isnan, torch.isnan), math.isinf: classified(math.isinf, torch.isinf),
    math.isfinite: classified(math.isfinite, torch.isfinite),
}
