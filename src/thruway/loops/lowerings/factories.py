"""Tensors made from nothing: constants, ranges, masks; and running sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from thruway.core.dtypes import FLOATS, compute_dtype
from thruway.core.errors import Unsupported
from thruway.core.sizes import Size, SizeLike, add, mul
from thruway.loops.builder import Builder, Tensor, axis_index, axis_indices, load, load_broadcast
from thruway.loops.expressions import cast, literal, op, within
from thruway.loops.ir import Condition, Expr, IndexValue, Literal
from thruway.loops.lowerings.elementwise import Operand, scalar
from thruway.loops.lowerings.views import wrap_dim


def constant(b: Builder, value: Operand) -> Tensor:
    return b.compute(b.out, scalar(value, b.out.dtype))


def full(b: Builder, size: object, fill_value: object, **options: object) -> Tensor:
    return constant(b, fill_value)


def filled(value: int) -> Callable[..., Tensor]:
    return lambda b, *args, **options: constant(b, value)


def full_like(b: Builder, self: Tensor, fill_value: object, **options: object) -> Tensor:
    return constant(b, fill_value)


def new_full(b: Builder, self: Tensor, size: object, fill_value: object, **options: object) -> Tensor:
    return constant(b, fill_value)


def fill(b: Builder, self: Tensor, value: object) -> Tensor:
    return constant(b, value)


def scalar_tensor(b: Builder, s: object, **options: object) -> Tensor:
    return constant(b, s)


def arange(b: Builder, *bounds: object, **options: object) -> Tensor:
    """start + k * step; floats in float64, as torch's kernel counts, then rounded."""
    start, step = (0, 1) if len(bounds) == 1 else (bounds[0], bounds[2] if len(bounds) > 2 else 1)
    at = axis_index(0)
    if b.out.dtype not in FLOATS:                                    # torch cuts them, and counts the elements before it does
        start, step = [one if isinstance(one, Size) else int(one) for one in (start, step)]
    if isinstance(start, (int, Size)) and isinstance(step, (int, Size)):
        return b.compute(b.out, cast(IndexValue(add(start, mul(at, step)), "int64"), b.out.dtype))
    if isinstance(start, Size) or isinstance(step, Size):
        raise Unsupported("TW519", "a range of floats with symbolic bounds")
    value = op("add", Literal(float(start), "float64"), op("mul", IndexValue(at, "float64"), Literal(float(step), "float64")))
    return b.compute(b.out, value)


def triangle(keep_lower: bool) -> Callable[..., Tensor]:
    """tril keeps columns up to row + diagonal, triu those from row + diagonal on; the rest is 0."""
    def row(b: Builder, self: Tensor, diagonal: int = 0) -> Tensor:
        axes = axis_indices(self.rank)
        kept = load(self, axes)
        return b.compute(b.out, _triangle(axes[-2], axes[-1], diagonal, kept, literal(0, self.dtype), keep_lower))
    return row


def _triangle(row: SizeLike, column: SizeLike, diagonal: SizeLike, kept: Expr, zero: Expr, lower: bool) -> Expr:
    below = op("le", IndexValue(column, "int64"), IndexValue(add(row, diagonal), "int64"))
    above = op("ge", IndexValue(column, "int64"), IndexValue(add(row, diagonal), "int64"))
    return op("where", below if lower else above, kept, zero)


def eye(b: Builder, *sizes: object, **options: object) -> Tensor:
    row, column = axis_indices(2)
    return b.compute(b.out, cast(op("eq", IndexValue(row, "int64"), IndexValue(column, "int64")), b.out.dtype))


def linspace(b: Builder, start: float, end: float, steps: int, **options: object) -> Tensor:
    """From both ends toward the middle, as torch's kernel counts, so that both are met exactly."""
    if b.out.dtype not in ("float32", "float64") or type(steps) is not int or isinstance(start, Tensor) or isinstance(end, Tensor):
        raise Unsupported("TW521", "linspace of integers, of 16-bit floats or between tensors")
    wide = compute_dtype(b.out.dtype)
    step = Literal((end - start) / (steps - 1) if steps > 1 else 0.0, wide)
    at = axis_index(0)
    first = op("add", Literal(float(start), wide), op("mul", step, IndexValue(at, wide)))
    last = op("sub", Literal(float(end), wide), op("mul", step, IndexValue(add(steps - 1, mul(at, -1)), wide)))
    return b.compute(b.out, within((Condition(at, max(steps // 2, 1)),), first, last))


def running(name: str) -> Callable[..., Tensor]:
    """cumsum, cumprod, logcumsumexp: integers in int64, bf16 and fp16 in float32, rounded at each place."""
    def row(b: Builder, self: Tensor, dim: int, *, dtype: object = None) -> Tensor:
        out = b.out if b.out.dtype else replace(b.out, dtype=self.dtype)            # in place it stays what it is
        wide = compute_dtype(out.dtype)
        rounded = cast(cast(load_broadcast(self, self.rank), out.dtype), wide)
        if not self.rank:
            return b.compute(out, rounded)
        if wide == out.dtype:
            return b.scan(out, wrap_dim(dim, self.rank), name, rounded)
        sums = b.scan(b.dense(out.sizes, wide), wrap_dim(dim, self.rank), name, rounded, "wide")
        return b.compute(out, load_broadcast(sums, sums.rank))
    return row


ROWS: dict[str, Callable[..., Tensor]] = {
    "aten.full.default": full, "aten.full_like.default": full_like, "aten.new_full.default": new_full, "aten.scalar_tensor.default": scalar_tensor,
    "aten.fill.Scalar": fill, "aten.fill.Tensor": fill,
    **{f"aten.{name}.default": filled(int("one" in name)) for name in ("zeros", "ones", "new_zeros", "new_ones", "zeros_like", "ones_like")},
    "aten.zero.default": filled(0),
    "aten.arange.default": arange, "aten.arange.start": arange, "aten.arange.start_step": arange,
    "aten.tril.default": triangle(True), "aten.triu.default": triangle(False), "aten.eye.default": eye, "aten.eye.m": eye,
    "aten.linspace.default": linspace,
    "aten.cumsum.default": running("sum"), "aten.cumprod.default": running("prod"), "aten.logcumsumexp.default": running("logsumexp"),
}
