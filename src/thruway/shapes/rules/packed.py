"""oneDNN's and MKL's fused and prepacked operators. A packed weight keeps its dense sizes and strides here; its bytes are opaque."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import require
from thruway.shapes.rules.convolve import convolved_sizes
from thruway.shapes.rules.dims import fresh
from thruway.shapes.rules.strides import channels_last_strides

Rule = Callable[..., object]


def _same(x: TensorMeta, *_: object, **__: object) -> TensorMeta:
    return x


def _convolution(x: TensorMeta, weight: TensorMeta, bias: TensorMeta | None, padding: Sequence[SizeLike], stride: Sequence[int],
                 dilation: Sequence[int], groups: int, *_: object) -> TensorMeta:
    """The weight is packed, so 4- and 5-dimensional results are channels_last."""
    sizes = convolved_sizes(x.sizes, weight.sizes, bias, stride, padding, dilation, False, (0,), groups)
    if len(sizes) in (4, 5):
        return TensorMeta(sizes, channels_last_strides(sizes), x.dtype, x.device)
    return fresh(x, sizes)


def _convolution_binary(x: TensorMeta, other: TensorMeta, weight: TensorMeta, bias: TensorMeta | None, padding: Sequence[SizeLike],
                        stride: Sequence[int], dilation: Sequence[int], groups: int, *_: object) -> TensorMeta:
    made = _convolution(x, weight, bias, padding, stride, dilation, groups)
    require(other.sizes == made.sizes, "a convolution's summand of other sizes")
    return made


def _convolution_binary_inplace(other: TensorMeta, x: TensorMeta, weight: TensorMeta, bias: TensorMeta | None, padding: Sequence[SizeLike],
                                stride: Sequence[int], dilation: Sequence[int], groups: int, *_: object) -> TensorMeta:
    _convolution_binary(x, other, weight, bias, padding, stride, dilation, groups)
    return other


def _linear(x: TensorMeta, weight: TensorMeta, *_: object) -> TensorMeta:
    require(len(x.sizes) >= 1 and x.sizes[-1] == weight.sizes[1], f"linear of {x.sizes} by {weight.sizes}")
    return fresh(x, (*x.sizes[:-1], weight.sizes[0]))


def _linear_binary(x: TensorMeta, other: TensorMeta, weight: TensorMeta, *_: object) -> TensorMeta:
    return _linear(x, weight)


def _mkl_linear(x: TensorMeta, packed: TensorMeta, weight: TensorMeta, bias: TensorMeta | None, batch: int) -> TensorMeta:
    return _linear(x, weight)


RULES: dict[str, Rule] = {
    "mkldnn::_convolution_pointwise": _convolution,
    "mkldnn::_convolution_pointwise.binary": _convolution_binary,
    "mkldnn::_convolution_pointwise_.binary": _convolution_binary_inplace,
    "mkldnn::_linear_pointwise": _linear,
    "mkldnn::_linear_pointwise.binary": _linear_binary,
    "mkldnn::_reorder_convolution_weight": _same,
    "mkldnn::_reorder_linear_weight": _same,
    "mkl::_mkl_linear": _mkl_linear,
    "mkl::_mkl_reorder_linear_weight": _same,
}
