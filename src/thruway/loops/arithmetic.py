"""What OPS, casts, reductions and scans mean, on numpy arrays. A bfloat16 array is a float32 array of bfloat16 values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from thruway.core.dtypes import LOW_FLOATS
from thruway.loops.ir import MOMENTS

Array = np.ndarray

NUMPY = {
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
    "float16": np.float16, "bfloat16": np.float32, "float32": np.float32, "float64": np.float64,
    "complex64": np.complex64, "complex128": np.complex128,
}


def round_bfloat16(x: Array) -> Array:
    """float32 rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32)).reshape(np.shape(x))


def convert(x: Array, old: str, new: str) -> Array:
    """`.to(new)`: conversions to 16-bit floats pass through float32, as torch's do."""
    if new == "bool":
        return x != 0
    if new in LOW_FLOATS:
        single = np.asarray(x, np.float32)
        return round_bfloat16(single) if new == "bfloat16" else single.astype(np.float16)
    if old in LOW_FLOATS or old == "float32":
        x = np.asarray(x, np.float32)
        if NUMPY[new] in (np.uint8, np.int8, np.int16, np.uint16):       # as C compilers do it: truncate to int32, keep the low bits
            return x.astype(np.int32).astype(NUMPY[new])
    return np.asarray(x).astype(NUMPY[new])


def bitcast(x: Array, old: str, new: str) -> Array:
    """The bits of `x` read as another dtype of the same width."""
    raw = x.view(np.uint32) >> np.uint32(16) if old == "bfloat16" else x
    raw = raw.astype(np.uint16) if old == "bfloat16" else raw
    if new == "bfloat16":
        return (np.ascontiguousarray(raw).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(raw).view(NUMPY[new])


def apply(name: str, args: list[Array], dtype: str, arg_dtype: str) -> Array:
    """The operator `name` on arrays of `arg_dtype`, giving `dtype`; 16-bit floats are computed in float32 and rounded."""
    if name == "bitcast":
        return bitcast(args[0], arg_dtype, dtype)
    if arg_dtype in LOW_FLOATS and name != "where":
        args = [np.asarray(x, np.float32) for x in args]
    result = MEANINGS[name](*args)
    if dtype == "bool":
        return np.asarray(result, bool)
    return convert(result, "float32", dtype) if dtype in LOW_FLOATS else np.asarray(result).astype(NUMPY[dtype], copy=False)


def _exactly(fn: Callable[[Array], Array]) -> Callable[..., Array]:
    """`fn` computed in float64 and rounded once."""
    def function(*args: Array) -> Array:
        return fn(*[np.asarray(x, np.float64) for x in args]).astype(args[0].dtype)
    return function


def _each(fn: Callable[[float], float]) -> Callable[[Array], Array]:
    return _exactly(np.vectorize(fn, otypes=[np.float64]))


def _lgamma(x: float) -> float:
    if math.isnan(x):
        return x
    return math.inf if math.isinf(x) or x <= 0 and x == math.floor(x) else math.lgamma(x)


def _digamma(x: float) -> float:
    """Reflection below 0, recurrence up to 10, then the asymptotic series (Bernardo, AS 103)."""
    if x == 0:
        return math.copysign(math.inf, -x)
    if math.isnan(x) or x == -math.inf or x < 0 and x == math.floor(x):
        return math.nan
    if x < 0:
        fraction = math.modf(x)[0]
        return _digamma(1 - x) - math.pi / math.tan(math.pi * fraction)
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    y = 1 / (x * x) if x < 1e17 else 0.0
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * (691 / 32760 - y / 12))))))
    return total + math.log(x) - 0.5 / x - series


def _erfinv(x: float) -> float:
    """Bisection on erf (erfc near 1), then it is as exact as they are."""
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1 or x == 0:
        return math.copysign(math.inf, x) if x else x
    low, high, size = 0.0, 6.5, abs(x)
    for _ in range(200):
        middle = (low + high) / 2
        less = math.erfc(middle) > 1 - size if size > 0.5 else math.erf(middle) < size
        low, high = (middle, high) if less else (low, middle)
    return math.copysign((low + high) / 2, x)


def _floordiv(a: Array, b: Array) -> Array:
    """Integers: toward minus infinity. Floats: the floor of the exact quotient, with torch's corrections."""
    if a.dtype.kind != "f":
        return np.floor_divide(a, b)
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    quotient = np.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - a.dtype.type(1), quotient)
    floor = np.floor(quotient)
    floor = np.where(quotient - floor > 0.5, floor + a.dtype.type(1), floor)
    floor = np.where(quotient != 0, floor, np.copysign(a.dtype.type(0), a / b))
    return np.where(b == 0, a / b, floor)


def _truncdiv(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _mod(a: Array, b: Array) -> Array:
    """The remainder with the divisor's sign."""
    if a.dtype.kind != "f":
        return np.remainder(a, b)
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return _exactly(np.power)(a, b)
    a, b = np.broadcast_arrays(a, b)
    result, base, left = np.ones_like(a), a.copy(), np.where(b < 0, 0, b).astype(np.uint64)
    while np.any(left):
        result = np.where(left & np.uint64(1), result * base, result)
        base, left = base * base, left >> np.uint64(1)
    negative = np.where(a == 1, 1, np.where(a == a.dtype.type(-1) if a.dtype.kind == "i" else False, np.where(b % 2, -1, 1), 0))
    return np.where(b < 0, negative, result).astype(a.dtype)


def _shl(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    out = (b < 0) | (b >= bits)
    return np.where(out, a.dtype.type(0), np.left_shift(a, np.where(out, 0, b).astype(a.dtype)))


def _shr(a: Array, b: Array) -> Array:
    """Arithmetic on signed integers; a count out of range shifts everything out."""
    bits = a.dtype.itemsize * 8
    out = (b < 0) | (b >= bits)
    shifted = np.right_shift(a, np.where(out, bits - 1, b).astype(a.dtype))
    return np.where(out, a.dtype.type(0), shifted) if a.dtype.kind == "u" else shifted


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a*b + c rounded once (float32 through float64, whose product is exact)."""
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return a * b + c


def _sign(x: Array) -> Array:
    return np.where(x > 0, x.dtype.type(1), np.where(x < 0, -np.ones_like(x), x.dtype.type(0)))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


MEANINGS: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "floordiv": _floordiv, "truncdiv": _truncdiv,
    "mod": _mod, "fmod": np.fmod, "pow": _pow, "atan2": _exactly(np.arctan2), "hypot": _exactly(np.hypot),
    "min": np.minimum, "max": np.maximum, "fmin": np.fmin, "fmax": np.fmax, "copysign": np.copysign, "nextafter": np.nextafter,
    "ldexp": lambda a, b: a * np.exp2(b),
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "bitnot": np.invert, "shl": _shl, "shr": _shr,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not,
    "neg": np.negative, "abs": np.abs, "sign": _sign, "signbit": np.signbit, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "sqrt": np.sqrt, "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x), "reciprocal": lambda x: x.dtype.type(1) / x,
    "exp": _exactly(np.exp), "exp2": _exactly(np.exp2), "expm1": _exactly(np.expm1),
    "log": _exactly(np.log), "log2": _exactly(np.log2), "log10": _exactly(np.log10), "log1p": _exactly(np.log1p),
    "sin": _exactly(np.sin), "cos": _exactly(np.cos), "tan": _exactly(np.tan), "asin": _exactly(np.arcsin), "acos": _exactly(np.arccos),
    "atan": _exactly(np.arctan), "sinh": _exactly(np.sinh), "cosh": _exactly(np.cosh), "tanh": _exactly(np.tanh),
    "asinh": _exactly(np.arcsinh), "acosh": _exactly(np.arccosh), "atanh": _exactly(np.arctanh),
    "erf": _each(math.erf), "erfc": _each(math.erfc), "erfinv": _each(_erfinv), "lgamma": _each(_lgamma), "digamma": _each(_digamma),
    "sigmoid": _exactly(_sigmoid), "isnan": np.isnan, "isinf": np.isinf, "where": np.where, "fma": _fma,
}


def reduce(op: str, x: Array, count: int, dtype: str) -> Array:
    """`op` over the last `count` dimensions of `x`. Sums of floats go through float64; arg… give row-major places, the first of equals."""
    lead = x.shape[:x.ndim - count]
    x = x.reshape(*lead, int(np.prod(x.shape[x.ndim - count:], dtype=np.int64)))
    match op:
        case "argmin" | "argmax":
            return _place(op, x)
        case "min" | "max":
            return _extreme(op, x, dtype)
        case _ if op in MOMENTS:
            return _moment(x.astype(np.float64), op.startswith("squares"), dtype)
        case "sum" if x.dtype.kind == "f":
            return convert(np.add.reduce(x, axis=-1, dtype=np.float64), "float64", dtype)
        case "prod" if x.dtype.kind == "f":
            return convert(np.multiply.reduce(x, axis=-1, dtype=np.float32 if dtype in LOW_FLOATS else None), "float64", dtype)
        case "sum" | "prod" | "any" | "all" | "xor":
            ufunc = {"sum": np.add, "prod": np.multiply, "any": np.logical_or, "all": np.logical_and, "xor": np.bitwise_xor}[op]
            return ufunc.reduce(x, axis=-1, dtype=NUMPY[dtype])
        case _:
            raise ValueError(f"no reduction {op}")


def _moment(x: Array, squared: bool, dtype: str) -> Array:
    """The mean, or the sum of squared distances from it, as exactly as float64 has it; 0 of nothing."""
    mean = np.add.reduce(x, axis=-1, keepdims=True) / max(x.shape[-1], 1)
    return convert(np.add.reduce((x - mean) ** 2, axis=-1) if squared else mean[..., 0], "float64", dtype)


def _place(op: str, x: Array) -> Array:
    """0 where there is nothing to choose from."""
    if not x.shape[-1]:
        return np.zeros(x.shape[:-1], np.int64)
    return (np.argmin if op == "argmin" else np.argmax)(x, axis=-1).astype(np.int64)


def _extreme(op: str, x: Array, dtype: str) -> Array:
    ufunc = np.minimum if op == "min" else np.maximum
    return ufunc.reduce(x, axis=-1, initial=None if x.shape[-1] else identity(op, dtype))


def identity(op: str, dtype: str) -> float | int | bool:
    """What `op` gives over nothing."""
    match op:
        case "sum" | "any" | "xor":
            return 0
        case "prod" | "all":
            return 1
        case "min" | "max":
            kind = np.dtype(NUMPY[dtype]).kind
            if kind == "f":
                return np.inf if op == "min" else -np.inf
            if kind == "b":
                return op == "min"
            limits = np.iinfo(NUMPY[dtype])
            return limits.max if op == "min" else limits.min
        case _:
            raise ValueError(f"{op} has no identity")


def scan(op: str, x: Array, axis: int, dtype: str) -> Array:
    """Running `op` along `axis`, inclusive; floats run in float64 and are rounded at each place, as eager does."""
    match op:
        case "sum" | "prod":
            ufunc = np.add if op == "sum" else np.multiply
            wide = np.float64 if x.dtype.kind == "f" else NUMPY[dtype]
            return convert(ufunc.accumulate(x, axis=axis, dtype=wide), "float64", dtype)
        case "min" | "max":
            return (np.minimum if op == "min" else np.maximum).accumulate(x, axis=axis)
        case "logsumexp":
            return convert(np.logaddexp.accumulate(x.astype(np.float64), axis=axis), "float64", dtype)
        case _:
            raise ValueError(f"no scan {op}")
