"""What a mask of attention says, where it is made of constants alone, and the cheapest way to say it.

`settle_masks` looks at every scaled_dot_product_attention: a mask that keeps everything goes, a lower triangle becomes `is_causal`. On a
GPU any other boolean mask is turned into numbers once, not in every layer, and in a layout that fused kernels take: torch falls back to
plain products for a mask that is expanded along its keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate, map_arg

from thruway.core.sizes import SizeLike
from thruway.graph.derived import DATA_READERS, FILLS, find_derivable
from thruway.graph.rewrite import Context, Emitter, aten, bind, editable, is_op, is_pure, meta, numel, output_values, replace, settled

CONSTANT_MASK_LIMIT = 1 << 24      # elements of a mask that is worked out while compiling
ATTENTION = aten.scaled_dot_product_attention.default


def settle_masks(graph: Graph, context: Context) -> Graph:
    names = [node.name for node in graph.nodes if is_op(node, ATTENTION) and bind(node).attn_mask is not None]
    if not names or context.numerics == "strict":
        return graph
    derivable = {node.name for node in find_derivable(graph)}
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    numbers: dict[tuple[str, str], Node] = {}
    settled_any = [_settle(by_name[name], context, derivable, numbers) for name in names]
    return settled(fresh, wanted) if any(settled_any) else graph


def _settle(node: Node, context: Context, derivable: set[str], numbers: dict[tuple[str, str], Node]) -> bool:
    a = bind(node)
    mask, query = a.attn_mask, meta(a.query)
    if a.is_causal:
        return False
    if mask.name in derivable and is_open(mask):
        return _call_again(node, None, False)
    if mask.name in derivable and is_causal(mask, query.sizes[-2], meta(a.key).sizes[-2]):
        return _call_again(node, None, True)
    if context.target.kind != "cuda" or meta(mask).dtype != "bool" and meta(mask).strides[-1:] == (1,):
        return False
    key = mask.name, query.dtype
    if key not in numbers:
        numbers[key] = _in_numbers(Emitter(node), mask, query.dtype, query.device)
    return _call_again(node, numbers[key], False)


def _call_again(node: Node, mask: Node | None, causal: bool) -> bool:
    a = bind(node)
    emit = Emitter(node)
    replace(node, emit(ATTENTION, a.query, a.key, a.value, mask, a.dropout_p, causal, scale=a.scale, enable_gqa=a.enable_gqa))
    return True


def _in_numbers(emit: Emitter, mask: Node, dtype: str, device: str) -> Node:
    """0 where a key is seen, -inf where not, without gaps along the keys."""
    if meta(mask).dtype != "bool":
        return emit(aten.clone.default, mask, memory_format=torch.contiguous_format)
    seen, hidden = (emit(aten.full.default, [], value, dtype=getattr(torch, dtype), device=torch.device(device)) for value in (0.0, -math.inf))
    return emit(aten.clone.default, emit(aten.where.self, mask, seen, hidden), memory_format=torch.contiguous_format)


def is_open(mask: Node) -> bool:
    """Whether the mask certainly changes nothing: every key is seen, or 0 is added."""
    return _once(mask, "open", lambda: _is_open(mask))


def _is_open(mask: Node) -> bool:
    known = worked_out(mask)
    return known is not None and bool(known.all() if known.dtype == torch.bool else (known == 0).all())


def is_causal(mask: Node, queries: SizeLike, keys: SizeLike) -> bool:
    """Whether the mask lets each query see exactly the keys up to its own place."""
    return _once(mask, ("causal", queries, keys), lambda: _is_causal(mask, queries, keys))


def _once(mask: Node, question: object, answer: Callable[[], bool]) -> bool:
    """The answer, looked for once per mask, and once for all nodes that turn the same mask round: each layer has its own."""
    turns = 0
    while is_op(mask, aten.logical_not.default):
        mask, turns = mask.args[0], turns + 1
    answers = mask.meta.setdefault("answers", {})
    if (turns, question) not in answers:
        answers[turns, question] = answer()
    return answers[turns, question]


def _is_causal(mask: Node, queries: SizeLike, keys: SizeLike) -> bool:
    value = meta(mask)
    if is_op(mask, aten.tril.default) and bind(mask).diagonal == 0 and (value.sizes, value.dtype) == ((queries, keys), "bool"):
        return is_op(mask.args[0], aten.ones.default) or constant(mask.args[0]) == 1
    known = worked_out(mask)
    if known is None or known.dim() < 2 or known.shape[-2:] != (queries, keys):
        return False
    if known.dtype != torch.bool:
        if not bool(((known == 0) | (known == -math.inf)).all()):
            return False
        known = known == 0
    return torch.equal(known, torch.ones(known.shape[-2:], dtype=torch.bool).tril().expand_as(known))


def rows_are_open(mask: Node) -> bool:
    """Whether certainly every query sees some key."""
    known = worked_out(mask)
    if known is None or known.dim() == 0:
        return False
    keep = known if known.dtype == torch.bool else known != -math.inf
    return bool(keep.any(-1).all())


CASTS = frozenset({aten._to_copy.default, aten.to.dtype, aten.to.device, aten.to.other, aten.type_as.default})


def constant(value: object) -> float | None:
    """The number that every element of `value` is, where it is a number or a filled tensor."""
    if isinstance(value, (int, float)):
        return value
    if is_op(value, aten.full.default, aten.scalar_tensor.default):
        return value.args[1] if value.target is aten.full.default else value.args[0]
    return constant(value.args[0]) if is_op(value, *CASTS) else None


def worked_out(mask: Node) -> torch.Tensor | None:
    """The mask's elements where it is made of constants alone; looked for once per node."""
    if "worked_out" not in mask.meta:
        count = numel(meta(mask))
        fits = type(count) is int and count <= CONSTANT_MASK_LIMIT and _is_constant(mask, set())
        mask.meta["worked_out"] = _evaluate(mask, {}) if fits else None
    return mask.meta["worked_out"]


def _is_constant(node: Node, seen: set[Node]) -> bool:
    """Made by fills and pure functions of them, no weights."""
    if node in seen or node.op == "get_attr":
        return True
    seen.add(node)
    if node.op != "call_function" or not is_pure(node) or node.target in DATA_READERS:
        return False
    return node.target in FILLS if not node.all_input_nodes else all(_is_constant(used, seen) for used in node.all_input_nodes)


def _evaluate(node: Node, known: dict[Node, torch.Tensor]) -> torch.Tensor:
    if node.op == "get_attr":
        return node.meta["constant"].cpu()
    if node not in known:
        args, kwargs = map_aggregate(map_arg((node.args, node.kwargs), lambda used: _evaluate(used, known)), _on_cpu)
        known[node] = node.target(*args, **kwargs)
    return known[node]


def _on_cpu(value: object) -> object:
    return torch.device("cpu") if isinstance(value, torch.device) else value
