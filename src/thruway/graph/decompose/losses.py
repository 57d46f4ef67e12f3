"""Losses: cross entropy and its parts, and the pointwise losses with their reduction."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch.fx import Node

from thruway.core.dtypes import compute_dtype, is_float
from thruway.core.sizes import product
from thruway.graph.rewrite import Context, Emitter, Rule, aten, meta

NONE, MEAN, SUM = 0, 1, 2


def _reduced(emit: Emitter, node: Node, reduction: int) -> Node:
    match reduction:
        case 0:
            return node
        case 1:
            return emit(aten.mean.default, node)
        case _:
            return emit(aten.sum.default, node)


def _pointwise_loss(body: Callable[[Emitter, SimpleNamespace], Node]) -> Rule:
    """`body` in the compute dtype, rounded to the inputs' dtype as eager's pointwise kernel does, then reduced."""
    def rule(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
        x, target = meta(a.self), meta(a.target)
        if not is_float(x.dtype) or x.dtype != target.dtype:
            return None
        wide = SimpleNamespace(**vars(a))
        wide.self, wide.target = emit.cast(a.self, compute_dtype(x.dtype)), emit.cast(a.target, compute_dtype(x.dtype))
        return _reduced(emit, emit.cast(body(emit, wide), x.dtype), a.reduction)
    return rule


def mse(emit: Emitter, a: SimpleNamespace) -> Node:
    distance = emit(aten.sub.Tensor, a.self, a.target)
    return emit(aten.mul.Tensor, distance, distance)


def l1(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node:
    """Two operators in eager, each rounded."""
    return _reduced(emit, emit(aten.abs.default, emit(aten.sub.Tensor, a.self, a.target)), a.reduction)


def smooth_l1(emit: Emitter, a: SimpleNamespace) -> Node:
    distance = emit(aten.abs.default, emit(aten.sub.Tensor, a.self, a.target))
    if a.beta == 0:
        return distance
    square = emit(aten.div.Scalar, emit(aten.mul.Tensor, emit(aten.mul.Scalar, distance, 0.5), distance), a.beta)
    return emit(aten.where.self, emit(aten.lt.Scalar, distance, a.beta), square, emit(aten.sub.Scalar, distance, 0.5 * a.beta))


def huber(emit: Emitter, a: SimpleNamespace) -> Node:
    distance = emit(aten.abs.default, emit(aten.sub.Tensor, a.self, a.target))
    square = emit(aten.mul.Tensor, emit(aten.mul.Scalar, distance, 0.5), distance)
    line = emit(aten.mul.Scalar, emit(aten.sub.Scalar, distance, 0.5 * a.delta), a.delta)
    return emit(aten.where.self, emit(aten.le.Scalar, distance, a.delta), square, line)


def nll_loss(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context):
    """Classes along dimension 1 (or 0 of a vector). The index check of `gather` finds a target out of range, as eager does;
    an ignored target reads class 0 and counts with weight 0."""
    x, target = meta(a.self), meta(a.target)
    if a.weight is not None or target.dtype != "int64" or len(x.sizes) not in (1, 2, 4):
        return None
    kept = emit(aten.ne.Scalar, a.target, a.ignore_index)
    zero_index = emit(aten.full.default, [], 0, dtype=torch.int64, device=torch.device(x.device))
    index = emit(aten.unsqueeze.default, emit(aten.where.self, kept, a.target, zero_index), min(1, len(x.sizes) - 1))
    chosen = emit(aten.squeeze.dim, emit(aten.gather.default, a.self, min(1, len(x.sizes) - 1), index), min(1, len(x.sizes) - 1))
    zero = emit(aten.full.default, [], 0.0, dtype=getattr(torch, x.dtype), device=torch.device(x.device))
    loss = emit(aten.where.self, kept, emit(aten.neg.default, chosen), zero)
    count = emit(aten.sum.dim_IntList, emit.cast(kept, compute_dtype(x.dtype)), list(range(len(target.sizes))), False)
    out = _over_kept(emit, loss, count, a.reduction, x.dtype)
    return (out, emit.cast(count, x.dtype)) if isinstance(meta(node), (tuple, list)) else out


def _over_kept(emit: Emitter, loss: Node, count: Node, reduction: int, dtype: str) -> Node:
    if reduction == NONE:
        return loss
    total = emit(aten.sum.default, emit.cast(loss, compute_dtype(dtype)))
    return emit.cast(total if reduction == SUM else emit(aten.div.Tensor, total, count), dtype)


def cross_entropy(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Class indices without weights or smoothing: log_softmax, then nll_loss."""
    if meta(a.target).dtype != "int64" or a.weight is not None or a.label_smoothing != 0:
        return None
    x = meta(a.self)
    scores = emit(aten.log_softmax.int, a.self, min(1, len(x.sizes) - 1))
    folded = len(x.sizes) not in (1, 2)
    arguments = SimpleNamespace(self=scores, target=a.target, weight=None, reduction=a.reduction, ignore_index=a.ignore_index)
    return nll_loss(emit, node, arguments, _context) if not folded else _folded(emit, node, arguments, _context)


def _folded(emit: Emitter, node: Node, a: SimpleNamespace, context: Context) -> Node:
    """[n, c, …] and [n, …] as [n * …, c] and [n * …]."""
    n, c, *space = meta(a.self).sizes
    a.self = emit.view(emit(aten.permute.default, a.self, [0, *range(2, len(space) + 2), 1]), (product([n, *space]), c))
    a.target = emit.view(a.target, (product([n, *space]),))
    out = nll_loss(emit, node, a, context)
    return emit.view(out, (n, *space)) if a.reduction == NONE else out


RULES = {
    aten.mse_loss.default: _pointwise_loss(mse),
    aten.l1_loss.default: l1,
    aten.smooth_l1_loss.default: _pointwise_loss(smooth_l1),
    aten.huber_loss.default: _pointwise_loss(huber),
    aten.nll_loss_nd.default: nll_loss, aten.nll_loss.default: nll_loss, aten.nll_loss_forward.default: nll_loss,
    aten.nll_loss2d.default: nll_loss, aten.nll_loss2d_forward.default: nll_loss,
    aten.cross_entropy_loss.default: cross_entropy,
}
