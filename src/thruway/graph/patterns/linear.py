"""Linear layers written otherwise, and linear layers that share an input.

`recognise_linear`: addmm(bias, x, w) and mm(x, w) with a constant w are linear(x, wᵀ, bias), which packing knows.
`merge_linears`: several linears over one input become one over the joined weight, and slices of its result.
"""

from __future__ import annotations

from itertools import accumulate
from types import SimpleNamespace

from torch.fx import Graph, Node

from thruway.core.dtypes import ITEMSIZE, is_float
from thruway.graph.derived import find_derivable
from thruway.graph.patterns.cpu_linear import merging_pays, rows_of, saved_calls
from thruway.graph.rewrite import (
    Context,
    Emitter,
    Storages,
    aten,
    bind,
    bytes_of,
    editable,
    is_op,
    meta,
    output_values,
    replace,
    settled,
)


def recognise_linear(graph: Graph, context: Context) -> Graph:
    derivable = find_derivable(graph)
    names = [node.name for node in graph.nodes if _is_plain_product(node, derivable)]
    if not names:
        return graph
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    for name in names:
        _as_linear(by_name[name])
    return settled(fresh, wanted)


def _is_plain_product(node: Node, derivable: set[Node]) -> bool:
    """mm, or addmm with a bias row and no factors, whose second matrix is constant."""
    if not is_op(node, aten.mm.default, aten.addmm.default) or not is_float(meta(node).dtype):
        return False
    a = bind(node)
    if a.mat2 not in derivable or a.mat2.op == "get_attr":
        return False
    return node.target is aten.mm.default or (a.alpha == 1 and a.beta == 1 and meta(a.self).sizes == (meta(a.mat2).sizes[1],))


def _as_linear(node: Node) -> None:
    a, emit = bind(node), Emitter(node)
    x = node.args[0] if node.target is aten.mm.default else a.mat1
    bias = None if node.target is aten.mm.default else a.self
    replace(node, emit(aten.linear.default, x, emit(aten.t.default, a.mat2), bias))


def merge_linears(graph: Graph, context: Context) -> Graph:
    storages = Storages(graph)
    derivable = find_derivable(graph, storages)
    groups: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if is_op(node, aten.linear.default) and _is_mergeable(bind(node), node, derivable, storages):
            groups.setdefault(_group_of(bind(node)), []).append(node)
    matches = [[node.name for node in group] for group in groups.values() if len(group) > 1]
    if not matches or context.numerics == "strict":
        return graph
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    merged = [_merge([by_name[name] for name in group], context) for group in matches]
    return settled(fresh, wanted) if any(merged) else graph


def _is_mergeable(a: SimpleNamespace, node: Node, derivable: set[Node], storages: Storages) -> bool:
    """Constant weight and bias; neither the input nor the result is written; the result does not leave the graph as it is."""
    constant = a.weight in derivable and (a.bias is None or a.bias in derivable)
    return constant and len(meta(a.weight).sizes) == 2 and not storages.is_written(a.input) and not storages.is_written(node) and (
        not storages.escapes(node))


def _group_of(a: SimpleNamespace) -> tuple[object, ...]:
    return a.input, meta(a.weight).dtype, a.bias is None


def _merge(nodes: list[Node], context: Context) -> bool:
    parts = [bind(node) for node in nodes]
    (_, width), dtype, total = meta(parts[0].weight).sizes, meta(parts[0].weight).dtype, sum(bytes_of(meta(a.weight)) for a in parts)
    if not merging_pays(context.target, dtype, rows_of(parts[0].input), total // ITEMSIZE[dtype], ITEMSIZE[dtype], saved_calls(dtype, width, len(parts))):
        return False
    if not context.reserve(total, parts[0].weight) or not context.allows("linears merged", nodes[0]):
        return False
    first = _behind_weights(nodes[0], parts)
    emit = Emitter(first)
    weight = emit(aten.cat.default, [a.weight for a in parts], 0)
    bias = None if parts[0].bias is None else emit(aten.cat.default, [a.bias for a in parts], 0)
    joined = emit(aten.linear.default, parts[0].input, weight, bias)
    last, ends = len(meta(joined).sizes) - 1, list(accumulate(meta(node).sizes[-1] for node in nodes))
    slices = [emit(aten.slice.Tensor, joined, last, start, end) for start, end in zip([0, *ends], ends, strict=False)]
    for node, piece in zip(nodes, slices, strict=True):
        replace(node, piece)
    return True


def _behind_weights(first: Node, parts: list[SimpleNamespace]) -> Node:
    """The first linear, with what leads to the other weights moved in front of it."""
    earlier = set()
    node = first.prev
    while node.op != "root":
        earlier.add(node)
        node = node.prev
    for a in parts:
        for weight in (a.weight, a.bias):
            _hoist(weight, first, earlier)
    return first


def _hoist(node: Node | None, before: Node, earlier: set[Node]) -> None:
    if node is None or node in earlier:
        return
    for used in node.all_input_nodes:
        _hoist(used, before, earlier)
    before.prepend(node)
    earlier.add(node)
