"""How a pointwise operator becomes one Compute: operands are converted to the operator's dtype, computed as eager computes
(float32 for bf16 and fp16), and rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from thruway.core.dtypes import COMPLEX, FLOATS, compute_dtype
from thruway.core.errors import Unsupported
from thruway.core.sizes import Size
from thruway.loops.builder import Builder, Tensor, load, load_broadcast
from thruway.loops.expressions import cast, literal
from thruway.loops.ir import Expr, IndexValue
from thruway.loops.promotion import result_type

Operand = Tensor | bool | int | float | Size


def operand(x: Operand, rank: int, common: str, exact: bool) -> Expr:
    """`x` in the dtype in which `common` is computed; `exact` keeps numbers and 0-dimensional tensors unrounded."""
    wide = compute_dtype(common)
    if isinstance(x, Tensor):
        if x.dtype in COMPLEX:
            raise Unsupported("TW505", "arithmetic on complex tensors in a generated kernel")
        read = load_broadcast(x, rank)
        return cast(read if exact and not x.rank else cast(read, common), wide)
    if isinstance(x, Size):
        return IndexValue(x, wide)
    return number(x, common, exact)


def number(x: bool | int | float, common: str, exact: bool = True) -> Expr:
    """The Python number as torch passes it to an operator of dtype `common`."""
    wide = compute_dtype(common)
    plain = literal(x != 0 if common == "bool" else x, wide)
    return plain if exact or wide == common else cast(cast(plain, common), wide)


def scalar(x: Operand, dtype: str) -> Expr:
    """A number, or the tensor of one element that holds it, as an element of `dtype`."""
    if isinstance(x, Tensor):
        return cast(load(x, ()), dtype)
    return cast(IndexValue(x, "int64") if isinstance(x, Size) else number(x, dtype), dtype)


def elementwise(b: Builder, build: Callable[..., Expr], operands: Sequence[Operand], common: str, out: str = "", exact: bool = False) -> Tensor:
    """A Compute of `build(*operands)` in `common`'s arithmetic, laid out as the node's result, with dtype `out` or its own.
    `exact`: the last operand, where a number or 0-dimensional, is not rounded to `common` first (measured: mul, div, lerp)."""
    if common in COMPLEX:
        raise Unsupported("TW505", "arithmetic on complex tensors in a generated kernel")
    rank = len(b.out.sizes)
    last = len(operands) - 1
    value = build(*[operand(x, rank, common, exact and k == last) for k, x in enumerate(operands)])
    meta = b.out if b.out.dtype else replace(b.out, dtype=out or common)
    return b.compute(meta, cast(value, out or common))


def common_type(b: Builder, operands: Sequence[Operand]) -> str:
    return result_type(operands, b.default_float)


def float_type(b: Builder, operands: Sequence[Operand]) -> str:
    """The common dtype, the default float where that is an integer or bool."""
    common = common_type(b, operands)
    return common if common in FLOATS or common in COMPLEX else b.default_float
