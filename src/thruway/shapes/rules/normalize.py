"""Norms and embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thruway.core.dtypes import FLOATS
from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import refuse, require
from thruway.shapes.rules.dims import fresh, fresh_as_suggested
from thruway.shapes.rules.strides import Sizes, is_contiguous, preserved_strides, suggests_channels_last

Rule = Callable[..., object]


def _check_normalized(x: TensorMeta, shape: Sequence[SizeLike], *params: TensorMeta | None) -> Sizes:
    """The leading sizes that are not normalised over."""
    shape = tuple(shape)
    require(len(shape) > 0 and len(x.sizes) >= len(shape) and x.sizes[len(x.sizes) - len(shape):] == shape, f"norm over {shape} of {x.sizes}")
    require(x.dtype in FLOATS, f"norm of {x.dtype}")
    for p in params:
        require(p is None or (p.sizes == shape and p.device == x.device), "a norm's weight or bias")
    return x.sizes[:len(x.sizes) - len(shape)]


def _same_dtypes(x: TensorMeta, *params: TensorMeta | None) -> None:
    """All alike, or float32 parameters beside bf16 or fp16 data."""
    kinds = {p.dtype for p in params if p is not None}
    require(len(kinds) <= 1, "a norm's parameters of different dtypes")
    require(kinds <= {x.dtype} or (kinds == {"float32"} and x.dtype in ("bfloat16", "float16")),
            f"a norm of {x.dtype} with parameters of another dtype")


def _layer_norm(x: TensorMeta, shape: Sequence[SizeLike], weight: TensorMeta | None = None, bias: TensorMeta | None = None,
                eps: float = 1e-5, cudnn_enable: bool = True) -> TensorMeta:
    _check_normalized(x, shape, weight, bias)
    _same_dtypes(x, weight, bias)
    return fresh(x, x.sizes)


def _native_layer_norm(x: TensorMeta, shape: Sequence[SizeLike], weight: TensorMeta | None, bias: TensorMeta | None,
                       eps: float) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    lead = _check_normalized(x, shape, weight, bias)
    _same_dtypes(x, weight, bias)
    low = x.dtype in ("bfloat16", "float16")
    statistics = "float32" if low and (x.device != "cpu" or any(p is not None and p.dtype == "float32" for p in (weight, bias))) else x.dtype
    sizes = (*lead, *(1,) * len(shape))
    return fresh(x, x.sizes), fresh(x, sizes, statistics), fresh(x, sizes, statistics)


def _rms_norm(x: TensorMeta, shape: Sequence[SizeLike], weight: TensorMeta | None = None, eps: float | None = None) -> TensorMeta:
    _check_normalized(x, shape, weight)
    if is_contiguous(x.sizes, x.strides) or suggests_channels_last(x.sizes, x.strides):
        return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), x.dtype, x.device)
    return fresh(x, x.sizes)


def _channel_params(x: TensorMeta, *params: TensorMeta | None) -> None:
    require(len(x.sizes) >= 2 and x.dtype in FLOATS, f"batch norm of {x.sizes} {x.dtype}")
    for p in params:
        require(p is None or p.sizes == x.sizes[1:2], "batch norm's parameters")
    _same_dtypes(x, *params)


def _batch_norm(x: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None, mean: TensorMeta | None, var: TensorMeta | None,
                training: bool, momentum: float, eps: float, cudnn_enabled: bool = False) -> TensorMeta:
    """Inference only: in training it writes its running statistics, which `graph.retrace` takes to another operator."""
    _channel_params(x, weight, bias, mean, var)
    require(training or (mean is not None and var is not None), "batch norm without statistics")
    return _as_batch_norm(x)


def _as_batch_norm(x: TensorMeta) -> TensorMeta:
    if any(s == 0 for s in x.sizes):
        refuse("batch norm of nothing")
    return fresh(x, x.sizes) if is_contiguous(x.sizes, x.strides) else fresh_as_suggested(x, x.sizes)


def _native_batch_norm(x: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None, mean: TensorMeta | None, var: TensorMeta | None,
                       training: bool, momentum: float, eps: float) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    _channel_params(x, weight, bias, mean, var)
    saved = (x.sizes[1],) if training else (0,)
    statistics = "float32" if x.dtype in ("bfloat16", "float16") and weight is not None and weight.dtype == "float32" else x.dtype
    return _as_batch_norm(x), fresh(x, saved, statistics), fresh(x, saved, statistics)


def _batch_norm_no_training(x: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None, mean: TensorMeta, var: TensorMeta,
                            momentum: float, eps: float) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    return _native_batch_norm(x, weight, bias, mean, var, False, momentum, eps)


def _group_norm(x: TensorMeta, groups: int, weight: TensorMeta | None = None, bias: TensorMeta | None = None, eps: float = 1e-5,
                cudnn_enabled: bool = True) -> TensorMeta:
    _channel_params(x, weight, bias)
    require(groups > 0 and x.sizes[1] % groups == 0, f"{x.sizes[1]} channels in {groups} groups")
    require(all(s != 0 for s in x.sizes[1:]), "group norm of nothing")
    return fresh_as_suggested(x, x.sizes)


def _native_group_norm(x: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None, n: SizeLike, c: SizeLike, rest: SizeLike,
                       groups: int, eps: float) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    made = _group_norm(x, groups, weight, bias)
    statistics = "float32" if x.dtype in ("bfloat16", "float16") and weight is not None and weight.dtype == "float32" else x.dtype
    return made, fresh(x, (n, groups), statistics), fresh(x, (n, groups), statistics)


def _embedding(weight: TensorMeta, indices: TensorMeta, padding_idx: int = -1, scale_grad_by_freq: bool = False,
               sparse: bool = False) -> TensorMeta:
    require(len(weight.sizes) == 2 and indices.dtype in ("int64", "int32"), f"embedding of {weight.sizes} by {indices.dtype}")
    require(weight.device == indices.device, "embedding across devices")
    return fresh(weight, (*indices.sizes, weight.sizes[1]))


RULES: dict[str, Rule] = {
    "aten::layer_norm": _layer_norm,
    "aten::native_layer_norm": _native_layer_norm,
    "aten::rms_norm": _rms_norm,
    "aten::batch_norm": _batch_norm,
    "aten::native_batch_norm": _native_batch_norm,
    "aten::_native_batch_norm_legit": _native_batch_norm,
    "aten::_native_batch_norm_legit_no_training": _batch_norm_no_training,
    "aten::group_norm": _group_norm,
    "aten::native_group_norm": _native_group_norm,
    "aten::embedding": _embedding,
}
