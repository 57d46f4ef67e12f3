"""Arithmetic, comparison, logic and elementary functions, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from thruway.core.dtypes import FLOATS, INTEGERS, LOW_FLOATS
from thruway.core.errors import Unsupported
from thruway.core.sizes import Size
from thruway.loops.builder import Builder, Tensor, load_broadcast
from thruway.loops.expressions import cast, literal, op, where
from thruway.loops.ir import CheckIndex, Expr, Literal
from thruway.loops.lowerings.elementwise import Operand, common_type, elementwise, float_type, operand
from thruway.loops.lowerings.ties import by_vectors, either, extreme


def like(value: float, x: Expr) -> Literal:
    """The number `value` in the dtype of `x`."""
    return literal(value, x.dtype)


def unary_float(name: str) -> Callable[..., Tensor]:
    """A function of one real number; integers become the default float."""
    def row(b: Builder, self: Tensor) -> Tensor:
        return elementwise(b, partial(op, name), (self,), float_type(b, (self,)))
    return row


def unary_same(name: str, integers: str | None = None) -> Callable[..., Tensor]:
    """A function in its operand's own dtype; on integers `integers` names another, "" means the value itself."""
    def row(b: Builder, self: Tensor) -> Tensor:
        chosen = name if integers is None or self.dtype in FLOATS else integers
        return elementwise(b, partial(op, chosen) if chosen else lambda x: x, (self,), self.dtype)
    return row


def float_predicate(name: str) -> Callable[..., Tensor]:
    """A question about one number; no integer answers it with yes."""
    def row(b: Builder, self: Tensor) -> Tensor:
        answer = partial(op, name) if self.dtype in FLOATS else lambda x: Literal(False, "bool")
        return elementwise(b, answer, (self,), self.dtype, out="bool")
    return row


def binary(name: str, bools: str | None = None, exact: bool = False) -> Callable[..., Tensor]:
    """A function of two numbers in their common dtype; `bools` is its name on bools."""
    def row(b: Builder, self: Operand, other: Operand) -> Tensor:
        common = common_type(b, (self, other))
        chosen = bools if bools and common == "bool" else name
        return elementwise(b, partial(op, chosen), (self, other), common, exact=exact)
    return row


def extreme_of_two(name: str, bools: str) -> Callable[..., Tensor]:
    """maximum and minimum; `bools` is the name on bools."""
    def row(b: Builder, self: Operand, other: Operand) -> Tensor:
        common = common_type(b, (self, other))
        vectors = by_vectors(b, (self, other), common)
        build = partial(op, bools) if common == "bool" else partial(extreme, name, vectors)
        return elementwise(b, build, (self, other), common)
    return row


def extreme_but_nan(name: str) -> Callable[..., Tensor]:
    """fmax and fmin: of 0 and -0 eager's kernels on a CPU return the first, for bfloat16 the second."""
    def row(b: Builder, self: Operand, other: Operand) -> Tensor:
        common = common_type(b, (self, other))
        first = b.device == "cpu" and common != "bfloat16"
        return elementwise(b, lambda x, y: op(name, y, x) if first else op(name, x, y), (self, other), common)
    return row


def binary_float(name: str, exact: bool = False) -> Callable[..., Tensor]:
    def row(b: Builder, self: Operand, other: Operand) -> Tensor:
        return elementwise(b, partial(op, name), (self, other), float_type(b, (self, other)), exact=exact)
    return row


def comparison(name: str) -> Callable[..., Tensor]:
    def row(b: Builder, self: Operand, other: Operand) -> Tensor:
        return elementwise(b, partial(op, name), (self, other), common_type(b, (self, other)), out="bool")
    return row


def logical(name: str) -> Callable[..., Tensor]:
    """Operands are true where they are not 0, each in its own dtype."""
    def row(b: Builder, self: Operand, *others: Operand) -> Tensor:
        return elementwise(b, partial(op, name), (self, *others), "bool", out="bool")
    return row


def add(b: Builder, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    return _plus(b, self, other, alpha)


def sub(b: Builder, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    return _plus(b, self, other, -alpha)


def rsub(b: Builder, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    return _plus(b, other, self, -alpha)


def _plus(b: Builder, self: Operand, other: Operand, alpha: float | Size) -> Tensor:
    """self + alpha * other; torch fuses that product and sum on floats, but rounds the product to 16 bits where it takes elements one by one.
    On a GPU it does not round alpha first."""
    common = common_type(b, (self, other))
    exact = any(isinstance(x, Tensor) and x.meta.device.startswith("cuda") for x in (self, other))

    def build(x: Expr, y: Expr) -> Expr:
        if common == "bool":
            return op("or", x, y) if alpha else x
        if type(alpha) is not Size and alpha in (1, -1):
            return op("add" if alpha == 1 else "sub", x, y)
        scale = operand(alpha, 0, common, exact)
        if common not in FLOATS:
            return op("add", x, op("mul", y, scale))
        vectors = common not in LOW_FLOATS or by_vectors(b, (self, other), common)
        return either(vectors, op("fma", y, scale, x), op("add", x, rounded(op("mul", y, scale), common)))
    return elementwise(b, build, (self, other), common)


def rounded(x: Expr, dtype: str) -> Expr:
    """`x` as an element of `dtype` holds it, in its own dtype again."""
    return cast(cast(x, dtype), x.dtype)


def div_mode(b: Builder, self: Operand, other: Operand, rounding_mode: str | None = None) -> Tensor:
    """Quotient, exact, or rounded toward minus infinity ("floor") or zero ("trunc")."""
    if rounding_mode is None:
        return DIV(b, self, other)
    common = common_type(b, (self, other))
    on_cpu, sizes = b.device == "cpu", other.sizes if isinstance(other, Tensor) else ()
    by_steps = any(size != 1 for size in sizes) if on_cpu else bool(sizes) and rounding_mode == "trunc"
    if common in LOW_FLOATS and by_steps:                   # eager then rounds every step; how a GPU rounds before the floor is not measured
        build = _truncated if rounding_mode == "trunc" else _floored
        return elementwise(b, lambda x, y: build(x, y, lambda z: rounded(z, common)), (self, other), common)
    name = "floordiv" if rounding_mode == "floor" else "truncdiv"
    return elementwise(b, lambda x, y: op(name, x, nonzero(y)), (self, other), common, exact=True)


def _truncated(x: Expr, y: Expr, r: Callable[[Expr], Expr]) -> Expr:
    return op("trunc", r(op("div", x, y)))


def _floored(x: Expr, y: Expr, r: Callable[[Expr], Expr]) -> Expr:
    """The quotient less its rest, whose rounding may leave it beside a whole number."""
    zero, rest = like(0, x), op("fmod", x, y)
    exact = r(op("div", r(op("sub", x, rest)), y))
    turned = op("and", op("ne", rest, zero), op("ne", op("lt", y, zero), op("lt", rest, zero)))
    exact = where(turned, r(op("sub", exact, like(1, x))), exact)
    whole = op("floor", exact)
    whole = where(op("gt", r(op("sub", exact, whole)), like(0.5, x)), r(op("add", whole, like(1, x))), whole)
    whole = where(op("ne", exact, zero), whole, op("copysign", zero, op("div", x, y)))
    return where(op("eq", y, zero), op("div", x, y), whole)


def floor_divide(b: Builder, self: Operand, other: Operand) -> Tensor:
    return div_mode(b, self, other, "floor")


def remainder(b: Builder, self: Operand, other: Operand) -> Tensor:
    return elementwise(b, lambda x, y: op("mod", x, nonzero(y)), (self, other), common_type(b, (self, other)))


def fmod(b: Builder, self: Operand, other: Operand) -> Tensor:
    return elementwise(b, lambda x, y: op("fmod", x, nonzero(y)), (self, other), common_type(b, (self, other)))


def nonzero(y: Expr) -> Expr:
    """An integer divisor that is checked: where it is 0 the kernel fails, and divides by 1 until then."""
    if y.dtype not in INTEGERS or isinstance(y, Literal) and y.value:
        return y
    zero = op("eq", y, like(0, y))
    failing = CheckIndex(cast(zero, "int64"), 1, False)
    return op("add", where(zero, like(1, y), y), cast(failing, y.dtype))


def pow_scalar(b: Builder, self: Tensor, exponent: float) -> Tensor:
    """x ** number, with eager's shortcuts for small exponents."""
    common = common_type(b, (self, exponent))
    if exponent in (0, 1):
        build = (lambda x: x) if exponent == 1 else lambda x: like(1, x)
        return elementwise(b, build, (self,), common)
    known = _INTEGER_POWERS if common not in FLOATS else _HALF_POWERS if common == "float16" else _POWERS
    shortcut = known.get(exponent)
    if shortcut is not None:
        return elementwise(b, _rounding_each(shortcut, common), (self,), common)
    return elementwise(b, partial(op, "pow"), (self, exponent), common)


def pow_tensor(b: Builder, self: Operand, exponent: Operand) -> Tensor:
    return elementwise(b, partial(op, "pow"), (self, exponent), common_type(b, (self, exponent)))


_INTEGER_POWERS: dict[float, Callable[[Expr, Callable], Expr]] = {
    2: lambda x, r: op("mul", x, x),
    3: lambda x, r: op("mul", r(op("mul", x, x)), x),
}
_POWERS = _INTEGER_POWERS | {
    0.5: lambda x, r: op("sqrt", x),
    -0.5: lambda x, r: op("rsqrt", x),
    -1: lambda x, r: op("reciprocal", x),
    -2: lambda x, r: op("reciprocal", r(op("mul", x, x))),
}
# Eager's fp16 roots come from pow, which gives 0 and inf where sqrt gives -0 and nan.
_HALF_POWERS = {exponent: shortcut for exponent, shortcut in _POWERS.items() if exponent not in (0.5, -0.5)}


def _rounding_each(shortcut: Callable[[Expr, Callable], Expr], common: str) -> Callable[[Expr], Expr]:
    """The shortcut; eager's bf16 vectors round every step of it, its fp16 vectors do not."""
    step = (lambda x: rounded(x, common)) if common == "bfloat16" else lambda x: x
    return lambda x: shortcut(x, step)


def clamp(b: Builder, self: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """A value equal to a limit stays, so that 0 and -0 keep their signs, but where tensors limit it by vectors."""
    limits = [x for x in (min, max) if x is not None]
    common = common_type(b, (self, *limits))
    vectors = b.device == "cpu" and any(isinstance(x, Tensor) for x in limits) and by_vectors(b, (self, *limits), common)

    def build(x: Expr, *ends: Expr) -> Expr:
        rest = list(ends)
        if min is not None:
            x = extreme("max", vectors, x, rest.pop(0))
        return extreme("min", vectors, x, rest.pop(0)) if max is not None else x
    return elementwise(b, build, (self, *limits), common)


def clamp_max(b: Builder, self: Tensor, max: Operand) -> Tensor:
    return clamp(b, self, None, max)


def where_self(b: Builder, condition: Tensor, self: Operand, other: Operand) -> Tensor:
    common = common_type(b, (self, other))
    return select(b, condition, self, other, common)


def select(b: Builder, condition: Tensor, then: Operand, other: Operand, common: str) -> Tensor:
    """`then` where `condition` is not 0, else `other`; values pass unrounded."""
    from_condition = lambda x, y: where(load_condition(b, condition), x, y)
    return elementwise(b, from_condition, (then, other), common)


def load_condition(b: Builder, condition: Tensor) -> Expr:
    return cast(load_broadcast(condition, len(b.out.sizes)), "bool")


def masked_fill(b: Builder, self: Tensor, mask: Tensor, value: Operand) -> Tensor:
    return select(b, mask, value, self, self.dtype)


def addcmul(b: Builder, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """self + value * tensor1 * tensor2, the last product and the sum rounded once on floats, as eager's vectors do."""
    common = common_type(b, (self, tensor1, tensor2))
    def build(x: Expr, y: Expr, z: Expr) -> Expr:
        y = _scaled(y, value)
        return op("fma", y, z, x) if common in FLOATS else op("add", x, op("mul", y, z))
    return elementwise(b, build, (self, tensor1, tensor2), common)


def addcdiv(b: Builder, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    build = lambda x, y, z: op("add", x, op("div", _scaled(y, value), z))
    return elementwise(b, build, (self, tensor1, tensor2), float_type(b, (self, tensor1, tensor2)))


def _scaled(x: Expr, factor: float) -> Expr:
    return x if factor == 1 else op("mul", like(factor, x), x)


def lerp(b: Builder, self: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """self + weight * (end - self), written from the nearer end."""
    def build(x: Expr, y: Expr, w: Expr) -> Expr:
        near = op("fma", w, op("sub", y, x), x)
        far = op("sub", y, op("mul", op("sub", y, x), op("sub", like(1, w), w)))
        return where(op("lt", op("abs", w), like(0.5, w)), near, far)
    return elementwise(b, build, (self, end, weight), common_type(b, (self, end)), exact=True)


def round_decimals(b: Builder, self: Tensor, decimals: int = 0) -> Tensor:
    if self.dtype not in FLOATS:
        return elementwise(b, lambda x: x, (self,), self.dtype)
    ten = 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    short = self.dtype in LOW_FLOATS and self.meta.device.startswith("cuda")            # a GPU then computes each step in it

    def build(x: Expr) -> Expr:
        step = (lambda y: rounded(y, self.dtype)) if short else (lambda y: y)
        scale = step(like(ten, x))
        return op(back, op("round", step(op(there, x, scale))), scale)
    return elementwise(b, build, (self,), self.dtype)


def nan_to_num(b: Builder, self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    top = FINITE_MAX.get(self.dtype, 0.0)

    def build(x: Expr) -> Expr:
        x = where(op("isnan", x), like(nan or 0.0, x), x)
        x = where(op("eq", x, like(math.inf, x)), like(top if posinf is None else posinf, x), x)
        return where(op("eq", x, like(-math.inf, x)), like(-top if neginf is None else neginf, x), x)
    return elementwise(b, build if self.dtype in FLOATS else lambda x: x, (self,), self.dtype)


FINITE_MAX = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


def is_infinite(sign: float) -> Callable[..., Tensor]:
    def row(b: Builder, self: Tensor) -> Tensor:
        answer = (lambda x: op("eq", x, like(sign, x))) if self.dtype in FLOATS else lambda x: Literal(False, "bool")
        return elementwise(b, answer, (self,), self.dtype, out="bool")
    return row


def xlogy(b: Builder, self: Operand, other: Operand) -> Tensor:
    """x * log(y); eager's kernel on a CPU rounds the logarithm first."""
    common = float_type(b, (self, other))

    def build(x: Expr, y: Expr) -> Expr:
        log = rounded(op("log", y), common) if b.device == "cpu" else op("log", y)
        value = where(op("eq", x, like(0, x)), like(0, x), op("mul", x, log))
        return where(op("isnan", y), like(math.nan, y), value)
    return elementwise(b, build, (self, other), common)


def nextafter(b: Builder, self: Operand, other: Operand) -> Tensor:
    """The next number of 16 bits is far from the next of 32, in which loops compute."""
    if common_type(b, (self, other)) in LOW_FLOATS:
        raise Unsupported("TW526", "nextafter of 16-bit numbers")
    return binary("nextafter")(b, self, other)


def logaddexp(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    def build(x: Expr, y: Expr) -> Expr:
        both = op("and", op("isinf", x), op("eq", x, y))
        m = op("max", x, y)
        return where(both, x, op("add", m, op("log1p", op("exp", op("neg", op("abs", op("sub", x, y)))))))
    return elementwise(b, build, (self, other), common_type(b, (self, other)))


DIV = binary_float("div", exact=True)

_FLOAT_FUNCTIONS = (
    "sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc erfinv lgamma digamma sigmoid"
).split()


def _overloads(name: str, row: Callable[..., Tensor], *kinds: str) -> dict[str, Callable[..., Tensor]]:
    return {f"aten.{name}.{kind}": row for kind in kinds}


ROWS: dict[str, Callable[..., Tensor]] = {
    **{f"aten.{name}.default": unary_float(name) for name in _FLOAT_FUNCTIONS},
    "aten.special_erfc.default": unary_float("erfc"),
    "aten.neg.default": unary_same("neg"), "aten.abs.default": unary_same("abs"), "aten.sign.default": unary_same("sign"),
    "aten.sgn.default": unary_same("sign"),
    **{f"aten.{name}.default": unary_same(name, integers="") for name in ("floor", "ceil", "round", "trunc")},
    "aten.round.decimals": round_decimals,
    "aten.bitwise_not.default": lambda b, self: elementwise(b, partial(op, "not" if self.dtype == "bool" else "bitnot"), (self,), self.dtype),
    "aten.isnan.default": float_predicate("isnan"), "aten.isinf.default": float_predicate("isinf"),
    "aten.isposinf.default": is_infinite(math.inf), "aten.isneginf.default": is_infinite(-math.inf),
    "aten.signbit.default": lambda b, self: elementwise(
        b, partial(op, "signbit") if self.dtype in FLOATS else lambda x: op("lt", x, like(0, x)), (self,), self.dtype, out="bool"),
    "aten.logical_not.default": logical("not"),
    **_overloads("add", add, "Tensor", "Scalar"), **_overloads("sub", sub, "Tensor", "Scalar"), **_overloads("rsub", rsub, "Tensor", "Scalar"),
    **_overloads("mul", binary("mul", "and", exact=True), "Tensor", "Scalar"),
    **_overloads("div", DIV, "Tensor", "Scalar"), **_overloads("div", div_mode, "Tensor_mode", "Scalar_mode"),
    **_overloads("floor_divide", floor_divide, "default", "Scalar"),
    **_overloads("remainder", remainder, "Tensor", "Scalar", "Scalar_Tensor"), **_overloads("fmod", fmod, "Tensor", "Scalar"),
    "aten.pow.Tensor_Scalar": pow_scalar, "aten.pow.Tensor_Tensor": pow_tensor, "aten.pow.Scalar": pow_tensor,
    "aten.atan2.default": binary_float("atan2"), "aten.hypot.default": binary("hypot"), "aten.nextafter.default": nextafter,
    **_overloads("copysign", binary_float("copysign"), "Tensor", "Scalar"),
    "aten.maximum.default": extreme_of_two("max", "or"), "aten.minimum.default": extreme_of_two("min", "and"),
    "aten.fmax.default": extreme_but_nan("fmax"), "aten.fmin.default": extreme_but_nan("fmin"),
    **_overloads("xlogy", xlogy, "Tensor", "Scalar_Self", "Scalar_Other"), "aten.logaddexp.default": logaddexp,
    **{f"aten.{name}.{kind}": comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")},
    **{f"aten.logical_{name}.default": logical(name) for name in ("and", "or", "xor")},
    **{f"aten.bitwise_{name}.{kind}": binary(f"bit{name}", name) for name in ("and", "or", "xor") for kind in ("Tensor", "Scalar", "Scalar_Tensor")},
    **{f"aten.__{name}__.{kind}": binary(f"bit{name}", name) for name in ("and", "or", "xor") for kind in ("Tensor", "Scalar")},
    **_overloads("bitwise_left_shift", binary("shl"), "Tensor", "Tensor_Scalar"), **_overloads("__lshift__", binary("shl"), "Tensor", "Scalar"),
    **_overloads("bitwise_right_shift", binary("shr"), "Tensor", "Tensor_Scalar"), **_overloads("__rshift__", binary("shr"), "Tensor", "Scalar"),
    **_overloads("clamp", clamp, "default", "Tensor"), **_overloads("clamp_min", clamp, "default", "Tensor"),
    **_overloads("clamp_max", clamp_max, "default", "Tensor"),
    **_overloads("where", where_self, "self", "ScalarSelf", "ScalarOther", "Scalar"),
    **_overloads("masked_fill", masked_fill, "Scalar", "Tensor"),
    "aten.addcmul.default": addcmul, "aten.addcdiv.default": addcdiv, **_overloads("lerp", lerp, "Scalar", "Tensor"),
    "aten.nan_to_num.default": nan_to_num,
}
