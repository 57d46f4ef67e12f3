"""Losses, dropout and a few more operators of small families."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from thruway.core.dtypes import FLOATS
from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import default_dtype, device_name, dtype_name
from thruway.shapes.refuse import require
from thruway.shapes.rules.dims import fresh, wrap_dim
from thruway.shapes.rules.pointwise import iterate
from thruway.shapes.rules.promote import category, result_dtype
from thruway.shapes.rules.strides import preserved_strides

Rule = Callable[..., object]
NONE = 0


def _pointwise_loss(x: TensorMeta, target: TensorMeta, reduction: int = 1, *_: object) -> TensorMeta:
    dtype = result_dtype([x, target])
    require(category(dtype) == 2 and x.dtype == target.dtype, f"a loss of {x.dtype} against {target.dtype}")
    made = iterate([x, target], dtype)
    return made if reduction == NONE else fresh(made, ())


def _bent_loss(lowest: float) -> Rule:
    """A loss that is square up to a distance and straight from there on."""
    def rule(x: TensorMeta, target: TensorMeta, reduction: int = 1, distance: float = 1.0) -> TensorMeta:
        require(distance >= lowest, f"a loss that bends at {distance}")
        return _pointwise_loss(x, target, reduction)
    return rule


def _cross_entropy_with_logits(x: TensorMeta, target: TensorMeta, weight: TensorMeta | None = None, positive: TensorMeta | None = None,
                               reduction: int = 1) -> TensorMeta:
    require(x.sizes == target.sizes and x.dtype in FLOATS and target.dtype == x.dtype, "binary cross entropy of different sizes or dtypes")
    require(all(w is None or w.dtype == x.dtype for w in (weight, positive)), "a loss weighted in another dtype")
    made = iterate([m for m in (x, target, weight, positive) if m is not None], x.dtype)
    require(made.sizes == x.sizes, "weights larger than what they weigh")
    return _alike(target) if reduction == NONE else fresh(x, ())


def _alike(x: TensorMeta, dtype: str | None = None) -> TensorMeta:
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), dtype or x.dtype, x.device)


def _nll_loss(x: TensorMeta, target: TensorMeta, weight: TensorMeta | None, reduction: int,
              ignore_index: SizeLike) -> tuple[TensorMeta, TensorMeta]:
    require(len(x.sizes) in (1, 2) and x.dtype in FLOATS and target.dtype == "int64", f"nll_loss of {x.sizes} {x.dtype}")
    require(target.sizes == x.sizes[:-1] or (len(x.sizes) == 1 and target.sizes == (1,)), f"nll_loss of {x.sizes} against {target.sizes}")
    require(weight is None or (weight.sizes == x.sizes[-1:] and weight.dtype == x.dtype), "nll_loss's weights")
    return fresh(x, x.sizes[:1] if reduction == NONE and len(x.sizes) == 2 else ()), fresh(x, ())


def _native_dropout(x: TensorMeta, p: float, train: bool | None) -> tuple[TensorMeta, TensorMeta]:
    require(x.dtype in FLOATS and 0 <= p <= 1 and all(s != 0 for s in x.sizes), f"dropout of {x.dtype}, or of nothing")
    return iterate([x, x], x.dtype), _alike(x, "bool")


def _lerp(x: TensorMeta, end: TensorMeta, weight: object) -> TensorMeta:
    metas = [m for m in (x, end, weight) if isinstance(m, TensorMeta)]
    require(x.dtype in FLOATS and all(m.dtype == x.dtype for m in metas), "lerp of different dtypes")
    return iterate(metas, x.dtype)


def _glu(x: TensorMeta, dim: int = -1) -> TensorMeta:
    require(len(x.sizes) > 0 and x.dtype in FLOATS, "glu of a 0-dim tensor")
    dim = wrap_dim(dim, len(x.sizes))
    require(x.sizes[dim] % 2 == 0, f"glu of {x.sizes[dim]}")
    sizes = tuple(s // 2 if d == dim else s for d, s in enumerate(x.sizes))
    return iterate([TensorMeta(sizes, x.strides, x.dtype, x.device)] * 2, x.dtype)


def _prelu(x: TensorMeta, weight: TensorMeta) -> TensorMeta:
    require(x.dtype == weight.dtype and x.dtype in FLOATS, "prelu of different dtypes")
    require(iterate([x, weight], x.dtype).sizes == x.sizes, "prelu's weight larger than its input")
    return _alike(x)


def _normal(mean: float, std: float, sizes: Sequence[SizeLike], *, generator: object = None, dtype: object = None, device: object = None,
            layout: object = None, pin_memory: object = None) -> TensorMeta:
    require(std >= 0, "a negative deviation")
    made = TensorMeta((), (), default_dtype() if dtype is None else dtype_name(dtype), device_name("cpu" if device is None else device))
    require(category(made.dtype) >= 2 and not pin_memory, f"random floats in {made.dtype}")
    return fresh(made, tuple(sizes))


def _normal_of_tensors(mean: TensorMeta | float, std: TensorMeta | float = 1.0, *, generator: object = None) -> TensorMeta:
    """Dense, in the mean's dtype; torch's own rule for metadata promotes the two and keeps strides."""
    tensors = [m for m in (mean, std) if isinstance(m, TensorMeta)]
    require(all(m.dtype in FLOATS for m in tensors) and (isinstance(std, TensorMeta) or std >= 0), "normal of no floats")
    return fresh(tensors[0], iterate(tensors, tensors[0].dtype).sizes)


RULES: dict[str, Rule] = {
    "aten::mse_loss": _pointwise_loss,
    "aten::smooth_l1_loss": _bent_loss(0.0),
    "aten::huber_loss": _bent_loss(math.ulp(0.0)),
    "aten::binary_cross_entropy_with_logits": _cross_entropy_with_logits,
    "aten::nll_loss_forward": _nll_loss,
    "aten::native_dropout": _native_dropout,
    "aten::lerp.Scalar": _lerp,
    "aten::lerp.Tensor": _lerp,
    "aten::glu": _glu,
    "aten::_prelu_kernel": _prelu,
    "aten::normal.float_float": _normal,
    **dict.fromkeys(("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor"), _normal_of_tensors),
}
