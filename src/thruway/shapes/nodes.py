"""One node into a `torch.fx.Graph`, without what `Graph.create_node` spends on arguments."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node


def make_node(graph: Graph, op: str, target: Any, args: Any = (), kwargs: Any = None, name: str | None = None) -> Node:
    """`Graph.create_node` with the arguments set afterwards, which spares it a slow look through them for raw SymInts."""
    node = graph.create_node(op, target, name=name)
    if args:
        node.args = args
    if kwargs:
        node.kwargs = kwargs
    return node
