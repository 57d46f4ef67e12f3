"""Convolutions, pooling, resampling and padding by what is inside: channels_last in, channels_last out, as eager's kernels do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thruway.core.dtypes import FLOATS
from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import refuse, require
from thruway.shapes.rules.dims import fresh, fresh_as_suggested
from thruway.shapes.rules.strides import Sizes, channels_last_strides, is_contiguous, suggests_channels_last

Rule = Callable[..., object]


def spread(values: int | Sequence[SizeLike], count: int) -> tuple[SizeLike, ...]:
    """One value per spatial dimension."""
    values = (values,) if isinstance(values, int) else tuple(values)
    require(len(values) in (1, count), f"{len(values)} values for {count} dimensions")
    return values * count if len(values) == 1 else values


def _convolution(x: TensorMeta, weight: TensorMeta, bias: TensorMeta | None, stride: Sequence[int], padding: Sequence[SizeLike],
                 dilation: Sequence[int], transposed: bool, output_padding: Sequence[SizeLike], groups: int) -> TensorMeta:
    sizes = convolved_sizes(x.sizes, weight.sizes, bias, stride, padding, dilation, transposed, output_padding, groups)
    require(x.dtype == weight.dtype and (bias is None or bias.dtype == x.dtype), "a convolution of different dtypes")
    require(x.device == weight.device and x.dtype in FLOATS, f"a convolution of {x.dtype} on {x.device}")
    if len(sizes) == 3:
        made = _convolved_layout(_with_height(_made_contiguous(x)), _with_height(weight), (*sizes[:2], 1, sizes[2]))
        return TensorMeta(sizes, (*made.strides[:2], made.strides[3]), x.dtype, x.device)
    return _convolved_layout(x, weight, sizes)


def _made_contiguous(x: TensorMeta) -> TensorMeta:
    """What eager copies a transposed sequence to, so that it does not pass for an image with its channels last."""
    return x if is_contiguous(x.sizes, x.strides) else fresh(x, x.sizes)


def _with_height(x: TensorMeta) -> TensorMeta:
    """One-dimensional data as eager sees it: an image of height 1."""
    n, c, w = x.sizes
    sn, sc, sw = x.strides
    return TensorMeta((n, c, 1, w), (sn, sc, w * sw, sw), x.dtype, x.device)


def _convolved_layout(x: TensorMeta, weight: TensorMeta, sizes: Sizes) -> TensorMeta:
    if _goes_channels_last(x, weight):
        return TensorMeta(sizes, channels_last_strides(sizes), x.dtype, x.device)
    return fresh(x, sizes)


def _goes_channels_last(x: TensorMeta, weight: TensorMeta) -> bool:
    return suggests_channels_last(x.sizes, x.strides) or suggests_channels_last(weight.sizes, weight.strides)


def convolved_sizes(x: Sizes, weight: Sizes, bias: TensorMeta | None, stride: Sequence[int], padding: Sequence[SizeLike],
                    dilation: Sequence[int], transposed: bool, output_padding: Sequence[SizeLike], groups: int) -> Sizes:
    """(N, C, …) of the result. Refuses batchless input: the composite conv operators add the batch dimension before."""
    rank = len(weight) - 2
    require(rank >= 1 and len(x) == rank + 2, f"a convolution of {x} by {weight}")
    stride, padding, dilation = spread(stride, rank), spread(padding, rank), spread(dilation, rank)
    require(groups > 0 and all(s > 0 for s in stride) and all(d > 0 for d in dilation) and all(p >= 0 for p in padding),
            "a convolution's stride, padding or dilation")
    require(weight[0] % groups == 0 and weight[0] >= groups, f"{weight[0]} channels in {groups} groups")
    channels = weight[1] * groups if transposed else weight[0]
    require(x[1] == (weight[0] if transposed else weight[1] * groups), f"a convolution of {x} by {weight} in {groups} groups")
    require(bias is None or bias.sizes == (channels,), "a convolution's bias")
    require(all(s > 0 for s in weight[2:]) and all(s > 0 for s in x[2:]) and x[1] > 0, "a convolution of nothing")
    out: list[SizeLike] = []
    for i in range(rank):
        kernel = dilation[i] * (weight[i + 2] - 1) + 1
        if transposed:
            extra = spread(output_padding, rank)[i]
            require(extra < stride[i] or extra < dilation[i], "a transposed convolution's output padding")
            size = (x[i + 2] - 1) * stride[i] - 2 * padding[i] + kernel + extra
        else:
            require(x[i + 2] + 2 * padding[i] >= kernel, "a kernel larger than the padded input")
            size = (x[i + 2] + 2 * padding[i] - kernel) // stride[i] + 1
        require(size > 0, "an empty convolution")
        out.append(size)
    return (x[0], channels, *out)


def _pooled(size: SizeLike, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> SizeLike:
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    require(span >= 0 or ceil, "pooling by a kernel larger than the padded input")
    out = (span + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (out - 1) * stride >= size + padding:
        out = out - 1
    require(out >= 1, "pooling to nothing")
    return out


def pooled_sizes(x: Sizes, rank: int, kernel: object, stride: object, padding: object, dilation: object, ceil: bool) -> Sizes:
    require(len(x) in (rank + 1, rank + 2), f"{rank}-dimensional pooling of {x}")
    require(all(s > 0 for s in x[-rank - 1:]), "pooling of nothing")
    kernel = spread(kernel, rank)
    stride = spread(stride, rank) if not (isinstance(stride, (list, tuple)) and not stride) else kernel
    padding, dilation = spread(padding, rank), spread(dilation, rank)
    for k, s, p, d in zip(kernel, stride, padding, dilation):
        require(k > 0 and s > 0 and d > 0 and 0 <= p and 2 * p <= k, "pooling's kernel, stride or padding")
    return (*x[:-rank], *(_pooled(x[i - rank], kernel[i], stride[i], padding[i], dilation[i], ceil) for i in range(rank)))


def _max_pool2d(x: TensorMeta, kernel: object, stride: object = (), padding: object = 0, dilation: object = 1,
                ceil_mode: bool = False) -> tuple[TensorMeta, TensorMeta]:
    require(x.dtype in FLOATS or x.dtype not in ("bool",), "pooling of bool")
    made = fresh_as_suggested(x, pooled_sizes(x.sizes, 2, kernel, stride, padding, dilation, ceil_mode))
    return made, TensorMeta(made.sizes, made.strides, "int64", made.device)


def _max_pool2d_value(x: TensorMeta, *args: object, **kwargs: object) -> TensorMeta:
    require(x.dtype in FLOATS, f"max_pool2d of {x.dtype}")
    return _max_pool2d(x, *args, **kwargs)[0]


def _avg_pool2d(x: TensorMeta, kernel: object, stride: object = (), padding: object = 0, ceil_mode: bool = False,
                count_include_pad: bool = True, divisor_override: int | None = None) -> TensorMeta:
    require(x.dtype in FLOATS and divisor_override != 0, f"avg_pool2d of {x.dtype}")
    return fresh_as_suggested(x, pooled_sizes(x.sizes, 2, kernel, stride, padding, 1, ceil_mode))


def _adaptive_avg_pool2d(x: TensorMeta, output: Sequence[SizeLike]) -> TensorMeta:
    require(len(output) == 2 and len(x.sizes) in (3, 4) and x.dtype in FLOATS, "adaptive pooling's output")
    require(all(s > 0 for s in x.sizes[-2:]) and all(o >= 0 for o in output) and x.sizes[-3] != 0, "adaptive pooling of nothing")
    if len(x.sizes) == 3:
        return fresh(x, (x.sizes[0], *output))
    return fresh_as_suggested(x, (*x.sizes[:2], *output))


def _resampled(x: TensorMeta, output: Sequence[SizeLike], *_: object) -> TensorMeta:
    require(len(x.sizes) == len(output) + 2, f"resampling of {len(x.sizes)} dimensions to {tuple(output)}")
    require(all(o > 0 for o in output) and all(s > 0 for s in x.sizes[1:]), "resampling of nothing")
    require(x.dtype in FLOATS or x.dtype == "uint8", f"resampling of {x.dtype}")
    return fresh_as_suggested(x, (*x.sizes[:2], *output))


def _pixel_shuffle(x: TensorMeta, factor: int) -> TensorMeta:
    if len(x.sizes) < 3 or factor <= 0 or x.sizes[-3] % (factor * factor) != 0:
        refuse(f"pixel_shuffle of {x.sizes} by {factor}")
    *batch, c, h, w = x.sizes
    return fresh_as_suggested(x, (*batch, c // (factor * factor), h * factor, w * factor))


def _edge_padded(rank: int, reflects: bool) -> Rule:
    """Padding by what is inside: reflected at the edge, or the edge repeated."""
    def rule(x: TensorMeta, padding: Sequence[SizeLike]) -> TensorMeta:
        require(len(x.sizes) in (rank + 1, rank + 2) and len(padding) == 2 * rank and x.dtype != "bool", f"padding of {x.sizes} by {tuple(padding)}")
        require(all(s > 0 for s in x.sizes[-rank - 1:]), "padding of nothing")
        sizes = list(x.sizes)
        for k in range(rank):
            before, after = padding[2 * k], padding[2 * k + 1]
            require(not reflects or (before < sizes[-1 - k] and after < sizes[-1 - k]), "a reflection wider than the input")
            sizes[-1 - k] = sizes[-1 - k] + before + after
            require(sizes[-1 - k] > 0, "padding to nothing")
        return fresh_as_suggested(x, tuple(sizes))

    return rule


RULES: dict[str, Rule] = {
    **{f"aten::{kind}_pad{rank}d": _edge_padded(rank, kind == "reflection") for kind in ("reflection", "replication") for rank in (1, 2, 3)},
    "aten::convolution": _convolution,
    "aten::max_pool2d": _max_pool2d_value,
    "aten::max_pool2d_with_indices": _max_pool2d,
    "aten::avg_pool2d": _avg_pool2d,
    "aten::_adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "aten::adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "aten::pixel_shuffle": _pixel_shuffle,
    **{f"aten::upsample_{kind}": _resampled for kind in (
        "nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")},
    **{f"aten::_upsample_nearest_exact{rank}d": _resampled for rank in (1, 2, 3)},
    "aten::_upsample_bilinear2d_aa": _resampled,
}
