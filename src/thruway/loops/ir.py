"""The loop IR. The grammar, whole:

    Program  = inputs, buffers, nodes in order, outputs
    node     = Compute(out, axes, value)                 out[axes] = value, every element once
             | Update(target, axes, index, value, mode)  target[index] (mode)= value, in place; program order is meaning
             | Scan(out, axes, axis, op, value)          running op along one axis (cumsum, cumprod, …)
             | Extern(op, args, outs, mutates)           a library call that stays whole (matrix product, convolution, …)
    expr     = Literal(value, dtype) | Load(buffer, index) | IndexValue(size, dtype) | Op(name, args, dtype)
             | Cast(x, dtype) | Within(conditions, then, other) | Reduce(op, axes, x, dtype) | CheckIndex(x, size, wrap)
             | Var(name, dtype)                          only in kernels: a scalar computed earlier in the kernel
    index    = one coordinate per dimension of the buffer: a Size over axis symbols, or an integer expr (a gather)
    kernel   = Kernel(name, outer, phases)               what scheduling makes of a group of nodes; see `Phase`

Every expr has one dtype. Arithmetic happens in the dtype written: lowering writes Cast(bf16→float32), Op in float32,
Cast back where eager rounds, and no later stage drops such a pair. `Within` is lazy: the branch
not taken is not evaluated, so its loads may be out of bounds. `Reduce` stands only at the top of a Compute's value or directly
below one Cast. Buffers are named; a Compute defines its buffer once, an Update changes one in place, and all later reads see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thruway.core.errors import UserLine
from thruway.core.sizes import Size, SizeLike, symbol

# name → number of arguments. Meaning: loops/evaluate.py. Comparisons and logical operators give "bool"; the rest give their dtype.
OPS: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "floordiv": 2, "truncdiv": 2, "mod": 2, "fmod": 2, "pow": 2, "atan2": 2, "hypot": 2,
    "min": 2, "max": 2, "fmin": 2, "fmax": 2, "copysign": 2, "nextafter": 2, "ldexp": 2,
    "bitand": 2, "bitor": 2, "bitxor": 2, "shl": 2, "shr": 2, "bitnot": 1,
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2, "and": 2, "or": 2, "xor": 2, "not": 1,
    "neg": 1, "abs": 1, "sign": 1, "signbit": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "sqrt": 1, "rsqrt": 1, "reciprocal": 1,
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sin": 1, "cos": 1, "tan": 1,
    "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1,
    "erf": 1, "erfc": 1, "erfinv": 1, "lgamma": 1, "digamma": 1, "sigmoid": 1, "isnan": 1, "isinf": 1,
    "where": 3, "fma": 3, "bitcast": 1,
}
# "min"/"max" propagate NaN as torch's minimum/maximum do; "fmin"/"fmax" ignore it. "argmin"/"argmax" give the first index (NaN wins).
# Moments: the mean and the sum of squared distances from it, in the order in which eager's row moments of the dtype named take the
# reduced axes, named row-major by the Reduce. Their values are float32 for each of these dtypes.
MOMENTS: dict[str, str] = {f"{kind}_of_{dtype}": dtype for kind in ("mean", "squares") for dtype in ("float32", "bfloat16", "float16")}
REDUCTIONS = frozenset({"sum", "prod", "min", "max", "any", "all", "argmin", "argmax", "xor", *MOMENTS})
SCANS = frozenset({"sum", "prod", "min", "max", "logsumexp"})
UPDATE_MODES = frozenset({"set", "add", "mul", "min", "max"})


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable `name` that runs from 0 to `extent` - 1."""

    name: str
    extent: SizeLike

    @property
    def index(self) -> Size:
        return symbol(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant. Equal only where its text is: 0.0 differs from -0.0, and nan equals nan."""

    value: bool | int | float | complex
    dtype: str

    def __eq__(self, other: object) -> bool:
        return type(other) is Literal and self.dtype == other.dtype and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))


@dataclass(frozen=True, slots=True)
class Load:
    """Element of `buffer` at logical coordinates `index` (one per dimension, not yet multiplied by strides)."""

    buffer: str
    index: tuple[Index, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An integer size expression over axis symbols as a value (arange, iota)."""

    size: SizeLike
    dtype: str


@dataclass(frozen=True, slots=True)
class Op:
    name: str
    args: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion with torch's `.to(dtype)` meaning (float → integer truncates, anything → bool is != 0)."""

    x: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Condition:
    """0 <= left < right over axis symbols and sizes."""

    left: SizeLike
    right: SizeLike


@dataclass(frozen=True, slots=True)
class Within:
    """`then` where every condition holds, else `other`; lazy."""

    conditions: tuple[Condition, ...]
    then: Expr
    other: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Reduce:
    """`op` over `axes` of `x`, accumulated in `dtype`; the empty reduction gives the operator's identity."""

    op: str
    axes: tuple[Axis, ...]
    x: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class CheckIndex:
    """The integer `x`, checked against `size`: out of range sets the kernel's failure flag and gives 0 instead.
    With `wrap`, negative values count from the end (−size … size−1 is in range)."""

    x: Expr
    size: SizeLike
    wrap: bool
    dtype: str = "int64"


@dataclass(frozen=True, slots=True)
class Var:
    name: str
    dtype: str


Expr = Literal | Load | IndexValue | Op | Cast | Within | Reduce | CheckIndex | Var
Index = SizeLike | Expr


@dataclass(frozen=True, slots=True)
class Buffer:
    """`strides` in elements, or None while scheduling may still choose. `kind`: input, weight, constant, temp.
    `alias` names the buffer whose storage this one shares (a view made for a library call or an output), with `offset`.
    `data`: what a constant's memory holds, from its first to its last element."""

    name: str
    dtype: str
    sizes: tuple[SizeLike, ...]
    strides: tuple[SizeLike, ...] | None
    kind: str = "temp"
    device: str = "cpu"
    alias: str | None = None
    offset: SizeLike = 0
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node comes from: graph node names and the user's line."""

    nodes: tuple[str, ...] = ()
    line: UserLine | None = None


def found_out() -> Any:
    """A node's field for what a stage works out from the node alone and asks for again; no part of its value."""
    return field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Compute:
    out: str
    axes: tuple[Axis, ...]
    value: Expr
    origin: Origin = Origin()
    found: dict[str, Any] = found_out()


@dataclass(frozen=True, slots=True)
class Update:
    """For each point of `axes`: target[index] = value, or combined by `mode`. Points that collide combine in axis order."""

    target: str
    axes: tuple[Axis, ...]
    index: tuple[Index, ...]
    value: Expr
    mode: str = "set"
    origin: Origin = Origin()
    found: dict[str, Any] = found_out()


@dataclass(frozen=True, slots=True)
class Scan:
    """out[axes] = op over value at axis' = 0 … axis, inclusive."""

    out: str
    axes: tuple[Axis, ...]
    axis: Axis
    op: str
    value: Expr
    origin: Origin = Origin()
    found: dict[str, Any] = found_out()


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer argument of an Extern."""

    name: str


@dataclass(frozen=True, slots=True)
class SizeArg:
    """An integer argument of an Extern that depends on sizes."""

    size: SizeLike


@dataclass(frozen=True, slots=True)
class Extern:
    """A torch operator by name ("aten::mm"; overload after a dot). Arguments hold constants, BufferRef, SizeArg, tuples of
    them. `outs` are defined by it, with the strides that it is known to give; `mutates` are written in place. `pinned`: it runs though
    nobody reads what it gives, in order with its like and with writes that are seen outside (random numbers, assertions)."""

    op: str
    args: tuple[object, ...]
    kwargs: tuple[tuple[str, object], ...]
    outs: tuple[str, ...]
    mutates: tuple[str, ...] = ()
    origin: Origin = Origin()
    pinned: bool = False
    found: dict[str, Any] = found_out()


Node = Compute | Update | Scan | Extern


@dataclass(frozen=True, slots=True)
class Program:
    """`outputs` name buffers; one that aliases an input (or is an input) is returned as a view of it.
    `derived` nodes read weights and constants alone and run once per weight change, before the rest."""

    inputs: tuple[str, ...]
    buffers: dict[str, Buffer]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    derived: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value, or combined by `mode`."""

    buffer: str
    index: tuple[Index, ...]
    value: Expr
    mode: str = "set"


@dataclass(frozen=True, slots=True)
class Reduction:
    """`var` = `op` of `value` over the phase's inner axes (and, for outer=(), over everything)."""

    var: str
    op: str
    value: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Let:
    var: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Phase:
    """One pass over `inner` for each point of the kernel's outer axes. In a phase, `lets` come first, then `reductions`
    accumulate and `stores` write. With inner=(), values are scalars per outer point. A Var defined by a reduction or by a
    let of an inner=() phase is visible in all later phases; other lets only inside their phase."""

    inner: tuple[Axis, ...]
    lets: tuple[Let, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """`outer` axes are independent (parallel); phases run in order for each outer point. `scratch` buffers are private rows,
    one per outer point at a time, that phases use to hand over whole rows; they never reach memory that others see."""

    name: str
    outer: tuple[Axis, ...]
    phases: tuple[Phase, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch: tuple[Buffer, ...] = ()
    scan: Axis | None = None
    origin: tuple[Origin, ...] = ()
