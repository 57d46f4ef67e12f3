"""The Triton words for the loop IR's dtypes, literals, operators and reductions."""

from __future__ import annotations

import math

from thruway.core.errors import Unsupported

TYPES = {
    "bool": "tl.int1", "uint8": "tl.uint8", "int8": "tl.int8", "int16": "tl.int16", "int32": "tl.int32", "int64": "tl.int64",
    "uint16": "tl.uint16", "uint32": "tl.uint32", "uint64": "tl.uint64",
    "float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32", "float64": "tl.float64",
}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|", "xor": "^",
}
_LIBDEVICE = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "lgamma": "lgamma", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "round": "nearbyint", "pow": "pow", "atan2": "atan2", "hypot": "hypot", "copysign": "copysign", "nextafter": "nextafter", "fmod": "fmod",
    "rsqrt": "rsqrt",
}
_PLAIN = {
    "neg": "-{0}", "not": "~{0}", "bitnot": "~{0}", "abs": "tl.abs({0})", "where": "tl.where({0}, {1}, {2})",
    "isnan": "({0} != {0})", "isinf": "(tl.abs({0}) == float('inf'))",
    "fmin": "tl.minimum({0}, {1})", "fmax": "tl.maximum({0}, {1})",          # of a NaN and a number Triton's give the number
    "min": "tw_min({0}, {1})", "max": "tw_max({0}, {1})", "fma": "tl.fma({0}, {1}, {2})",
}
INTEGER_BITS = {"uint8": 8, "int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63, "uint64": 64}     # without the sign
ATOMIC_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})
_FLOAT_ONLY = {"sqrt": "tl.sqrt_rn({0})", "reciprocal": "tl.div_rn(1.0, {0})", "sigmoid": "tl.div_rn(1.0, 1.0 + libdevice.exp(-{0}))"}
_DOUBLE_ONLY = {"sqrt": "libdevice.sqrt({0})", "reciprocal": "(1.0 / {0})", "sigmoid": "(1.0 / (1.0 + libdevice.exp(-{0})))"}     # rounded correctly as it is

# Where the result is rounded to a short float at once. The quick quotient gives 0 for denominators above 2**126, so it
# divides only 1 and 2, by 1 and more.
_ROUGH = {
    "div": "({0} / {1})", "exp": "libdevice.exp2({0} * 1.442695041)", "sigmoid": "libdevice.fast_dividef(1.0, 1.0 + libdevice.exp2({0} * -1.442695041))",
    "tanh": "tl.where(tl.abs({0}) < 0.02, {0} - {0} * {0} * {0} * 0.33333333, 1.0 - libdevice.fast_dividef(2.0, 1.0 + libdevice.exp2({0} * 2.885390082)))",
    "reciprocal": "(1.0 / {0})",
}
ONE_PLUS_ERF = "tw_one_plus_erf({0})"

# Combining functions. min and max keep NaN, as torch's do; the arg forms prefer NaN, then the smaller index.
COMBINE = """\
@triton.jit
def tw_sum(a, b):
    return a + b


@triton.jit
def tw_prod(a, b):
    return a * b


@triton.jit
def tw_xor(a, b):
    return a ^ b


@triton.jit
def tw_any(a, b):
    return a | b


@triton.jit
def tw_all(a, b):
    return a & b


@triton.jit
def tw_max(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def tw_min(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def tw_logsumexp(a, b):
    high, low = tw_max(a, b), tl.where((a > b) | (a != a), b, a)
    return tl.where(tl.abs(high) == float("inf"), high, high + tl.log(1.0 + tl.exp(low - high)))


@triton.jit
def tw_floordiv(a, b, rest, quotient):
    # as torch's div_floor: from the remainder, whose sign says whether the quotient was rounded past the floor
    exact = (a - rest) / b
    exact = tl.where((rest != 0) & ((b < 0) != (rest < 0)), exact - 1, exact)
    down = tl.floor(exact)
    down = tl.where(exact - down > 0.5, down + 1, down)
    return tl.where(b == 0, quotient, tl.where(exact == 0, quotient * 0.0, down))


@triton.jit
def tw_ipow(a, b, BITS: tl.constexpr):
    one, base, left = tl.full([1], 1, a.dtype), a, tl.where(b < 0, 0, b)
    result = one + tl.zeros_like(a + left.to(a.dtype))
    for _ in range(BITS):
        result = tl.where((left & 1) != 0, result * base, result)
        base, left = base * base, left >> 1
    inverse = tl.where(a == 1, one, tl.where(a == -1, tl.where((b & 1) != 0, -one, one), 0))
    return tl.where(b < 0, inverse.to(a.dtype), result.to(a.dtype))


@triton.jit
def tw_one_plus_erf(u):
    # exp(-u*u) times a polynomial in 1 / (1 + 0.37 |u|), to 6e-7 of the value on the left side too, where a sum would cancel
    t = libdevice.fast_dividef(1.0, tl.fma(tl.abs(u), 0.37, 1.0))
    q = tl.fma(t, -0.14354038, 0.43925706)
    q = tl.fma(t, q, -0.19168707)
    q = tl.fma(t, q, 0.32133928)
    q = tl.fma(t, q, 0.15107005)
    q = tl.fma(t, q, 0.21520826)
    q = tl.fma(t, q, 0.20835334)
    q = q * t * libdevice.exp2(u * u * -1.442695041)
    return tl.where(u < 0, q, 2.0 - q)


@triton.jit
def tw_argmax(a, i, b, j):
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def tw_argmin(a, i, b, j):
    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)

"""


def literal(value: bool | int | float | complex, dtype: str) -> str:
    """A block-shaped constant is not needed: Triton spreads scalars."""
    if dtype == "bool":
        return f"tl.full([1], {int(bool(value))}, tl.int1)"
    if isinstance(value, float) and not math.isfinite(value):
        text = "float('nan')" if value != value else f"float('{'-' if value < 0 else ''}inf')"
    else:
        text = repr(value)
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:        # Triton fills with 0 whatever equals 0
        return f"(tl.full([1], -1.0, {TYPES[dtype]}) * 0.0)"
    return f"tl.full([1], {text}, {TYPES[dtype]})"


def has_atomic(mode: str, dtype: str) -> bool:
    """Whether memory of `dtype` can be updated in place. Triton's min and max of floats lose NaN."""
    return dtype in ATOMIC_INTEGERS or mode == "add" and dtype.startswith(("float", "bfloat"))


def operator(name: str, args: list[str], kinds: list[str], dtype: str, rough: bool = False) -> str:
    """Text of one operator on named values. Unsupported names what Triton lacks. `rough`: the result is rounded to a short float
    at once, so a few units in float32's last place are free."""
    kind = kinds[-1]
    if rough and kind == "float32" and name in _ROUGH:
        return _ROUGH[name].format(*args)
    floating = kind.startswith(("float", "bfloat"))
    if name == "neg" and floating:                   # Triton's minus is 0 - x, which makes no -0
        return f"({args[0]} * -1.0)"
    if name in ("min", "max", "fmin", "fmax") and not floating:
        return f"tl.{'minimum' if name.endswith('min') else 'maximum'}({args[0]}, {args[1]})"
    if name == "not" or (name == "bitnot" and kind == "bool"):
        return f"({args[0]} == 0)" if kind != "bool" else f"(~{args[0]})"
    if name in _INFIX:
        return f"({args[0]} {_INFIX[name]} {args[1]})"
    if name in _PLAIN:
        return _PLAIN[name].format(*args)
    if name in _FLOAT_ONLY and floating:
        return (_DOUBLE_ONLY if kind == "float64" else _FLOAT_ONLY)[name].format(*args)
    special = _special(name, args, kind, floating, dtype)
    if special:
        return special
    if name in _LIBDEVICE and floating:
        return f"libdevice.{_LIBDEVICE[name]}({', '.join(args)})"
    raise Unsupported("TW701", f"the operator {name} on {kind} has no Triton form")


def _special(name: str, args: list[str], kind: str, floating: bool, dtype: str) -> str | None:
    a, b = (args + [""])[:2]
    match name:
        case "div":
            return _quotient(a, b, kind)
        case "sign":
            return f"(({a} > 0).to({TYPES[dtype]}) - ({a} < 0).to({TYPES[dtype]}))"
        case "signbit":
            return f"(libdevice.signbit({a}) != 0)" if floating else f"({a} < 0)"
        case "truncdiv" if not floating:
            return f"({a} // {b})"
        case "fmod" if not floating:
            return f"({a} % {b})"
        case "floordiv" if not floating:
            return f"tl.where((({a} % {b}) != 0) & (({a} < 0) != ({b} < 0)), {a} // {b} - 1, {a} // {b})"
        case "mod" if not floating:
            return f"tl.where((({a} % {b}) != 0) & (({a} < 0) != ({b} < 0)), {a} % {b} + {b}, {a} % {b})"
        case "truncdiv":
            return f"libdevice.trunc({a} / {b})" if kind == "float64" else f"libdevice.trunc(tl.div_rn({a}, {b}))"
        case "mod":
            rest = f"libdevice.fmod({a}, {b})"
            return f"tl.where(({rest} != 0) & (({rest} < 0) != ({b} < 0)), {rest} + {b}, {rest})"
        case "pow" if not floating:
            return f"tw_ipow({a}, {b}, {INTEGER_BITS[kind]})"
        case "floordiv":
            return f"tw_floordiv({a}, {b}, libdevice.fmod({a}, {b}), {_quotient(a, b, kind)})"
        case "ldexp":
            return f"({a} * libdevice.exp2({b}))"
        case "bitcast":
            return f"{a}.to({TYPES[dtype]}, bitcast=True)"
        case _:
            return None


def _quotient(a: str, b: str, kind: str) -> str:
    return f"tl.div_rn({a}, {b})" if kind == "float32" else f"({a} / {b})"


def IDENTITY(op: str, dtype: str) -> str:
    """The value that changes nothing under `op`."""
    floating = dtype.startswith(("float", "bfloat"))
    bits = {"bool": 1, "uint8": 8, "int8": 8, "int16": 16, "int32": 32, "int64": 64}.get(dtype, 64)
    low, high = (0, 2**bits - 1) if dtype.startswith(("uint", "bool")) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    match op:
        case "sum" | "any" | "xor":
            return "0"
        case "prod" | "all":
            return "1"
        case "logsumexp":
            return "float('-inf')"
        case "max" | "argmax":
            return "float('-inf')" if floating else str(low)
        case "min" | "argmin":
            return "float('inf')" if floating else str(high)
        case _:
            raise Unsupported("TW701", f"the reduction {op} has no Triton form")


def reduce_call(op: str, block: str, index: str) -> str:
    """The reduction of an [X, R] block along its rows, kept as [X, 1]."""
    if op in ("argmin", "argmax"):
        return f"tl.reduce(({block}, {index} + tl.zeros_like({block}).to(tl.int64)), 1, tw_{op}, keep_dims=True)[1]"
    return f"tl.reduce({block}, 1, tw_{op}, keep_dims=True)"
