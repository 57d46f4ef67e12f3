"""C types, literals, sizes and conversions as text. bf16 and fp16 values are floats in registers and 16-bit words in memory."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from thruway.core import sizes
from thruway.core.errors import Unsupported
from thruway.core.sizes import FloorDiv, Max, Min, Mod, Ranges, SizeLike, Symbol

MEMORY = {
    "bool": "unsigned char", "uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint16": "unsigned short", "uint32": "unsigned", "uint64": "unsigned long long",
    "float16": "unsigned short", "bfloat16": "unsigned short", "float32": "float", "float64": "double",
}
REGISTER = {**MEMORY, "bool": "int", "float16": "float", "bfloat16": "float"}
UNSIGNED = {"int32": "unsigned", "int64": "unsigned long long", "uint32": "unsigned", "uint64": "unsigned long long"}
FROM_MEMORY = {"bfloat16": "tw_b2f", "float16": "tw_h2f"}
TO_MEMORY = {"bfloat16": "tw_f2b", "float16": "tw_f2h"}
ROUND = {"bfloat16": "tw_round_b", "float16": "tw_round_h"}
# The same in fewer instructions, for kernels whose NaNs keep none of their bits in the lower half (see roundings.has_short_nans).
SHORT_TO_MEMORY = {**TO_MEMORY, "bfloat16": "tw_f2b_short"}
SHORT_ROUND = {**ROUND, "bfloat16": "tw_round_b_short"}
SINGLE = frozenset({"float32", "float16", "bfloat16"})


def memory_type(dtype: str) -> str:
    return _known(MEMORY, dtype)


def register_type(dtype: str) -> str:
    return _known(REGISTER, dtype)


def _known(table: Mapping[str, str], dtype: str) -> str:
    if dtype not in table:
        raise Unsupported("TW601", f"a generated kernel over {dtype}", "this operator runs in eager")
    return table[dtype]


def literal(value: bool | int | float | complex, dtype: str) -> str:
    """`value` as a C constant of the register type of `dtype`, rounded to `dtype` exactly."""
    if dtype == "bool":
        return "1" if value else "0"
    if dtype in SINGLE or dtype == "float64":
        return _float_literal(float(value), dtype)
    value = int(value)
    match dtype:
        case "int64":
            return f"{value}LL" if value > -(2**63) else "(-9223372036854775807LL - 1)"
        case "uint64":
            return f"{value % 2**64}ULL"
        case "uint32":
            return f"{value % 2**32}u"
        case "int32":
            return str(value) if value > -(2**31) else "(-2147483647 - 1)"
        case _:
            return str(value) if value >= 0 else f"({value})"


def _float_literal(value: float, dtype: str) -> str:
    suffix = "" if dtype == "float64" else "f"
    value = round_to(value, dtype)
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return ("-" if value < 0 else "") + f"__builtin_inf{suffix}()"
    text = repr(value)
    text = text if "." in text or "e" in text else text + ".0"
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def round_to(value: float, dtype: str) -> float:
    """`value` rounded to the nearest number of a float dtype, ties to even."""
    if dtype == "float64" or math.isnan(value) or math.isinf(value):
        return value
    if dtype == "float16":
        try:
            return struct.unpack("e", struct.pack("e", value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype == "float32":
        return single
    bits = struct.unpack("I", struct.pack("f", single))[0]
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("f", struct.pack("I", bits))[0]


def convert(text: str, source: str, target: str, rounding: Mapping[str, str] = ROUND) -> str:
    """`text` of dtype `source` converted with torch's `.to` meaning; in registers. `rounding`: the function for each low-precision target."""
    if source == target or target in {"float32"} and source in SINGLE:
        return text
    if target == "bool":
        return f"({text} != 0)"
    if target in rounding:
        return f"{rounding[target]}({text if source in SINGLE else f'(float){text}'})"
    if target in {"float32", "float64"}:
        return f"({REGISTER[target]}){text}"
    if source in SINGLE or source == "float64":
        through = {"int64": "", "uint64": "(unsigned long long)(long long)", "int32": "", "uint8": "(unsigned char)(long long)",
                   "uint32": "(unsigned)(long long)", "uint16": "(unsigned short)(long long)"}.get(target, f"({REGISTER[target]})(int)")
        return f"{through or f'({_known(REGISTER, target)})'}{text}"
    return f"({register_type(target)}){text}"


def size_text(size: SizeLike, names: Mapping[Symbol, str], ranges: Ranges | None = None) -> str:
    """`size` as a C expression of type long."""

    def atom(node) -> str:
        match node:
            case Symbol():
                return names.get(node, node.name)
            case FloorDiv(left, right):
                return _division("/", "tw_floordiv", left, right)
            case Mod(left, right):
                return _division("%", "tw_floormod", left, right)
            case Max(left, right):
                return f"tw_maxl({text(left)}, {text(right)})"
            case Min(left, right):
                return f"tw_minl({text(left)}, {text(right)})"
            case _:
                raise TypeError(f"not an atom of a size: {node!r}")

    def _division(sign: str, function: str, left: SizeLike, right: SizeLike) -> str:
        low, right_low = sizes.bounds(left, ranges)[0], sizes.bounds(right, ranges)[0]
        if low is not None and low >= 0 and right_low is not None and right_low >= 0:
            return f"(({text(left)}) {sign} ({text(right)}))"
        return f"{function}({text(left)}, {text(right)})"

    def text(one: SizeLike) -> str:
        return sizes.show(one, atom)

    return text(size)


def is_low(dtype: str) -> bool:
    """Whether `dtype` is wider in registers than in memory."""
    return dtype in FROM_MEMORY
