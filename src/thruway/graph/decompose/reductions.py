"""Variance and its family, batch norm of inference, pooling that is a mean."""

from __future__ import annotations

from types import SimpleNamespace

from torch.fx import Node

from thruway.core.dtypes import compute_dtype, is_float
from thruway.core.sizes import product
from thruway.graph.rewrite import Context, Emitter, aten, meta


def _dims(dim, rank: int) -> list[int]:
    if dim is None or dim == [] or not rank:
        return list(range(rank))
    return [d % rank for d in (dim if isinstance(dim, (tuple, list)) else [dim])]


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


def adaptive_average_to_one(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Pooling to one value per channel is a mean, in eager too."""
    sizes = a.output_size if isinstance(a.output_size, (tuple, list)) else [a.output_size]
    if any(n != 1 for n in sizes):
        return None
    return emit(aten.mean.dim, a.self, list(range(-len(sizes), 0)), True)


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
    aten.adaptive_avg_pool1d.default: adaptive_average_to_one,
    aten.adaptive_avg_pool2d.default: adaptive_average_to_one,
    aten._adaptive_avg_pool2d.default: adaptive_average_to_one,
    aten.adaptive_avg_pool3d.default: adaptive_average_to_one,
}
