"""How a reduction accumulates: identities, the statement per element, and how partial results combine.

float32 sums run in vector lanes over blocks of at most BLOCK elements; block sums add up in double, so long rows stay as accurate
as short ones. max and min keep a NaN flag beside the value, since a vector max forgets NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from thruway.codegen.ctypes_c import ROUND, SINGLE, UNSIGNED, register_type
from thruway.core.errors import Unsupported
from thruway.loops.ir import Reduction

BLOCK = 4096
CLAUSES = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "|", "all": "&", "xor": "^"}
_LIMITS = {
    "int8": ("-128", "127"), "int16": ("-32768", "32767"), "int32": ("(-2147483647 - 1)", "2147483647"),
    "int64": ("(-9223372036854775807LL - 1)", "9223372036854775807LL"), "uint8": ("0", "255"), "uint16": ("0", "65535"),
    "uint32": ("0", "4294967295u"), "uint64": ("0", "18446744073709551615ULL"), "bool": ("0", "1"),
}


def lowest(dtype: str) -> str:
    return "-" + _infinity(dtype) if _is_float(dtype) else _LIMITS[dtype][0]


def highest(dtype: str) -> str:
    return _infinity(dtype) if _is_float(dtype) else _LIMITS[dtype][1]


def _is_float(dtype: str) -> bool:
    return dtype in SINGLE or dtype == "float64"


def _infinity(dtype: str) -> str:
    return "__builtin_inf()" if dtype == "float64" else "__builtin_inff()"


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One reduction of a kernel. `op` is sum, prod, max, min, any, all or xor; argmax and argmin first find their max or min."""

    var: str
    op: str
    dtype: str
    arg: bool = False

    @property
    def clause(self) -> str:
        return CLAUSES[self.op]

    @property
    def type(self) -> str:
        """The C type that accumulates: unsigned where signed arithmetic would overflow."""
        if self.op in {"sum", "prod"} and self.dtype in UNSIGNED:
            return UNSIGNED[self.dtype]
        return register_type(self.dtype)

    @property
    def total_type(self) -> str:
        return "double" if self.op == "sum" and self.dtype in SINGLE else self.type

    @property
    def nan_flag(self) -> bool:
        return self.op in {"max", "min"} and _is_float(self.dtype)

    @property
    def identity(self) -> str:
        match self.op:
            case "sum" | "any" | "xor":
                return "0"
            case "prod" | "all":
                return "1"
            case "max":
                return lowest(self.dtype)
            case "min":
                return highest(self.dtype)
            case _:
                raise Unsupported("TW603", f"a reduction by {self.op}")

    def step(self, into: str, x: str) -> str:
        """The statement that takes in one element; NaN flags apart."""
        match self.op:
            case "sum":
                return f"{into} += {x};"
            case "prod":
                return f"{into} *= {x};"
            case "any":
                return f"{into} |= ({x} != 0);"
            case "all":
                return f"{into} &= ({x} != 0);"
            case "xor":
                return f"{into} ^= {x};"
            case "max":
                return f"{into} = {x} > {into} ? {x} : {into};"
            case "min":
                return f"{into} = {x} < {into} ? {x} : {into};"
            case _:
                raise Unsupported("TW603", f"a reduction by {self.op}")

    def lane_step(self, into: str, x: str) -> str:
        """The same for a lane of its own, in which NaN stays by itself."""
        if self.nan_flag:
            sign = ">" if self.op == "max" else "<"
            return f"{into} = ({x} {sign} {into} || {x} != {x}) ? {x} : {into};"
        return self.step(into, x)

    def nan(self) -> str:
        return '__builtin_nan("")' if self.dtype == "float64" else '__builtin_nanf("")'


def accumulator(reduction: Reduction) -> Accumulator:
    match reduction.op:
        case "argmax" | "argmin":
            return Accumulator(reduction.var, reduction.op[3:], reduction.value.dtype, True)
        case _:
            return Accumulator(reduction.var, reduction.op, reduction.dtype)


def scan_type(acc: Accumulator) -> str:
    return "double" if acc.op in {"sum", "prod"} and acc.dtype == "float32" else acc.type


def scan_start(acc: Accumulator) -> str:
    return "-__builtin_inff()" if acc.op == "logsumexp" else acc.identity


def scan_step(acc: Accumulator, into: str, x: str) -> str:
    if acc.op == "logsumexp":
        return f"{into} = tw_logaddexp{'_d' if acc.dtype == 'float64' else ''}({into}, {x});"
    return acc.lane_step(into, x)


def rounded(acc: Accumulator, text: str) -> str:
    return f"{ROUND[acc.dtype]}({text})" if acc.dtype in ROUND else f"({register_type(acc.dtype)}){text}"
