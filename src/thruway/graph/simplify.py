"""Simplification: unused nodes, repeated ones, casts and copies and views that change nothing, views of views, exact identities.

Only what is exact in floating point, for -0.0, NaN and infinities too: x * 1 and x / 1 and x ** 1 go, x + 0 stays (-0.0 + 0 is 0.0).
Nothing is merged or dropped across an in-place write, and two results that the caller gets stay two tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from thruway.graph.rewrite import (
    Context,
    Storages,
    alias_arguments,
    aten,
    bind,
    editable,
    erase_unused,
    is_contiguous,
    is_op,
    is_pure,
    meta,
    output_values,
    replace,
    same_layout,
    settled,
)
from thruway.shapes.meta import TensorMeta


def simplify(graph: Graph, context: Context) -> Graph:
    """All of it until nothing changes; each round removes nodes, so this ends."""
    fresh, wanted = editable(graph, context), output_values(graph)
    changed, again = False, True
    while again:
        erased = erase_unused(fresh)
        again = remove_idle(fresh) | merge_repeated(fresh)
        changed |= erased or again
    return settled(fresh, wanted) if changed else graph


def merge_repeated(graph: Graph) -> bool:
    """Common subexpressions: the same operator with the same arguments over the same state of memory, and equal constants. In place."""
    storages = cache(lambda: Storages(graph))
    merged: dict[Node, Node] = {}
    first: dict[Any, Node] = {}
    alone: dict[Any, Node | None] = {}             # most nodes have no like, and what they compute is never spelled out
    for node in graph.nodes:
        if not (is_pure(node) or _is_constant(node)):
            continue
        place = _place(node, merged)
        earlier = alone.setdefault(place, node)
        if earlier is node:
            continue
        if earlier is not None:
            alone[place] = None
            first.setdefault(_key(earlier, merged, storages()), earlier)
        key = _key(node, merged, storages())
        kept = first.setdefault(key, node) if key is not None else node
        if kept is not node and _may_share(kept, node, storages()):
            merged[node] = kept
    for node, kept in reversed(merged.items()):
        node.replace_all_uses_with(kept)
        graph.erase_node(node)
    return bool(merged)


def _is_constant(node: Node) -> bool:
    return node.op == "get_attr" and "constant" in node.meta


def _place(node: Node, merged: dict[Node, Node]) -> Any:
    """Equal where two nodes may have one key; operators live for ever."""
    if _is_constant(node):
        return meta(node)
    inputs = node.all_input_nodes
    return id(node.target), merged.get(inputs[0], inputs[0]) if inputs else None


def _key(node: Node, merged: dict[Node, Node], storages: Storages) -> Any:
    """What the node computes or holds, hashable: None where an argument is not."""
    if _is_constant(node):
        return meta(node), node.meta["constant"].contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
    versions = tuple(storages.version(used, node) for used in node.all_input_nodes)
    arguments = map_arg((node.args, tuple(sorted(node.kwargs.items()))), lambda used: merged.get(used, used))
    key = (node.target, _typed(arguments), versions)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _typed(tree: Any) -> Any:
    """Arguments such that 1, 1.0, True and -0.0 differ."""
    if isinstance(tree, (tuple, list)):
        return tuple(_typed(one) for one in tree)
    return (type(tree), repr(tree)) if isinstance(tree, (bool, int, float, complex)) else tree


def _may_share(kept: Node, node: Node, storages: Storages) -> bool:
    """One tensor may stand for both: views of one storage unless the caller gets both, else where neither is written and at most one
    is returned."""
    if _leaves(kept) and _leaves(node):
        return False
    if node.op == "call_function" and alias_arguments(node.target)[0]:
        return True
    if storages.is_written(kept) or storages.is_written(node):
        return False
    return not (storages.escapes(kept) and storages.escapes(node))


def remove_idle(graph: Graph) -> bool:
    """Nodes whose result is one of their inputs, element by element, and views of views. In place."""
    candidates = [node for node in graph.nodes if node.target in IDLE or _is_stacked(node)]
    if not candidates:
        return False
    storages, changed = cache(lambda: Storages(graph)), False
    for node in candidates:
        if node.target in IDLE and _is_idle(node, storages):
            replace(node, _source(node))
            changed = True
        elif _is_stacked(node) and not storages().is_written(node):
            _unstack(node)
            changed = True
    return changed


def _source(node: Node) -> Node:
    return node.args[0][0] if node.target is aten.cat.default else node.args[0]


def _is_idle(node: Node, storages_of: Callable[[], Storages]) -> bool:
    test = IDLE.get(node.target)
    if test is None or not isinstance(meta(node), TensorMeta):
        return False
    arguments = bind(node)
    if not test(node, arguments):
        return False
    source = _source(node)
    if not isinstance(source, Node) or (meta(source).sizes, meta(source).dtype) != (meta(node).sizes, meta(node).dtype):
        return False
    storages = storages_of()
    if storages.is_written(source) or storages.is_written(node) or _leaves(node) and (_leaves(source) or source.op == "placeholder"):
        return False
    return bool(alias_arguments(node.target)[0]) or _copy_is_unseen(node, source, storages)


def _copy_is_unseen(node: Node, source: Node, storages: Storages) -> bool:
    """The caller does not get both, nor an input where eager gives a new tensor, nor several views of what is laid out otherwise."""
    if not storages.escapes(node):
        return True
    if not same_layout(meta(node), meta(source)) or storages.escapes(source):
        return False
    return all(root.op != "placeholder" and not _is_kept(root) for root in storages.roots[source])


def _leaves(node: Node) -> bool:
    """Whether the caller gets the very tensor: a view of it that he gets too is another one."""
    return any(user.op == "output" for user in node.users)


def _is_kept(node: Node) -> bool:
    return node.op == "get_attr" or bool(node.meta.get("derived"))


def _without_gradient(node: Node, _a: SimpleNamespace) -> bool:
    return not meta(node.args[0]).requires_grad


def _same_layout(node: Node, _a: SimpleNamespace) -> bool:
    return same_layout(meta(node), meta(node.args[0]))


def _one(_node: Node, a: SimpleNamespace) -> bool:
    """x * 1, x / 1: exact for every x; not where an integer becomes a float."""
    other = getattr(a, "other", getattr(a, "exponent", None))
    return isinstance(other, (int, float)) and not isinstance(other, bool) and other == 1


def _whole(node: Node, a: SimpleNamespace) -> bool:
    return meta(node).sizes == meta(node.args[0]).sizes and a.step == 1


def _single(node: Node, _a: SimpleNamespace) -> bool:
    return len(node.args[0]) == 1


IDLE: dict[Any, Callable[[Node, SimpleNamespace], bool]] = {
    aten._to_copy.default: _same_layout, aten.clone.default: _same_layout, aten.contiguous.default: _same_layout,
    aten.to.dtype: _same_layout, aten.to.device: _same_layout, aten.to.dtype_layout: _same_layout, aten.to.other: _same_layout,
    aten.detach.default: _without_gradient, aten.alias.default: _same_layout, aten.lift_fresh.default: _same_layout,
    aten.view.default: _same_layout, aten.expand.default: _same_layout, aten.permute.default: _same_layout,
    aten._unsafe_view.default: _same_layout, aten.reshape.default: _same_layout,
    aten.slice.Tensor: _whole,
    aten.mul.Scalar: _one, aten.mul.Tensor: _one, aten.div.Scalar: _one, aten.div.Tensor: _one, aten.pow.Tensor_Scalar: _one,
    aten.cat.default: _single,
}


TRANSPOSES = {aten.t.default, aten.transpose.int, aten.permute.default, aten.mT.default, aten.numpy_T.default,
              aten.swapaxes.default, aten.swapdims.default, aten.movedim.int}


def order_of(node: Node) -> list[int] | None:
    """The permutation that a transposing view makes, or None for another node."""
    rank = len(meta(node).sizes) if isinstance(node.meta.get("value"), TensorMeta) else 0
    order = list(range(rank))
    match node.target:
        case aten.permute.default:
            return [d % rank for d in node.args[1]] if rank else order
        case aten.t.default | aten.numpy_T.default:
            return order[::-1]
        case aten.mT.default:
            order[-1], order[-2] = order[-2], order[-1]
            return order
        case aten.transpose.int | aten.swapaxes.default | aten.swapdims.default:
            a, b = (d % rank for d in node.args[1:3])
            order[a], order[b] = order[b], order[a]
            return order
        case aten.movedim.int:
            source, target = (d % rank for d in node.args[1:3])
            order.remove(source)
            order.insert(target, source)
            return order
        case _:
            return None


def _is_stacked(node: Node) -> bool:
    """A view over the same kind of view, which one view can say."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return False
    below = node.args[0]
    if is_op(node, aten.view.default):
        return is_op(below, aten.view.default) and not _in_doubt(below)
    return node.target in TRANSPOSES and is_op(below, *TRANSPOSES) and len(meta(node).sizes) > 0


def _in_doubt(below: Node) -> bool:
    """Whether viewing what lies under `below` directly might not be allowed by its strides."""
    value = meta(below.args[0])
    return not isinstance(value, TensorMeta) or not is_contiguous(value)


def _unstack(node: Node) -> None:
    below = node.args[0]
    if is_op(node, aten.view.default):
        node.replace_input_with(below, below.args[0])
        node.meta["stale"] = True                  # strides of dimensions of 1 follow those of the source
        return
    outer, inner = order_of(node), order_of(below)
    node.target, node.args = aten.permute.default, (below.args[0], [inner[d] for d in outer])

