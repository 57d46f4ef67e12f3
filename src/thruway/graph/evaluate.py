"""Runs an ATen graph on real tensors, operator by operator: the reference for tests, and the backend where there is no C compiler."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg


def evaluate(graph: Graph, inputs: Sequence[object]) -> tuple[object, ...]:
    """What the graph returns for `inputs` (tensors and sizes, one per placeholder). Inputs are written where the graph writes them.

    A value is dropped after its last use. ValueError where the numbers of inputs and placeholders differ.
    """
    last_use = _last_uses(graph)
    remaining = list(inputs)
    values: dict[Node, object] = {}
    for node in graph.nodes:
        match node.op:
            case "placeholder":
                if not remaining:
                    raise ValueError(f"no input for the placeholder {node}")
                values[node] = remaining.pop(0)
            case "get_attr":
                values[node] = node.meta["constant"]
            case "call_function":
                values[node] = _call(node, values)
            case "output":
                return tuple(map_arg(node.args[0], values.__getitem__))
            case _:
                raise ValueError(f"a graph node that cannot be run: {node.format_node()}")
        for dead in last_use.get(node, ()):
            values.pop(dead, None)
    raise ValueError("a graph without an output node")


def _call(node: Node, values: dict[Node, object]) -> object:
    args = map_arg(node.args, values.__getitem__)
    kwargs = map_arg(node.kwargs, values.__getitem__)
    return node.target(*args, **kwargs)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node, the values that nothing after it reads."""
    uses: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        for used in (node, *node.all_input_nodes):
            if used not in seen:
                seen.add(used)
                uses.setdefault(node, []).append(used)
    return uses


def constant_node(graph: Graph, name: str, value: torch.Tensor) -> Node:
    """A `get_attr` node whose tensor travels in `node.meta["constant"]`; it must not be written."""
    node = graph.create_node("get_attr", name)
    node.meta["constant"] = value
    return node
