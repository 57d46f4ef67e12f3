"""Arithmetic on symbolic sizes: done by torch.SymInt for the value, by an operator node where the graph needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thruway.capture.state import State
from thruway.capture.tensors import to_node, to_trace
from thruway.capture.values.base import Value
from thruway.capture.values.constants import SIZE_TYPES, from_python, size_value


def size_operation(state: State, function: Callable[..., Any], *operands: Value) -> Value:
    """`function(*operands)`, at least one of them a SizeValue."""
    result = function(*(to_trace(one) for one in operands))
    if not isinstance(result, SIZE_TYPES):
        return from_python(state, result)

    def make_node(state: State) -> Any:
        node = state.graph.create_node("call_function", function, tuple(to_node(state, one) for one in operands))
        node.meta["example_value"], node.meta["line"] = result, state.where()
        return node
    return size_value(state, result, make_node)
