"""Roundings to bfloat16 and float16 that a kernel does without, or in fewer instructions, with the same result for every number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thruway.codegen.ctypes_c import literal
from thruway.core.dtypes import FLOATS
from thruway.loops.ir import Cast, Expr, Literal, Load, Op

# Operators on floats whose result has the digits of an argument, or fewer.
CHOOSING = frozenset({"neg", "abs", "min", "max", "fmin", "fmax", "floor", "ceil", "trunc", "round"})


def is_held(x: Expr, dtype: str, resolved: Callable[[Expr], Expr]) -> bool:
    """Whether `dtype` holds each value of the float `x` already: what was read in it, chosen among such or made whole."""
    if x.dtype not in FLOATS:
        return False
    match resolved(x):
        case Literal(value, own):
            return literal(value, own) == literal(value, dtype)
        case Load(_, _, own):
            return own == dtype
        case Cast(inner, own):
            return dtype in (own, inner.dtype)
        case Op("where", (_, then, other)):
            return is_held(then, dtype, resolved) and is_held(other, dtype, resolved)
        case Op(name, args):
            return name in CHOOSING and all(is_held(a, dtype, resolved) for a in args)
        case _:
            return False


def has_short_nans(values: Iterable[Expr], shared: Callable[[str], bool]) -> bool:
    """Whether every NaN among `values` has an empty low half, so that rounding its bits to bfloat16 leaves a NaN. Those that operators
    make have, and those read as bfloat16; others may come from other floats in memory, or from bits, and then may not."""
    for x in values:
        read = isinstance(x, Load) and x.dtype in FLOATS and x.dtype != "bfloat16" and shared(x.buffer)
        if read or isinstance(x, Op) and x.name == "bitcast" and x.dtype in FLOATS:
            return False
    return True
