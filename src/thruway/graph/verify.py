"""`verify`: whether a graph keeps the room's conventions. Raises CompilerBug naming the node where it does not."""

from __future__ import annotations

import operator

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from thruway.core.errors import CompilerBug, Unsupported
from thruway.core.sizes import Size
from thruway.graph.aliases import CONSTANT, Place, node_traits, place_nodes, root_kind, written_arguments
from thruway.shapes.infer import infer, rule_for
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import Facts
from thruway.shapes.traits import traits_of

SIZE_FUNCTIONS = frozenset({operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, torch.sym_max, torch.sym_min})
ARGUMENT_TYPES = (Node, int, float, complex, bool, str, type(None), Size, torch.dtype, torch.device, torch.layout, torch.memory_format,
                  torch.Generator)


def verify(graph: Graph, facts: Facts | None = None) -> None:
    """Checks form, values against re-inference, and that no read goes through a view older than the last write to its storage.

    `facts` are those under which a graph with symbolic sizes was traced.
    """
    seen: set[Node] = set()
    outputs = [n for n in graph.nodes if n.op == "output"]
    if len(outputs) != 1 or next(iter(reversed(graph.nodes))) is not outputs[0]:
        raise CompilerBug("graph", "a graph ends in exactly one output node")
    for node in graph.nodes:
        _check_form(node, seen)
        seen.add(node)
    _check_reads(graph)
    for node in graph.nodes:
        if node.op == "call_function":
            _check_value(node, facts)


def _check_form(node: Node, seen: set[Node]) -> None:
    for used in node.all_input_nodes:
        _require(used in seen, node, f"reads {used}, which does not stand before it")
    match node.op:
        case "placeholder":
            _check_has_value(node)
        case "get_attr":
            _check_has_value(node)
            _require(isinstance(node.meta.get("constant"), torch.Tensor), node, "has no constant")
        case "call_function":
            _check_has_value(node)
            allowed = isinstance(node.target, OpOverload) or node.target is operator.getitem or node.target in SIZE_FUNCTIONS
            _require(allowed, node, f"calls {node.target}, which is no operator")
            if isinstance(node.target, OpOverload):
                _require(not traits_of(node.target).outs, node, "has an out= argument")
            _check_arguments(node, node.args)
            _check_arguments(node, tuple(node.kwargs.values()))
        case "output":
            _require(isinstance(node.args[0], tuple), node, "does not return a flat tuple")
            _require(all(isinstance(a, ARGUMENT_TYPES) for a in node.args[0]), node, "does not return a flat tuple")
        case _:
            _require(False, node, f"a node of kind {node.op}")


def _check_has_value(node: Node) -> None:
    value = node.meta.get("value")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    returns_nothing = isinstance(node.target, OpOverload) and not node.target._schema.returns
    known = all(isinstance(p, (TensorMeta, int, Size, type(None))) for p in parts) and (value is not None or returns_nothing)
    _require(known, node, f"has the value {value!r}")


def _check_arguments(node: Node, values: tuple | list) -> None:
    for value in values:
        if isinstance(value, (tuple, list)):
            _check_arguments(node, value)
        else:
            _require(isinstance(value, ARGUMENT_TYPES), node, f"has the argument {value!r}")


def _check_reads(graph: Graph) -> None:
    """One pass in order: `dirty` holds the version of each storage, `made` the version at which a view was made."""
    places = place_nodes(graph)
    version: dict[Node, int] = {}
    made: dict[Node, int] = {}
    for node in graph.nodes:
        for used in node.all_input_nodes:
            place = places.get(used)
            if place is not None and place.parent is not None:
                fresh = made[used] == version.get(place.root, 0)
                _require(fresh, node, f"reads {used}, a view made before its storage {place.root} was written")
        for target in written_arguments(node):
            _check_target(node, target, places)
            version[places[target].root] = version.get(places[target].root, 0) + 1
        if node in places:
            made[node] = version.get(places[node].root, 0)


def _check_target(node: Node, target: Node, places: dict[Node, Place]) -> None:
    root = places[target].root
    _require(root_kind(root) != CONSTANT, node, f"writes the constant {root}")
    _require(not root.meta.get("weight"), node, f"writes {root}, which is marked as a weight")


def _check_value(node: Node, facts: Facts | None) -> None:
    if node.target is operator.getitem:
        source = node.args[0].meta["value"]
        _require(node.meta["value"] == source[node.args[1]], node, f"has the value {node.meta['value']} for an item of {source}")
        return
    if not isinstance(node.target, OpOverload) or rule_for(node.target) is None:
        return
    try:
        wanted = infer(node.target, _metas(node.args), _metas(dict(node.kwargs)), facts)
    except Unsupported as refusal:
        raise CompilerBug("graph", f"{node.format_node()}: its arguments are refused: {refusal}") from None
    _require(_listed(wanted) == _listed(node.meta["value"]), node, f"has the value {node.meta['value']} where its arguments give {wanted}")


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _metas(value: object) -> object:
    if isinstance(value, Node):
        return value.meta["value"]
    if isinstance(value, (tuple, list)):
        return type(value)([_metas(v) for v in value])
    if isinstance(value, dict):
        return {k: _metas(v) for k, v in value.items()}
    return value


def _require(holds: bool, node: Node, what: str) -> None:
    if not holds:
        traits = node_traits(node)
        kind = " (in place)" if traits is not None and traits.inplace else ""
        raise CompilerBug("graph", f"{node.name}{kind} {what}")
