"""Derived values: what depends on weights and constants alone is computed once per weight change and kept between calls.

`find_derivable` says which nodes those are; `mark_derived` puts `meta["derived"] = True` on the ones worth keeping and on what
leads to them. Never derived: what the graph writes in place, random values, results handed to the caller, and what the caller gets views of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch.fx import Graph, Node

from thruway.core.dtypes import ITEMSIZE
from thruway.graph.rewrite import Context, Emitter, Storages, alias_arguments, aten, bytes_of, editable, is_pure, meta
from thruway.shapes.meta import TensorMeta

FILLS = frozenset({
    aten.full.default, aten.zeros.default, aten.ones.default, aten.scalar_tensor.default, aten.arange.default, aten.arange.start,
    aten.arange.start_step, aten.eye.default, aten.linspace.default, aten.full_like.default, aten.zeros_like.default,
    aten.ones_like.default,
})
DATA_READERS = frozenset({aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default})
CHEAP = frozenset({aten._to_copy.default, aten.clone.default, aten.neg.default, aten.mul.Tensor, aten.mul.Scalar, aten.add.Tensor,
                   aten.add.Scalar, aten.sub.Tensor, aten.div.Tensor, aten.div.Scalar, aten.le.Scalar, aten.ge.Scalar,
                   aten.bitwise_not.default, aten.logical_not.default})
PACKS = frozenset({
    torch.ops.mkldnn._reorder_convolution_weight.default, torch.ops.mkldnn._reorder_linear_weight.default,
    torch.ops.mkl._mkl_reorder_linear_weight.default,
})


def find_derivable(graph: Graph, storages: Storages | None = None) -> set[Node]:
    """Weights that nothing writes, and pure nodes over weights and constants whose sizes are known."""
    storages = storages or Storages(graph)
    viewed = _shown_by_views(graph, storages)
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            derivable = bool(node.meta.get("weight"))
        else:
            derivable = node.op == "get_attr" or (is_pure(node) and node.target not in DATA_READERS and all(
                used in found for used in node.all_input_nodes))
        if derivable and not storages.is_written(node) and storages.roots[node].isdisjoint(viewed) and _is_static(node.meta.get("value")):
            found.add(node)
    return found


def _shown_by_views(graph: Graph, storages: Storages) -> set[Node]:
    """What the graph makes and gives to the caller by parts of it, or more than once: copies of those would not begin where they do in the
    memory, nor share it."""
    items = [item for item in graph.output_node().args[0] if isinstance(item, Node)]
    counts = Counter(root for item in set(items) for root in storages.roots[item] if root.op == "call_function")
    return {root for item in items for root in storages.roots[item] if counts[root] > 1 or root in counts and _size(item) != _size(root)}


def _is_static(value: object) -> bool:
    if isinstance(value, TensorMeta):
        return all(type(size) is int for size in value.sizes)
    if isinstance(value, (tuple, list)):
        return all(_is_static(one) for one in value)
    return isinstance(value, int)


def mark_derived(graph: Graph, context: Context) -> Graph:
    """Marks what is kept, while `context.derived_limit` lasts: packed weights first (reserved when they were chosen), results
    of real work before casts and sums that a kernel can redo on the way."""
    storages = Storages(graph)
    derivable = find_derivable(graph, storages)
    ends = [(node, work) for node in derivable if _is_read_per_call(node, derivable) and (work := _work_below(node)) and not work.meta.get("per_call")]
    if not ends:
        return graph
    fresh = editable(graph, context)
    by_name = {node.name: node for node in fresh.nodes}
    names = {node.name for node in derivable}
    ends.sort(key=lambda end: (end[1].target not in PACKS, end[1].target in CHEAP, storages.place[end[0]]))
    kept: set[Node] = set()
    for node, work in ends:
        if work in kept or work.target in PACKS or context.reserve(_size(work), node):
            kept.add(work)
            _mark(by_name[node.name], names)
    _keep_from_caller(fresh)
    return fresh


def _is_read_per_call(node: Node, derivable: set[Node]) -> bool:
    return any(user not in derivable and user.op != "output" for user in node.users)


def _work_below(node: Node) -> Node | None:
    """The operator whose result `node` is or views; None for weights and fills, which cost nothing to have again, and for casts to a
    wider type, which cost more to read than to do again."""
    while node.op == "call_function" and alias_arguments(node.target)[0] and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node if node.op == "call_function" and node.target not in FILLS and not _is_widening(node) else None


def _is_widening(node: Node) -> bool:
    return node.target is aten._to_copy.default and ITEMSIZE[meta(node).dtype] > ITEMSIZE[meta(node.args[0]).dtype]


def _size(node: Node) -> int | None:
    value = meta(node)
    items: Iterable[object] = value if isinstance(value, (tuple, list)) else (value,)
    sizes = [bytes_of(one) for one in items if isinstance(one, TensorMeta)]
    return None if any(size is None for size in sizes) else sum(sizes)


def _mark(node: Node, names: set[str]) -> None:
    left = [node]
    while left:
        one = left.pop()
        if one.op == "call_function" and one.name in names and not one.meta.get("derived"):
            one.meta["derived"] = True
            left.extend(one.all_input_nodes)


def _keep_from_caller(graph: Graph) -> None:
    """An output never is a kept tensor: the caller gets a copy."""
    output = graph.output_node()
    storages = Storages(graph)
    items = [_copy(output, item) if isinstance(item, Node) and any(root.meta.get("derived") for root in storages.roots[item]) else item
             for item in output.args[0]]
    output.args = (tuple(items),)


def _copy(output: Node, item: Node) -> Node:
    return Emitter(output)(aten.clone.default, item, memory_format=torch.preserve_format)
