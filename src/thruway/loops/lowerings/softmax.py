"""Softmax and log-softmax: largest, exponentials, their sum, quotient; inside in float32 for bf16 and fp16."""

from __future__ import annotations

from collections.abc import Callable

from thruway.core.dtypes import compute_dtype
from thruway.loops.builder import Builder, Tensor, load_broadcast
from thruway.loops.expressions import cast, op
from thruway.loops.ir import Expr
from thruway.loops.lowerings.reductions import reading, reduce, reduced_sizes, wrap_dims


def _around_largest(b: Builder, self: Tensor, dim: int) -> tuple[Expr, Callable[[Tensor], Tensor]]:
    """x less its largest along `dim`, and a function that sums a tensor of self's sizes along it."""
    dims, wide = wrap_dims(dim, self.rank), compute_dtype(b.out.dtype)
    kept = reduced_sizes(self.sizes, dims, True)
    rounded = wide if self.dtype == b.out.dtype or wide == b.out.dtype else b.out.dtype
    convert = lambda x: cast(cast(x, rounded), wide)
    top = b.temp(kept, reduce(self.sizes, dims, True, "max", reading(self, rounded, lambda x: cast(x, wide)), wide), "max")
    away = op("sub", convert(load_broadcast(self, self.rank)), load_broadcast(top, self.rank))
    return away, lambda x: b.temp(kept, reduce(self.sizes, dims, True, "sum", reading(x, wide), wide), "sum")


def softmax(b: Builder, self: Tensor, dim: int, half_to_float: object = None, *, dtype: object = None) -> Tensor:
    away, total = _around_largest(b, self, dim)
    powers = b.temp(self.sizes, op("exp", away), "exp")
    return b.compute(b.out, op("div", load_broadcast(powers, self.rank), load_broadcast(total(powers), self.rank)))


def log_softmax(b: Builder, self: Tensor, dim: int, half_to_float: object = None, *, dtype: object = None) -> Tensor:
    away, total = _around_largest(b, self, dim)
    powers = b.temp(self.sizes, op("exp", away), "exp")
    return b.compute(b.out, op("sub", away, op("log", load_broadcast(total(powers), self.rank))))


ROWS: dict[str, Callable[..., Tensor]] = {
    "aten._softmax.default": softmax, "aten.softmax.int": softmax,
    "aten._log_softmax.default": log_softmax, "aten.log_softmax.int": log_softmax,
}
