"""Pointwise operators: broadcasting, type promotion, TensorIterator's strides.

A row says how the result dtype comes from the operands and how many leading arguments are operands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from thruway.core.dtypes import COMPLEX
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import refuse, require
from thruway.shapes.rules.dims import fresh
from thruway.shapes.rules.promote import REAL_OF, as_float, category, result_dtype
from thruway.shapes.rules.strides import broadcast, iterator_strides, preserved_strides

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


def _ordered(operands: list[object]) -> str:
    dtype = _no_complex(operands)
    require(dtype != "bool", "operator not defined for bool tensors")
    return dtype


def _clamped(operands: list[object]) -> str:
    require(any(bound is not None for bound in operands[1:]), "clamp without a bound")
    return _ordered(operands)


def _bits(operands: list[object]) -> str:
    dtype = _integral(operands)
    require(dtype != "bool", "shifts of bool")
    return dtype


def _not_integral(operands: list[object]) -> str:
    dtype = result_dtype(operands)
    require(category(dtype) >= 2, f"operator not defined for {dtype}")
    return dtype


def _angle(operands: list[object]) -> str:
    return as_float(_real(operands))


def _magnitude(operands: list[object]) -> str:
    require(result_dtype(operands) != "bool", "abs of bool")
    return _real(operands)


def _elementwise(kind: Callable[[list[object]], str], count: int, *args: object, **kwargs: object) -> TensorMeta:
    operands = [a for a in args[:count] if a is not None]
    if kwargs:
        operands += [kwargs[k] for k in ("min", "max", "other") if kwargs.get(k) is not None]
    return iterate([a for a in operands if isinstance(a, TensorMeta)], kind(operands))


def _with_number(kind: Callable[[list[object]], str], x: object, y: object, *_: object) -> TensorMeta:
    """Two operands of which a number counts as a 0-dim tensor, so that TensorIterator sees two shapes."""
    dtype = kind([x, y])
    return iterate(_as_tensors(dtype, x, y), dtype)


def _as_tensors(dtype: str, *operands: object) -> list[TensorMeta]:
    return [m if isinstance(m, TensorMeta) else TensorMeta((), (), dtype, "cpu") for m in operands]


def _subtract(*args: object, **kwargs: object) -> TensorMeta:
    for a in args[:2]:
        require(a.dtype != "bool" if isinstance(a, TensorMeta) else not isinstance(a, bool), "subtraction with a bool")
    return _alpha(*args, **kwargs)


def _reversed_subtract(x: TensorMeta, y: TensorMeta, alpha: object = 1) -> TensorMeta:
    return _subtract(y, x, alpha=alpha)


def _alpha(*args: object, alpha: object = 1, **kwargs: object) -> TensorMeta:
    """add and sub: alpha must fit the result's category."""
    extra = args[2:3]
    alpha = extra[0] if extra else alpha
    dtype = result_dtype(list(args[:2]))
    require(not isinstance(alpha, bool) or dtype == "bool", "a bool alpha for numbers")
    require(not isinstance(alpha, float) or category(dtype) >= 2, "a floating alpha for integers")
    require(not isinstance(alpha, complex) or category(dtype) == 3, "a complex alpha for reals")
    return _with_number(_default, *args[:2])


def _where(condition: TensorMeta, x: object, y: object) -> TensorMeta:
    require(condition.dtype in ("bool", "uint8"), "where needs a bool condition")
    dtype = result_dtype([x, y])
    return iterate([condition, *_as_tensors(dtype, x, y)], dtype)


def _masked_fill(x: TensorMeta, mask: TensorMeta, value: object) -> TensorMeta:
    require(mask.dtype == "bool" and mask.device == x.device, "masked_fill needs a bool mask")
    require(not isinstance(value, TensorMeta) or not value.sizes, "masked_fill's value must be 0-dim")
    kind = category(value.dtype if isinstance(value, TensorMeta) else result_dtype([value]))
    require(kind < 3 or category(x.dtype) == 3, "masked_fill of real numbers with a complex value")
    return fresh(x, broadcast([x.sizes, mask.sizes]))


def _power(x: object, y: object) -> TensorMeta:
    dtype = result_dtype([x, y])
    require(dtype != "bool", "powers of bool")
    if isinstance(x, TensorMeta):
        require(not isinstance(y, int) or y >= 0 or category(x.dtype) >= 2, "integers to negative integer powers")
        return _elementwise(_default, 2, x, y)
    return fresh(y, y.sizes, dtype)


def _laid_out_alike(kind: Callable[[list[object]], str], x: TensorMeta, *_: object) -> TensorMeta:
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), kind([x]), x.device)


def _packed(kind: Callable[[list[object]], str], x: TensorMeta, *_: object) -> TensorMeta:
    """Unary operators that eager writes into a tensor it allocated empty: the result is contiguous."""
    return fresh(x, x.sizes, kind([x]))


def _division(x: object, y: object, *, rounding_mode: str | None = None) -> TensorMeta:
    require(rounding_mode in (None, "trunc", "floor"), f"division rounded by {rounding_mode}")
    return _with_number(_float, x, y) if rounding_mode is None else _integer_division(x, y)


def _square(x: TensorMeta) -> TensorMeta:
    return iterate([x], result_dtype([x, 2]))


def _hardtanh(x: TensorMeta, *limits: object) -> TensorMeta:
    require(x.dtype != "uint8", "hardtanh of uint8")
    return _laid_out_alike(_ordered, x)


def _is_special(x: TensorMeta) -> TensorMeta:
    """isinf and isfinite: of integers, a filled tensor laid out as x."""
    if category(x.dtype) < 2:
        return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), "bool", x.device)
    return iterate([x], "bool")


def _integer_division(x: object, y: object) -> TensorMeta:
    made = _with_number(_ordered, x, y)
    require(isinstance(y, TensorMeta) or y != 0 or category(made.dtype) == 2, "an integer divided by 0")
    return made


def _dropout_like(x: TensorMeta, p: object = 0.5, generator: object = None) -> TensorMeta:
    return iterate([x], x.dtype)


def _to_complex(x: TensorMeta, y: TensorMeta) -> TensorMeta:
    pairs = {"float32": "complex64", "float64": "complex128"}
    if x.dtype != y.dtype or x.dtype not in pairs:
        refuse(f"complex from {x.dtype} and {y.dtype}")
    return iterate([x, y], pairs[x.dtype])


def _gelu(x: TensorMeta, *, approximate: str = "none") -> object:
    require(approximate in ("none", "tanh"), f"gelu approximated by {approximate}")
    return _elementwise(_floating_only, 1, x)


def _softshrink(x: TensorMeta, lambd: float = 0.5) -> object:
    require(lambd >= 0, f"softshrink by {lambd}")
    return _elementwise(_floating_only, 1, x)


def _rows(kind: Callable[[list[object]], str], count: int, names: str) -> dict[str, Rule]:
    return {f"aten::{name}": partial(_elementwise, kind, count) for name in names.split()}


def _pairs(kind: Callable[[list[object]], str], names: str) -> dict[str, Rule]:
    return {f"aten::{name}": partial(_with_number, kind) for name in names.split()}


RULES: dict[str, Rule] = {
    **_rows(_float, 1, "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid "
                       "reciprocal sinc"),
    **_rows(_float_no_complex, 1, "erf erfc erfinv lgamma digamma special_i0 i0 logit"),
    **_rows(_ordered, 1, "ceil floor trunc round relu"),
    **_rows(_floating_only, 1, "frac round.decimals"),
    **_rows(_no_bool, 1, "neg"),
    **_rows(_magnitude, 1, "abs"),
    **_rows(_angle, 1, "angle"),
    **_rows(_default, 1, "sgn"),
    **_rows(_no_complex, 1, "sign"),
    **_rows(_integral, 1, "bitwise_not"),
    **_rows(_bool, 1, "isnan logical_not"),
    **_rows(_ordered_bool, 1, "signbit isposinf isneginf"),
    **_rows(_floating_only, 1, "mish hardswish hardsigmoid elu celu selu leaky_relu softplus hardshrink"),
    **_rows(_not_integral, 1, "silu"),
    **_rows(_ordered, 1, "threshold"),
    **_pairs(_default, "mul.Tensor mul.Scalar"),
    **_pairs(_float, "div.Scalar"),
    **_pairs(_float_no_complex, "atan2 xlogy.Tensor copysign.Tensor"),
    **_pairs(_no_complex, "maximum minimum fmax fmin"),
    **{f"aten::{name}": _integer_division for name in (
        "floor_divide", "floor_divide.Scalar", "remainder.Tensor", "remainder.Scalar", "fmod.Tensor", "fmod.Scalar")},
    **_pairs(_floating_only, "hypot"),
    **_rows(_ordered, 2, "clamp_min clamp_max"),
    **_rows(_no_complex, 2, "clamp_min.Tensor clamp_max.Tensor"),
    **_rows(_clamped, 3, "clamp clamp.Tensor clip clip.Tensor"),
    **_pairs(_integral, "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar"),
    **_pairs(_bits, "bitwise_left_shift.Tensor bitwise_right_shift.Tensor bitwise_left_shift.Tensor_Scalar "
                    "bitwise_right_shift.Tensor_Scalar __lshift__.Scalar __rshift__.Scalar __lshift__.Tensor __rshift__.Tensor"),
    **_pairs(_bool, "eq.Tensor eq.Scalar ne.Tensor ne.Scalar logical_and logical_or logical_xor"),
    **_pairs(_ordered_bool, "lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar"),
    **_rows(_no_bool, 3, "addcmul"),
    **_rows(_not_integral, 3, "addcdiv"),
    "aten::square": _square,
    "aten::hardtanh": _hardtanh,
    "aten::relu6": partial(_laid_out_alike, _ordered),
    "aten::nan_to_num": partial(_laid_out_alike, _default),
    "aten::log_sigmoid": partial(_packed, _floating_only),
    "aten::gelu": _gelu,
    "aten::softshrink": _softshrink,
    "aten::isinf": _is_special,
    "aten::isfinite": _is_special,
    "aten::add.Tensor": _alpha,
    "aten::add.Scalar": _alpha,
    "aten::sub.Tensor": _subtract,
    "aten::sub.Scalar": _subtract,
    "aten::rsub.Scalar": _subtract,
    "aten::rsub.Tensor": _reversed_subtract,
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
