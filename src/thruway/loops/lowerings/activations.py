"""Activation functions, written with the formulas that torch's CPU kernels use."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from thruway.core.dtypes import LOW_FLOATS
from thruway.core.errors import Unsupported
from thruway.loops.arithmetic import convert
from thruway.loops.builder import Builder, Tensor, load
from thruway.loops.builder import axis_indices
from thruway.loops.expressions import cast, op, where
from thruway.loops.ir import Expr
from thruway.loops.lowerings.elementwise import elementwise, number, operand
from thruway.loops.lowerings.pointwise import clamp, like
from thruway.loops.lowerings.ties import by_vectors, either
from thruway.loops.lowerings.views import wrap_dim


def activation(formula: Callable[..., Expr]) -> Callable[..., Tensor]:
    """A row for `formula(x, *numbers)` over one tensor."""
    def row(b: Builder, self: Tensor, *numbers: float, **named: float) -> Tensor:
        return elementwise(b, lambda x: formula(x, *numbers, **named), (self,), self.dtype)
    return row


def relu(x: Expr) -> Expr:
    return op("max", like(0, x), x)


def gelu(x: Expr, approximate: str = "none") -> Expr:
    half = op("mul", like(0.5, x), x)
    if approximate == "none":
        return op("mul", half, op("add", like(1, x), op("erf", op("mul", x, like(math.sqrt(0.5), x)))))
    cube = op("mul", op("mul", x, x), x)
    inner = op("mul", like(math.sqrt(2 / math.pi), x), op("add", x, op("mul", like(0.044715, x), cube)))
    return op("mul", half, op("add", like(1, x), op("tanh", inner)))


def gelu_row(b: Builder, self: Tensor, approximate: str = "none") -> Tensor:
    """The library behind eager's exact gelu on a CPU makes nan of inf, as 0 * inf does, in the dtypes that it is asked for."""
    by_library = b.device == "cpu" and approximate == "none" and self.dtype in ("float32", "bfloat16")

    def build(x: Expr) -> Expr:
        y = gelu(x, approximate)
        return op("fma", x, like(0, x), y) if by_library else y
    return elementwise(b, build, (self,), self.dtype)


def silu(x: Expr) -> Expr:
    return op("div", x, op("add", like(1, x), op("exp", op("neg", x))))


def mish(x: Expr) -> Expr:
    return op("mul", x, op("tanh", op("log1p", op("exp", x))))


def relu6_of(x: Expr) -> Expr:
    """min(max(x + 3, 0), 6)."""
    return op("min", op("max", op("add", x, like(3, x)), like(0, x)), like(6, x))


def hardswish(x: Expr) -> Expr:
    return op("div", op("mul", x, relu6_of(x)), like(6, x))


def hardsigmoid(x: Expr) -> Expr:
    return op("div", relu6_of(x), like(6, x))


def softplus(x: Expr, beta: float = 1, threshold: float = 20) -> Expr:
    scaled = op("mul", x, like(beta, x))
    return where(op("gt", scaled, like(threshold, x)), x, op("div", op("log1p", op("exp", scaled)), like(beta, x)))


def elu(x: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    low = op("mul", op("expm1", op("mul", x, like(input_scale, x))), like(alpha * scale, x))
    return where(op("le", x, like(0, x)), low, op("mul", x, like(scale, x)))


def celu(x: Expr, alpha: float = 1.0) -> Expr:
    if alpha == 0:
        raise Unsupported("TW526", "celu with an alpha of 0, which eager refuses")
    return elu(x, alpha, 1, 1 / alpha)


def leaky_relu(x: Expr, negative_slope: float = 0.01) -> Expr:
    return where(op("gt", x, like(0, x)), x, op("mul", x, like(negative_slope, x)))


def log_sigmoid(x: Expr) -> Expr:
    return op("sub", op("min", x, like(0, x)), op("log1p", op("exp", op("neg", op("abs", x)))))


def threshold(x: Expr, threshold: float, value: float) -> Expr:
    return where(op("le", x, like(threshold, x)), like(value, x), x)


def hardshrink(b: Builder, self: Tensor, lambd: float = 0.5) -> Tensor:
    """0 between the limits, which are rounded to the tensor's dtype."""
    low, high = number(-lambd, self.dtype, False), number(lambd, self.dtype, False)

    def build(x: Expr) -> Expr:
        return where(op("and", op("ge", x, low), op("le", x, high)), like(0, x), x)
    return elementwise(b, build, (self,), self.dtype)


def softshrink(b: Builder, self: Tensor, lambd: float = 0.5) -> Tensor:
    """Between the limits 0; of a negative element that eager takes by itself -0."""
    if self.dtype in LOW_FLOATS and float(convert(np.asarray(lambd), "float64", self.dtype)) != lambd:
        raise Unsupported("TW526", "softshrink with limits that some of torch's versions round to 16 bits")
    vectors = by_vectors(b, (self,), self.dtype)

    def build(x: Expr) -> Expr:
        inside = either(vectors, where(op("isnan", x), x, like(0, x)), op("mul", x, like(0, x)))
        below = where(op("lt", x, like(-lambd, x)), op("add", x, like(lambd, x)), inside)
        return where(op("gt", x, like(lambd, x)), op("sub", x, like(lambd, x)), below)
    return elementwise(b, build, (self,), self.dtype)


def hardtanh(b: Builder, self: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return clamp(b, self, min_val, max_val)


def log_sigmoid_forward(b: Builder, self: Tensor) -> tuple:
    """log sigmoid, and exp(-|x|), which its gradient wants."""
    b.meta, buffer = b.meta
    result = activation(log_sigmoid)(b, self)
    return result, b.compute(buffer, op("exp", op("neg", op("abs", operand(self, self.rank, self.dtype, False)))), "buffer")


def prelu(b: Builder, self: Tensor, weight: Tensor) -> Tensor:
    build = lambda x, w: where(op("gt", x, like(0, x)), x, op("mul", w, x))
    return elementwise(b, build, (self, weight), self.dtype)


def glu(b: Builder, self: Tensor, dim: int = -1) -> Tensor:
    """First half times the sigmoid of the second half, along `dim`."""
    dim = wrap_dim(dim, self.rank)
    index = list(axis_indices(self.rank))
    first = operand(self, self.rank, self.dtype, False)
    index[dim] = index[dim] + b.out.sizes[dim]
    second = cast(load(self, index), first.dtype)
    return b.compute(b.out, op("mul", first, op("sigmoid", second)))


_FORMULAS = {
    "silu": silu, "mish": mish, "hardswish": hardswish, "hardsigmoid": hardsigmoid, "softplus": softplus, "elu": elu,
    "leaky_relu": leaky_relu, "log_sigmoid": log_sigmoid, "threshold": threshold, "relu": relu,
}
ROWS: dict[str, Callable[..., Tensor]] = {
    **{f"aten.{name}.default": activation(formula) for name, formula in _FORMULAS.items()},
    "aten.celu.default": activation(celu),
    "aten.selu.default": activation(lambda x: elu(x, 1.6732632423543772, 1.0507009873554805)),
    "aten.relu6.default": lambda b, self: clamp(b, self, 0, 6),
    "aten.gelu.default": gelu_row, "aten.softshrink.default": softshrink,
    "aten.hardshrink.default": hardshrink,
    "aten.hardtanh.default": hardtanh, "aten.log_sigmoid_forward.default": log_sigmoid_forward,
    "aten._prelu_kernel.default": prelu, "aten.glu.default": glu,
}
