"""Normalisations: layer, group, rms, and batch norm with running statistics, inside in float32 for bf16 and fp16.

On a CPU layer and group norm follow eager to the bit (`loops.ir.MOMENTS`, and products fused with sums where its kernels fuse them); elsewhere
mean and deviation are found in two passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thruway.core.dtypes import compute_dtype
from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike, floordiv
from thruway.loops.builder import Builder, Tensor, axis_indices, load, load_broadcast
from thruway.loops.expressions import cast, op
from thruway.loops.ir import Expr, Literal
from thruway.loops.lowerings.reductions import count, moments, reading, reduce, reduced_sizes
from thruway.loops.lowerings.views import reshape_index
from thruway.shapes.meta import TensorMeta, contiguous_strides

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def _inverse_deviation(b: Builder, squares: Tensor, number: Expr, eps: float, middle: Tensor | None = None) -> Tensor:
    """1 / sqrt(variance + eps). With the mean `middle` it is nan where mean² or the squares overflow, as eager's running moments are."""
    variance = op("div", load_broadcast(squares, squares.rank), number)
    if middle is not None:
        mean = load_broadcast(middle, middle.rank)
        large = op("add", load_broadcast(squares, squares.rank), op("mul", mean, mean))
        variance = op("add", variance, op("mul", large, Literal(0.0, number.dtype)))
    return b.temp(squares.sizes, op("rsqrt", op("add", variance, Literal(eps, number.dtype))), "rstd")


def _scaled(value: Expr, weight: Expr | None, bias: Expr | None) -> Expr:
    """value * weight + bias, those that exist."""
    if weight is not None:
        value = op("mul", value, cast(weight, value.dtype))
    return value if bias is None else op("add", value, cast(bias, value.dtype))


def _corrected(b: Builder, x: Tensor, dims: Sequence[int], wide: str) -> tuple[Tensor, Tensor]:
    """Mean and sum of squared distances from it. The mean of values far from zero is rounded: what the distances from it sum up to is added."""
    middle, squares = moments(b, x, dims, wide)

    def away(index: tuple) -> Expr:
        return op("sub", cast(load(x, index), wide), load(middle, index))
    rest = b.temp(middle.sizes, reduce(x.sizes, dims, True, "sum", away, wide), "rest")
    correction = op("div", load_broadcast(rest, x.rank), count(x, dims, wide))
    return b.temp(middle.sizes, op("add", load_broadcast(middle, x.rank), correction), "mean"), squares


def _as_eager(b: Builder, x: Tensor) -> bool:
    """Whether rows of `x` are taken in the order of eager's kernels: a CPU's, in float32 inside."""
    return b.device == "cpu" and compute_dtype(x.dtype) == "float32"


def _statistics(b: Builder, x: Tensor, dims: Sequence[int], eps: float, root: str | None) -> tuple[Tensor, Tensor]:
    """Mean and inverse deviation over `dims`, kept; with `root`, in which eager takes the root, in the order in which its rows add up."""
    wide = compute_dtype(x.dtype)
    if root is None:
        middle, squares = _corrected(b, x, dims, wide)
        return middle, _inverse_deviation(b, squares, count(x, dims, wide), eps, middle)
    kept = reduced_sizes(x.sizes, dims, True)
    middle = b.temp(kept, reduce(x.sizes, dims, True, f"mean_of_{x.dtype}", reading(x, wide), wide), "mean")
    squares = b.temp(kept, reduce(x.sizes, dims, True, f"squares_of_{x.dtype}", reading(x, wide), wide), "squares")
    variance = cast(op("div", load_broadcast(squares, x.rank), count(x, dims, wide)), root)
    return middle, b.temp(kept, cast(op("rsqrt", op("add", variance, Literal(eps, root))), wide), "rstd")


def layer_norm_parts(b: Builder, meta: TensorMeta, x: Tensor, shape: tuple, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple:
    dims = tuple(range(x.rank - len(shape), x.rank))
    middle, rstd = _statistics(b, x, dims, eps, "float32" if _as_eager(b, x) else None)
    affine = [None if one is None else load_broadcast(one, x.rank) for one in (weight, bias)]
    mean, scale = load_broadcast(middle, x.rank), load_broadcast(rstd, x.rank)
    return b.compute(meta, _normalized(b, x, mean, scale, *affine)), middle, rstd


def _normalized(b: Builder, x: Tensor, mean: Expr, scale: Expr, weight: Expr | None, bias: Expr | None) -> Expr:
    """(x - mean) * scale * weight + bias, rounded where eager's kernels on a CPU round: a missing bias is added as 0, -0 does not survive it."""
    value = cast(load_broadcast(x, x.rank), scale.dtype)
    if not _as_eager(b, x):
        return _scaled(op("mul", op("sub", value, mean), scale), weight, bias)
    if x.dtype == "float32":
        away = op("sub", value, mean)
        if weight is None and bias is not None:
            return op("fma", away, scale, cast(bias, "float32"))
        value = op("mul", away, scale)
    else:
        value = op("fma", value, scale, op("mul", op("neg", scale), mean))
    last = Literal(0.0, "float32") if bias is None else cast(bias, "float32")
    return op("add", value, last) if weight is None else op("fma", value, cast(weight, "float32"), last)


def layer_norm(b: Builder, input: Tensor, normalized_shape, weight=None, bias=None, eps: float = 1e-5, cudnn_enable: bool = True) -> Tensor:
    return layer_norm_parts(b, b.out, input, normalized_shape, weight, bias, eps)[0]


def native_layer_norm(b: Builder, input: Tensor, normalized_shape, weight, bias, eps: float) -> tuple:
    out, *statistics = layer_norm_parts(b, b.meta[0], input, normalized_shape, weight, bias, eps)
    return (out, *[_laid_out(b, meta, one) for meta, one in zip(b.meta[1:], statistics)])


def _laid_out(b: Builder, meta: TensorMeta, x: Tensor) -> Tensor:
    """`x` in the layout and dtype of `meta`, whose sizes are those of `x` less dimensions of 1, or the same."""
    return b.compute(meta, load(x, reshape_index(x.sizes, meta.sizes)), "stat")


def rms_norm(b: Builder, input: Tensor, normalized_shape, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    return _rms_norm(b, b.out, input, normalized_shape, weight, eps)[0]


def fused_rms_norm(b: Builder, input: Tensor, normalized_shape, weight: Tensor | None = None, eps: float | None = None) -> tuple:
    out, rstd = _rms_norm(b, b.meta[0], input, normalized_shape, weight, eps)
    return out, _laid_out(b, b.meta[1], rstd)


def _rms_norm(b: Builder, meta: TensorMeta, x: Tensor, shape: tuple, weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean(x²) + eps) * weight."""
    dims, wide = tuple(range(x.rank - len(shape), x.rank)), compute_dtype(x.dtype)
    kept = reduced_sizes(x.sizes, dims, True)
    squares = b.temp(kept, reduce(x.sizes, dims, True, "sum", reading(x, wide, lambda e: op("mul", e, e)), wide), "squares")
    rstd = _inverse_deviation(b, squares, count(x, dims, wide), EPSILON[wide] if eps is None else eps)
    value = op("mul", cast(load_broadcast(x, x.rank), wide), load_broadcast(rstd, x.rank))
    return b.compute(meta, _scaled(value, None if weight is None else load_broadcast(weight, x.rank), None)), rstd


def per_channel(x: Tensor | None, rank: int) -> Expr | None:
    """The element of a vector at the channel (dimension 1) of a result."""
    return None if x is None else load(x, (axis_indices(rank)[1],))


def group_norm(b: Builder, input: Tensor, num_groups: int, weight=None, bias=None, eps: float = 1e-5, cudnn_enabled: bool = True) -> Tensor:
    return _group_norm(b, b.out, input, num_groups, weight, bias, eps)[0]


def native_group_norm(b: Builder, input: Tensor, weight, bias, N: SizeLike, C: SizeLike, HxW: SizeLike, group: int, eps: float) -> tuple:
    out, *statistics = _group_norm(b, b.meta[0], input, group, weight, bias, eps)
    return (out, *[_laid_out(b, meta, one) for meta, one in zip(b.meta[1:], statistics)])


def _group_norm(b: Builder, meta: TensorMeta, x: Tensor, groups: int, weight, bias, eps: float) -> tuple:
    """The input seen as [N, groups, rest], normalised over the rest; weight and bias per channel."""
    wide, members = compute_dtype(x.dtype), floordiv(x.sizes[1], groups)
    split = (x.sizes[0], groups, members, *x.sizes[2:])
    at = axis_indices(len(split))
    grouped = b.temp(split, load(x, (at[0], at[1] * members + at[2], *at[3:])), "groups")
    exact = _as_eager(b, x) and meta.strides == contiguous_strides(meta.sizes)      # where channels come last eager sums up squares
    middle, rstd = _statistics(b, grouped, tuple(range(2, len(split))), eps, "float64" if exact else None)
    at = axis_indices(x.rank)
    place = (at[0], floordiv(at[1], members), *([0] * (len(split) - 2)))
    value, mean, scale = cast(load_broadcast(x, x.rank), wide), load(middle, place), load(rstd, place)
    affine = per_channel(weight, x.rank), per_channel(bias, x.rank)
    if not exact or weight is None and bias is None:
        return b.compute(meta, _scaled(op("mul", op("sub", value, mean), scale), *affine)), middle, rstd
    scale, shift = _scaled(scale, affine[0], None), Literal(0.0, wide) if bias is None else cast(affine[1], wide)
    return b.compute(meta, op("fma", scale, value, op("fma", op("neg", scale), mean, shift))), middle, rstd


def batch_norm_value(x: Tensor, weight, bias, mean: Tensor, var: Tensor, eps: float) -> Expr:
    """x * alpha + beta per channel, as torch's inference kernel folds them."""
    wide = compute_dtype(x.dtype)
    middle, spread = cast(per_channel(mean, x.rank), wide), cast(per_channel(var, x.rank), wide)
    alpha = op("rsqrt", op("add", spread, Literal(eps, wide)))
    if weight is not None:
        alpha = op("mul", alpha, cast(per_channel(weight, x.rank), wide))
    beta = op("neg", op("mul", middle, alpha)) if bias is None else op("sub", cast(per_channel(bias, x.rank), wide), op("mul", middle, alpha))
    return op("add", op("mul", cast(load_broadcast(x, x.rank), wide), alpha), beta)


def batch_norm(b: Builder, input: Tensor, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float,
               cudnn_enabled: bool = True) -> Tensor:
    if training or running_mean is None or running_var is None:
        raise Unsupported("TW509", "batch norm over the statistics of its batch")
    return b.compute(b.out, batch_norm_value(input, weight, bias, running_mean, running_var, eps))


def batch_norm_no_training(b: Builder, input: Tensor, weight, bias, running_mean, running_var, momentum: float, eps: float) -> tuple:
    out = b.compute(b.meta[0], batch_norm_value(input, weight, bias, running_mean, running_var, eps))
    empty = [b.compute(meta, Literal(0.0, meta.dtype), "saved") for meta in b.meta[1:]]
    return (out, *empty)


def native_batch_norm(b: Builder, input: Tensor, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float) -> tuple:
    if training or running_mean is None or running_var is None:
        raise Unsupported("TW509", "batch norm over the statistics of its batch")
    return batch_norm_no_training(b, input, weight, bias, running_mean, running_var, momentum, eps)


ROWS: dict[str, Callable[..., Tensor | tuple]] = {
    "aten.layer_norm.default": layer_norm, "aten.native_layer_norm.default": native_layer_norm,
    "aten.rms_norm.default": rms_norm, "aten._fused_rms_norm.default": fused_rms_norm,
    "aten.group_norm.default": group_norm, "aten.native_group_norm.default": native_group_norm,
    "aten.batch_norm.default": batch_norm, "aten._native_batch_norm_legit_no_training.default": batch_norm_no_training,
    "aten.native_batch_norm.default": native_batch_norm,
}
