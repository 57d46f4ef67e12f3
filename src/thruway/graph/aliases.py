"""Which node shares whose storage in an ATen graph: the root of every tensor node and the chain of views that leads to it."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from torch._ops import OpOverload
from torch.fx import Graph, Node

from thruway.shapes.meta import TensorMeta
from thruway.shapes.traits import Traits, traits_of

INPUT, CONSTANT, FRESH = "input", "constant", "fresh"


@dataclass(frozen=True, slots=True)
class Place:
    """`root`: the node that owns the storage. `parent`: the node this one is a view of, None for the root itself."""

    root: Node
    parent: Node | None


def node_traits(node: Node) -> Traits | None:
    return traits_of(node.target) if isinstance(node.target, OpOverload) else None


def written_arguments(node: Node) -> list[Node]:
    """The tensor nodes that `node` writes."""
    traits = node_traits(node)
    if traits is None:
        return []
    found: list[Node] = []
    for where in traits.writes:
        value = _argument(node, where)
        found += [v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, Node)]
    return found


def _argument(node: Node, where: int | str) -> object:
    if isinstance(where, int):
        return node.args[where] if where < len(node.args) else node.kwargs.get(node.target._schema.arguments[where].name)
    return node.kwargs.get(where)


def root_kind(root: Node) -> str:
    return {"placeholder": INPUT, "get_attr": CONSTANT}.get(root.op, FRESH)


def place_nodes(graph: Graph) -> dict[Node, Place]:
    """The place of every node whose value is a tensor (or a tuple of views)."""
    places: dict[Node, Place] = {}
    for node in graph.nodes:
        parent = view_parent(node, places)
        if parent is not None:
            places[node] = Place(places[parent].root, parent)
        elif isinstance(node.meta.get("value"), TensorMeta):
            places[node] = Place(node, None)
    return places


def view_parent(node: Node, places: dict[Node, Place]) -> Node | None:
    """The node whose storage `node` looks at. An in-place operator is a view of what it writes."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source = node.args[0]
        return source if source in places and places[source].parent is not None else None
    traits = node_traits(node)
    if traits is None:
        return None
    if traits.inplace:
        return _known(node.args[0], places)
    if traits.view_of is not None:
        return _known(_argument(node, traits.view_of), places)
    return None


def _known(value: object, places: dict[Node, Place]) -> Node | None:
    return value if isinstance(value, Node) and value in places else None
