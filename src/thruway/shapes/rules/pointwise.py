"""Pointwise operators: broadcasting, type promotion, TensorIterator's strides.

A row says how the result dtype comes from the operands and how many leading arguments are operands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from thruway.core.dtypes import COMPLEX
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import refuse, require
from thruway.shapes.rules.promote import REAL_OF, as_float, category, result_dtype
from thruway.shapes.rules.strides import broadcast, iterator_strides

Rule = Callable[..., object]


def common_device(metas: list[TensorMeta]) -> str:
    """The device of all operands; a 0-dim CPU tensor may stand beside any."""
    device = next((m.device for m in metas if m.sizes or m.device != "cpu"), metas[0].device)
    for m in metas:
        require(m.device == device or (m.device == "cpu" and not m.sizes), f"operands on {m.device} and {device}")
    if device != "cpu":
        return next(m.device for m in metas if m.device != "cpu")
    return device


def iterate(metas: list[TensorMeta], dtype: str) -> TensorMeta:
    """A fresh result over `metas`, broadcast."""
    shape = broadcast([m.sizes for m in metas])
    return TensorMeta(shape, iterator_strides(shape, [(m.sizes, m.strides) for m in metas]), dtype, common_device(metas))


def _default(operands: list[object]) -> str:
    return result_dtype(operands)


def _float(operands: list[object]) -> str:
    return as_float(result_dtype(operands))


def _bool(operands: list[object]) -> str:
    return "bool"


def _real(operands: list[object]) -> str:
    dtype = result_dtype(operands)
    return REAL_OF.get(dtype, dtype)


def _no_bool(operands: list[object]) -> str:
    dtype = result_dtype(operands)
    require(dtype != "bool", "operator not defined for bool tensors")
    return dtype


def _integral(operands: list[object]) -> str:
    dtype = result_dtype(operands)
    require(category(dtype) < 2, "bitwise operator on floating tensors")
    return dtype


def _no_complex(operands: list[object]) -> str:
    dtype = result_dtype(operands)
    require(dtype not in COMPLEX, "operator not defined for complex tensors")
    return dtype


def _float_no_complex(operands: list[object]) -> str:
    return as_float(_no_complex(operands))


def _floating_only(operands: list[object]) -> str:
    dtype = result_dtype(operands)
    require(category(dtype) == 2, f"operator not defined for {dtype}")
    return dtype


def _ordered_bool(operands: list[object]) -> str:
    _no_complex(operands)
    return "bool"


def _not_int_bool(operands: list[object]) -> str:
    return "bool"


def _elementwise(kind: Callable[[list[object]], str], count: int, *args: object, **kwargs: object) -> TensorMeta:
    operands = [a for a in args[:count] if a is not None]
    if kwargs:
        operands += [kwargs[k] for k in ("min", "max", "other") if kwargs.get(k) is not None]
    return iterate([a for a in operands if isinstance(a, TensorMeta)], kind(operands))


def _subtract(*args: object, **kwargs: object) -> TensorMeta:
    for a in args[:2]:
        require(a.dtype != "bool" if isinstance(a, TensorMeta) else not isinstance(a, bool), "subtraction with a bool")
    return _alpha(*args, **kwargs)


def _alpha(*args: object, alpha: object = 1, **kwargs: object) -> TensorMeta:
    """add and sub: alpha must fit the result's category."""
    extra = args[2:3]
    alpha = extra[0] if extra else alpha
    dtype = result_dtype(list(args[:2]))
    require(not isinstance(alpha, bool) or dtype == "bool", "a bool alpha for numbers")
    require(not isinstance(alpha, float) or category(dtype) >= 2, "a floating alpha for integers")
    require(not isinstance(alpha, complex) or category(dtype) == 3, "a complex alpha for reals")
    return _elementwise(_default, 2, *args)


def _division(x: object, y: object, *, rounding_mode: str | None = None) -> TensorMeta:
    if rounding_mode is None:
        return _elementwise(_float, 2, x, y)
    return _elementwise(_no_complex, 2, x, y)


def _where(condition: TensorMeta, x: object, y: object) -> TensorMeta:
    require(condition.dtype in ("bool", "uint8"), "where needs a bool condition")
    metas = [m for m in (condition, x, y) if isinstance(m, TensorMeta)]
    return iterate(metas, result_dtype([x, y]))


def _masked_fill(x: TensorMeta, mask: TensorMeta, value: object) -> TensorMeta:
    require(mask.dtype == "bool", "masked_fill needs a bool mask")
    require(not isinstance(value, TensorMeta) or not value.sizes, "masked_fill's value must be 0-dim")
    if isinstance(value, (int, float, complex)):
        require(category(result_dtype([value])) <= category(x.dtype) or category(result_dtype([value])) < 3, "masked_fill with a complex value")
    else:
        require(category(value.dtype) < 3 or category(x.dtype) == 3, "masked_fill with a complex value")
    made = iterate([x, mask], x.dtype)
    from_x = broadcast([x.sizes, mask.sizes])
    if from_x == x.sizes:
        return made
    return TensorMeta(from_x, made.strides, x.dtype, made.device)


def _power(x: object, y: object) -> TensorMeta:
    if isinstance(y, int) and not isinstance(y, bool) and y < 0 and isinstance(x, TensorMeta):
        require(category(x.dtype) >= 2, "integers to negative integer powers")
    return _elementwise(_default, 2, x, y)


def _sigmoid_like(x: TensorMeta) -> TensorMeta:
    return iterate([x], as_float(x.dtype))


def _dropout_like(x: TensorMeta, p: object = 0.5, generator: object = None) -> TensorMeta:
    return iterate([x], x.dtype)


def _to_complex(x: TensorMeta, y: TensorMeta) -> TensorMeta:
    pairs = {"float32": "complex64", "float64": "complex128"}
    if x.dtype != y.dtype or x.dtype not in pairs:
        refuse(f"complex from {x.dtype} and {y.dtype}")
    return iterate([x, y], pairs[x.dtype])


def _rows(kind: Callable[[list[object]], str], count: int, names: str) -> dict[str, Rule]:
    return {f"aten::{name}": partial(_elementwise, kind, count) for name in names.split()}


RULES: dict[str, Rule] = {
    **_rows(_float, 1, "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid "
                       "reciprocal"),
    **_rows(_float_no_complex, 1, "erf erfc erfinv lgamma digamma special_i0 i0 sinc"),
    **_rows(_no_complex, 1, "ceil floor trunc round relu relu6 frac round.decimals"),
    **_rows(_no_bool, 1, "neg"),
    **_rows(_real, 1, "abs angle"),
    **_rows(_default, 1, "square positive sgn conj_physical"),
    **_rows(_no_complex, 1, "sign"),
    **_rows(_integral, 1, "bitwise_not"),
    **_rows(_bool, 1, "isnan logical_not isinf isfinite"),
    **_rows(_ordered_bool, 1, "signbit isposinf isneginf"),
    **_rows(_floating_only, 1, "gelu mish hardswish hardsigmoid elu celu selu leaky_relu softplus log_sigmoid "
                               "softshrink hardshrink tanhshrink"),
    **_rows(_floating_only, 1, "logit"),
    **_rows(_default, 1, "silu nan_to_num"),
    **_rows(_no_complex, 1, "hardtanh threshold"),
    **_rows(_default, 2, "mul.Tensor mul.Scalar"),
    **_rows(_float, 2, "div.Scalar true_divide.Tensor xlogy.Tensor"),
    **_rows(_float_no_complex, 2, "atan2"),
    **_rows(_no_complex, 2, "maximum minimum fmax fmin floor_divide floor_divide.Scalar remainder.Tensor remainder.Scalar fmod.Tensor "
                            "fmod.Scalar heaviside clamp_min clamp_max clamp_min.Tensor clamp_max.Tensor hypot copysign.Tensor"),
    **_rows(_no_complex, 3, "clamp clamp.Tensor clip"),
    **_rows(_integral, 2, "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar"),
    **_rows(_integral, 2, "bitwise_left_shift.Tensor bitwise_right_shift.Tensor bitwise_left_shift.Tensor_Scalar "
                          "bitwise_right_shift.Tensor_Scalar __lshift__.Scalar __rshift__.Scalar __lshift__.Tensor __rshift__.Tensor"),
    **_rows(_bool, 2, "eq.Tensor eq.Scalar ne.Tensor ne.Scalar logical_and logical_or logical_xor"),
    **_rows(_ordered_bool, 2, "lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar"),
    **_rows(_default, 3, "addcmul"),
    **_rows(_float, 3, "addcdiv"),
    "aten::add.Tensor": _alpha,
    "aten::add.Scalar": _alpha,
    "aten::sub.Tensor": _subtract,
    "aten::sub.Scalar": _subtract,
    "aten::rsub.Scalar": _subtract,
    "aten::rsub.Tensor": _subtract,
    "aten::div.Tensor": _division,
    "aten::div.Tensor_mode": _division,
    "aten::div.Scalar_mode": _division,
    "aten::where.self": _where,
    "aten::where.ScalarSelf": _where,
    "aten::where.ScalarOther": _where,
    "aten::masked_fill.Scalar": _masked_fill,
    "aten::masked_fill.Tensor": _masked_fill,
    "aten::pow.Tensor_Scalar": _power,
    "aten::pow.Tensor_Tensor": _power,
    "aten::pow.Scalar": _power,
    "aten::complex": _to_complex,
    "aten::bernoulli": _dropout_like,
    "aten::bernoulli.p": _dropout_like,
}
