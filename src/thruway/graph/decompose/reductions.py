"""Variance and its family, norms and normalizations that are sums over something, poolings that are means."""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
from torch.fx import Node

from thruway.core.dtypes import compute_dtype, is_float
from thruway.core.sizes import product
from thruway.graph.rewrite import Context, Emitter, aten, meta


def _dims(dim, rank: int) -> list[int]:
    if dim is None or dim == []:
        return list(range(rank))
    return [d % rank if rank else 0 for d in (dim if isinstance(dim, (tuple, list)) else [dim])]


def _correction(a: SimpleNamespace) -> float:
    if hasattr(a, "unbiased"):
        return 1 if a.unbiased else 0
    return 1 if a.correction is None else a.correction


def _variance(emit: Emitter, a: SimpleNamespace) -> tuple[Node, Node] | None:
    """Variance and mean in float64, as eager's accumulators on the CPU are, so that squares of large values do not overflow."""
    x = meta(a.self)
    dims = _dims(getattr(a, "dim", None), len(x.sizes))
    count = product(x.sizes[d] for d in dims)
    if not is_float(x.dtype) or type(count) is not int:
        return None
    keepdim = getattr(a, "keepdim", False) or False
    wide = emit.cast(a.self, "float64" if x.device == "cpu" else compute_dtype(x.dtype))
    mean = emit(aten.mean.dim, wide, dims, True)
    distance = emit(aten.sub.Tensor, wide, mean)
    total = emit(aten.sum.dim_IntList, emit(aten.mul.Tensor, distance, distance), dims, keepdim)
    if not keepdim and dims:
        mean = emit(aten.squeeze.dims, mean, dims)
    return emit(aten.div.Scalar, total, max(count - _correction(a), 0)), mean


def _variance_rule(root: bool, with_mean: bool):
    def rule(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context):
        both = _variance(emit, a)
        if both is None:
            return None
        dtype = meta(a.self).dtype
        first = emit(aten.sqrt.default, both[0]) if root else both[0]
        return (emit.cast(first, dtype), emit.cast(both[1], dtype)) if with_mean else emit.cast(first, dtype)
    return rule


def batch_norm_inference(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context):
    """x * alpha + beta with alpha = weight / sqrt(var + eps), beta = bias - mean * alpha per channel, in the compute dtype."""
    if getattr(a, "training", False) or a.running_mean is None or a.running_var is None:
        return None
    x = meta(a.input)
    dtype = compute_dtype(x.dtype)
    inverse = emit(aten.reciprocal.default, emit(aten.sqrt.default, emit(aten.add.Scalar, emit.cast(a.running_var, dtype), a.eps)))
    alpha = inverse if a.weight is None else emit(aten.mul.Tensor, inverse, emit.cast(a.weight, dtype))
    shift = emit(aten.mul.Tensor, emit.cast(a.running_mean, dtype), alpha)
    beta = emit(aten.neg.default, shift) if a.bias is None else emit(aten.sub.Tensor, emit.cast(a.bias, dtype), shift)
    channels = [x.sizes[1]] + [1] * (len(x.sizes) - 2)
    scaled = emit(aten.mul.Tensor, emit.cast(a.input, dtype), emit.view(alpha, channels))
    out = emit.cast(emit(aten.add.Tensor, scaled, emit.view(beta, channels)), x.dtype)
    return out if not isinstance(meta(node), (tuple, list)) else _with_unused(out, len(meta(node)), node)


def _with_unused(out: Node, count: int, node: Node) -> tuple[Node | None, ...] | None:
    used = {user.args[1] for user in node.users}
    return (out, *[None] * (count - 1)) if used <= {0} else None


def group_norm(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node:
    """Mean and variance over each group in the compute dtype, then one scale and shift per channel."""
    x = meta(a.input)
    n, c, *space = x.sizes
    dtype = compute_dtype(x.dtype)
    rows = emit.view(emit.cast(a.input, dtype), (n, a.num_groups, (c // a.num_groups) * product(space)))
    mean = emit(aten.mean.dim, rows, [-1], True)
    distance = emit(aten.sub.Tensor, rows, mean)
    variance = emit(aten.mean.dim, emit(aten.mul.Tensor, distance, distance), [-1], True)
    scaled = emit(aten.mul.Tensor, distance, emit(aten.rsqrt.default, emit(aten.add.Scalar, variance, a.eps)))
    out = emit.view(scaled, x.sizes)
    channels = [c] + [1] * len(space)
    if a.weight is not None:
        out = emit(aten.mul.Tensor, out, emit.view(emit.cast(a.weight, dtype), channels))
    if a.bias is not None:
        out = emit(aten.add.Tensor, out, emit.view(emit.cast(a.bias, dtype), channels))
    return emit.cast(out, x.dtype)


def adaptive_average_to_one(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Pooling to one value per channel is a mean, in eager too."""
    sizes = a.output_size if isinstance(a.output_size, (tuple, list)) else [a.output_size]
    if any(n != 1 for n in sizes):
        return None
    return emit(aten.mean.dim, a.self, list(range(-len(sizes), 0)), True)


def vector_norm(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Orders 1, 2 and infinity, in the compute dtype."""
    x, order = meta(a.self), getattr(a, "ord", getattr(a, "p", None))
    order = 2 if order is None else order
    wanted = getattr(a, "dtype", None)
    if not is_float(x.dtype) or wanted is not None or order not in (1, 2, math.inf):
        return None
    dims, keepdim = _dims(getattr(a, "dim", None), len(x.sizes)), getattr(a, "keepdim", False)
    wide = emit.cast(a.self, compute_dtype(x.dtype))
    match order:
        case 1:
            out = emit(aten.sum.dim_IntList, emit(aten.abs.default, wide), dims, keepdim)
        case 2:
            out = emit(aten.sqrt.default, emit(aten.sum.dim_IntList, emit(aten.mul.Tensor, wide, wide), dims, keepdim))
        case _:
            out = emit(aten.amax.default, emit(aten.abs.default, wide), dims, keepdim)
    return emit.cast(out, x.dtype)


def logsumexp(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    x = meta(a.self)
    dims = _dims(a.dim, len(x.sizes))
    if not is_float(x.dtype) or not dims or any(x.sizes[d] == 0 for d in dims):
        return None
    wide = emit.cast(a.self, compute_dtype(x.dtype))
    top = emit(aten.amax.default, wide, dims, True)
    finite = emit(aten.ne.Scalar, emit(aten.abs.default, top), math.inf)
    zero = emit(aten.full.default, [], 0.0, dtype=getattr(torch, meta(wide).dtype), device=torch.device(x.device))
    top = emit(aten.where.self, finite, top, zero)
    total = emit(aten.sum.dim_IntList, emit(aten.exp.default, emit(aten.sub.Tensor, wide, top)), dims, a.keepdim)
    level = top if a.keepdim else emit(aten.squeeze.dims, top, dims)
    return emit.cast(emit(aten.add.Tensor, emit(aten.log.default, total), level), x.dtype)


def _family(name: str, overloads: tuple[str, ...], rule) -> dict:
    return {getattr(getattr(aten, name), overload): rule for overload in overloads}


RULES = {
    **_family("var", ("default", "dim", "correction"), _variance_rule(False, False)),
    **_family("std", ("default", "dim", "correction"), _variance_rule(True, False)),
    **_family("var_mean", ("default", "dim", "correction"), _variance_rule(False, True)),
    **_family("std_mean", ("default", "dim", "correction"), _variance_rule(True, True)),
    aten.batch_norm.default: batch_norm_inference,
    aten.native_batch_norm.default: batch_norm_inference,
    aten._native_batch_norm_legit_no_training.default: batch_norm_inference,
    aten.group_norm.default: group_norm,
    aten.adaptive_avg_pool1d.default: adaptive_average_to_one,
    aten.adaptive_avg_pool2d.default: adaptive_average_to_one,
    aten._adaptive_avg_pool2d.default: adaptive_average_to_one,
    aten.adaptive_avg_pool3d.default: adaptive_average_to_one,
    aten.linalg_vector_norm.default: vector_norm,
    aten.norm.ScalarOpt_dim: vector_norm, aten.norm.Scalar: vector_norm,
    aten.logsumexp.default: logsumexp,
}
