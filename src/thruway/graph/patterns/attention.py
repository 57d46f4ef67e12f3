"""Attention written out: softmax(q kᵀ · scale [+ mask, or filled with -inf]) v becomes one scaled_dot_product_attention.

What must hold: no dropout is left, the intermediate scores and weights have no other reader, softmax runs over the keys, the
heads of q, k and v are equally wide, float16 is not taken (scores that overflow in eager would not here), and the target's
attention is worth calling. A row whose keys are all masked gives NaN in eager and 0 in SDPA: NaN is put back wherever such
a row cannot be excluded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import replace as with_changes

import torch
from torch.fx import Graph, Node

from thruway.graph.patterns.attention_masks import CASTS, constant, is_causal, is_open, rows_are_open
from thruway.graph.patterns.cpu_attention import attention_pays
from thruway.graph.rewrite import Context, Emitter, Storages, aten, bind, editable, is_op, meta, output_values, replace, settled
from thruway.graph.simplify import order_of
from thruway.shapes.meta import TensorMeta


@dataclass(frozen=True, slots=True)
class Attention:
    """q, kᵀ and v as found; `keep`: boolean masks that say which scores stay; `bias`: a mask that is added."""

    query: Node
    key_transposed: Node
    value: Node
    scale: float = 1.0
    keep: tuple[Node, ...] = ()
    dropped: tuple[Node, ...] = ()
    bias: Node | None = None


def recognise_attention(graph: Graph, context: Context) -> Graph:
    if not any(is_op(node, *SOFTMAXES) for node in graph.nodes):
        return graph
    storages = Storages(graph)
    matches = {node.name for node in graph.nodes if (found := match(node)) and _holds(found, node, storages, context)}
    if not matches or context.numerics == "strict":
        return graph
    fresh, wanted = editable(graph, context), output_values(graph)
    for node in list(fresh.nodes):
        if node.name in matches:
            context.allows("SDPA for written-out attention", node)
            replace(node, _emit(Emitter(node), match(node), node))
    return settled(fresh, wanted)


SOFTMAXES = frozenset({aten.softmax.int, aten._softmax.default})
PRODUCTS = frozenset({aten.matmul.default, aten.bmm.default})
NEGATIONS = frozenset({aten.bitwise_not.default, aten.logical_not.default})


def match(node: Node) -> Attention | None:
    """The attention whose last product is `node`, by form alone."""
    if not is_op(node, *PRODUCTS) or len(meta(node).sizes) not in (3, 4):
        return None
    weights = _through_casts(node.args[0])
    if not is_op(weights, *SOFTMAXES) or len(weights.users) != 1 or not _is_last(weights.args[1], weights):
        return None
    scores = _masked(weights.args[0], Attention(node, node, node.args[1]))
    return scores and _scaled_product(*scores)


def _is_last(dim: int, node: Node) -> bool:
    return dim in (-1, len(meta(node).sizes) - 1)


def _through_casts(node: Node) -> Node:
    """Casts between floating dtypes that only this path reads."""
    while is_op(node, *CASTS) and len(node.users) == 1 and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _masked(node: Node, found: Attention) -> tuple[Node, Attention] | None:
    """Peels masks off the scores, outermost first."""
    while True:
        node = _through_casts(node)
        if len(node.users) != 1:
            return None
        if is_op(node, aten.masked_fill.Scalar, aten.masked_fill.Tensor) and constant(node.args[2]) == -math.inf:
            found, node = with_changes(found, dropped=(*found.dropped, node.args[1])), node.args[0]
        elif is_op(node, aten.where.self, aten.where.ScalarOther) and constant(node.args[2]) == -math.inf:
            found, node = with_changes(found, keep=(*found.keep, node.args[0])), node.args[1]
        elif is_op(node, aten.add.Tensor) and found.bias is None and (operands := _bias_of(node)):
            found, node = with_changes(found, bias=operands[1]), operands[0]
        else:
            return node, found


def _bias_of(node: Node) -> tuple[Node, Node] | None:
    """(scores, mask) of an addition with a floating mask; the scores are the operand that is a scaled product."""
    a = bind(node)
    if a.alpha != 1 or not isinstance(a.other, Node) or not isinstance(a.self, Node):
        return None
    for scores, mask in ((a.self, a.other), (a.other, a.self)):
        if _looks_like_scores(scores) and meta(scores).sizes == meta(node).sizes and meta(mask).dtype in {"float32", "bfloat16", "float64"}:
            return scores, mask
    return None


def _looks_like_scores(node: Node) -> bool:
    node = _through_casts(node)
    while is_op(node, aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.masked_fill.Scalar) and len(node.users) == 1:
        node = _through_casts(node.args[0])
    return is_op(node, *PRODUCTS) and len(node.users) == 1


def _scaled_product(node: Node, found: Attention) -> Attention | None:
    """Peels the scale, on the scores or on q and k."""
    node, scale = _factor(node)
    node = _through_casts(node)
    if not is_op(node, *PRODUCTS) or len(node.users) != 1:
        return None
    query, of_query = _factor(node.args[0])
    key, of_key = _factor(node.args[1])
    return with_changes(found, query=query, key_transposed=key, scale=scale * of_query * of_key)


def _factor(node: Node) -> tuple[Node, float]:
    """(x, c) for x * c or x / c that only this path reads and that keeps the dtype; (x, 1) otherwise."""
    if is_op(node, aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar) and len(node.users) == 1:
        factor = constant(node.args[1])
        if factor is not None and math.isfinite(factor) and factor > 0 and meta(node).dtype == meta(node.args[0]).dtype:
            return node.args[0], (factor if node.target in (aten.mul.Tensor, aten.mul.Scalar) else 1 / factor)
    return node, 1.0


def _holds(a: Attention, node: Node, storages: Storages, context: Context) -> bool:
    """The conditions that are not of form."""
    q, k, v, out = (meta(x) for x in (a.query, a.key_transposed, a.value, node))
    same_kind = q.dtype == k.dtype == v.dtype == out.dtype and q.dtype in {"float32", "float64", "bfloat16"}
    same_rank = len(q.sizes) == len(k.sizes) == len(v.sizes) == len(out.sizes)
    if not same_kind or not same_rank or v.sizes[-1] != q.sizes[-1] or k.sizes[-1] != v.sizes[-2]:
        return False
    operands = (a.query, a.key_transposed, a.value, *a.keep, *a.dropped, *([a.bias] if a.bias else []))
    if any(storages.is_written(x) for x in operands) or len(a.keep) + len(a.dropped) > 0 and a.bias is not None:
        return False
    masks_fit = all(len(meta(mask).sizes) <= len(out.sizes) for mask in operands[3:])
    return masks_fit and k.sizes[-1] != 0 and attention_pays(context.target, q, v.sizes[-2], _is_plain(a))


def _is_plain(a: Attention) -> bool:
    """Whether nothing is masked but what lies behind a query."""
    if a.bias is not None or len(a.keep) + len(a.dropped) > 1:
        return False
    if a.dropped and not is_op(a.dropped[0], *NEGATIONS):
        return False
    masks = (*a.keep, *(mask.args[0] for mask in a.dropped))
    return all(meta(mask).dtype == "bool" and is_causal(mask, meta(a.query).sizes[-2], meta(a.value).sizes[-2]) for mask in masks)


def _emit(emit: Emitter, a: Attention, node: Node) -> Node:
    out = meta(node)
    batch = out.sizes[:-2]
    query = emit.expand(a.query, (*batch, *meta(a.query).sizes[-2:]))
    key = emit.expand(_untransposed(emit, a.key_transposed), (*batch, *meta(a.value).sizes[-2:]))
    value = emit.expand(a.value, (*batch, *meta(a.value).sizes[-2:]))
    if len(batch) == 1:
        query, key, value = (emit(aten.unsqueeze.default, x, 0) for x in (query, key, value))
    query, key, value = (_with_unit_stride(emit, x) for x in (query, key, value))
    mask = _mask(emit, a)
    mask = None if mask is not None and is_open(mask) else mask
    causal = mask is not None and is_causal(mask, meta(query).sizes[-2], meta(key).sizes[-2])
    result = emit(aten.scaled_dot_product_attention.default, query, key, value, None if causal else _of_rank_two_or_four(emit, mask),
                  is_causal=causal, scale=a.scale)
    if len(batch) == 1:
        result = emit(aten.squeeze.dim, result, 0)
    return result if mask is None or causal or rows_are_open(mask) else _with_nan(emit, result, mask)


def _untransposed(emit: Emitter, node: Node) -> Node:
    """kᵀ as k: what was transposed, or transposed once more."""
    rank = len(meta(node).sizes)
    if order_of(node) == [*range(rank - 2), rank - 1, rank - 2]:
        return node.args[0]
    return emit(aten.transpose.int, node, -1, -2)


def _with_unit_stride(emit: Emitter, node: Node) -> Node:
    return node if meta(node).strides[-1] == 1 else emit(aten.clone.default, node, memory_format=torch.contiguous_format)


def _mask(emit: Emitter, a: Attention) -> Node | None:
    """One mask: boolean (True stays) or to be added."""
    if a.bias is not None:
        return a.bias
    keeps = [*a.keep, *(_inverted(emit, mask) for mask in a.dropped)]
    if not keeps:
        return None
    mask = keeps[0]
    for other in keeps[1:]:
        mask = emit(aten.logical_and.default, mask, other)
    return mask


def _inverted(emit: Emitter, mask: Node) -> Node:
    if is_op(mask, *NEGATIONS) and meta(mask.args[0]).dtype == "bool":
        return mask.args[0]
    return emit(aten.logical_not.default, mask)


def _of_rank_two_or_four(emit: Emitter, mask: Node | None) -> Node | None:
    """What flash kernels take."""
    while mask is not None and len(meta(mask).sizes) not in (2, 4):
        mask = emit(aten.unsqueeze.default, mask, 0)
    return mask


def _with_nan(emit: Emitter, result: Node, mask: Node) -> Node:
    """NaN in the rows that see no key."""
    keep = mask if meta(mask).dtype == "bool" else emit(aten.ne.Scalar, mask, -math.inf)
    seen = emit(aten.any.dim, keep, -1, True)
    value: TensorMeta = meta(result)
    nan = emit(aten.full.default, [], math.nan, dtype=getattr(torch, value.dtype), device=torch.device(value.device))
    return emit(aten.where.self, seen, result, nan)


