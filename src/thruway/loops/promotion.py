"""Torch's type promotion over dtype names: tensors with dimensions weigh more than 0-dimensional ones, those more than numbers."""

from __future__ import annotations

from collections.abc import Iterable

from thruway.core.dtypes import COMPLEX, FLOATS, ITEMSIZE
from thruway.core.errors import Unsupported
from thruway.core.sizes import Size
from thruway.loops.builder import Tensor

SIGNED = ("int8", "int16", "int32", "int64")


def promote_types(a: str, b: str) -> str:
    """The smallest dtype that torch lets hold both."""
    if a == b or b == "bool":
        return a
    if a == "bool":
        return b
    if a in COMPLEX or b in COMPLEX:
        raise Unsupported("TW505", "arithmetic on complex tensors in a generated kernel")
    if a in FLOATS and b in FLOATS:
        return "float32" if ITEMSIZE[a] == ITEMSIZE[b] else max(a, b, key=ITEMSIZE.__getitem__)
    if a in FLOATS or b in FLOATS:
        return a if a in FLOATS else b
    if a in SIGNED and b in SIGNED:
        return max(a, b, key=ITEMSIZE.__getitem__)
    if "uint8" in (a, b):
        other = b if a == "uint8" else a
        return "int16" if other == "int8" else other
    raise Unsupported("TW506", f"the promotion of {a} and {b}")


def result_type(operands: Iterable[object], default_float: str) -> str:
    """What torch.result_type gives for tensors, sizes and Python numbers together."""
    full = zero = number = None
    for x in operands:
        if isinstance(x, Tensor):
            if x.rank:
                full = x.dtype if full is None else promote_types(full, x.dtype)
            else:
                zero = x.dtype if zero is None else promote_types(zero, x.dtype)
        else:
            number = number_type(x, default_float) if number is None else promote_types(number, number_type(x, default_float))
    return _weigh(_weigh(full, zero), number) or "bool"


def number_type(x: object, default_float: str) -> str:
    match x:
        case bool():
            return "bool"
        case int() | Size():
            return "int64"
        case float():
            return default_float
        case _:
            raise Unsupported("TW507", f"a {type(x).__name__} as an operand")


def _weigh(higher: str | None, lower: str | None) -> str | None:
    """The dtype of two categories of operands, the first of which decides unless its kind of number is too small."""
    if higher is None or lower is None:
        return higher or lower
    if higher in FLOATS:
        return higher
    return promote_types(higher, lower) if higher == "bool" or lower in FLOATS else higher
