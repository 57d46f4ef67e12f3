"""Matrix products. Results are contiguous."""

from __future__ import annotations

from collections.abc import Callable

from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import require
from thruway.shapes.rules.dims import fresh
from thruway.shapes.rules.strides import broadcast

Rule = Callable[..., object]


def _alike(*metas: TensorMeta | None) -> None:
    given = [m for m in metas if m is not None]
    require(all(m.dtype == given[0].dtype for m in given), f"a product of {', '.join(m.dtype for m in given)}")
    require(all(m.device == given[0].device for m in given), f"a product across {', '.join(m.device for m in given)}")


def _mm(x: TensorMeta, y: TensorMeta) -> TensorMeta:
    _alike(x, y)
    require(len(x.sizes) == 2 and len(y.sizes) == 2 and x.sizes[1] == y.sizes[0], f"mm of {x.sizes} and {y.sizes}")
    require(x.dtype != "bool", "mm of bool")
    return fresh(x, (x.sizes[0], y.sizes[1]))


def _addmm(bias: TensorMeta, x: TensorMeta, y: TensorMeta, *, beta: object = 1, alpha: object = 1) -> TensorMeta:
    made = _mm(x, y)
    _alike(bias, x)
    _check_bias(bias, made)
    return made


def _check_bias(bias: TensorMeta, made: TensorMeta) -> None:
    require(len(bias.sizes) <= len(made.sizes) and broadcast([bias.sizes, made.sizes]) == made.sizes, f"bias of {bias.sizes} for {made.sizes}")


def _bmm(x: TensorMeta, y: TensorMeta) -> TensorMeta:
    _alike(x, y)
    require(len(x.sizes) == 3 and len(y.sizes) == 3 and x.sizes[0] == y.sizes[0] and x.sizes[2] == y.sizes[1],
            f"bmm of {x.sizes} and {y.sizes}")
    return fresh(x, (x.sizes[0], x.sizes[1], y.sizes[2]))


def _baddbmm(bias: TensorMeta, x: TensorMeta, y: TensorMeta, *, beta: object = 1, alpha: object = 1) -> TensorMeta:
    made = _bmm(x, y)
    _alike(bias, x)
    _check_bias(bias, made)
    return made


def _mv(x: TensorMeta, y: TensorMeta) -> TensorMeta:
    _alike(x, y)
    require(len(x.sizes) == 2 and len(y.sizes) == 1 and x.sizes[1] == y.sizes[0], f"mv of {x.sizes} and {y.sizes}")
    return fresh(x, x.sizes[:1])


def _addmv(bias: TensorMeta, x: TensorMeta, y: TensorMeta, *, beta: object = 1, alpha: object = 1) -> TensorMeta:
    made = _mv(x, y)
    _alike(bias, x)
    _check_bias(bias, made)
    return made


def _dot(x: TensorMeta, y: TensorMeta) -> TensorMeta:
    _alike(x, y)
    require(len(x.sizes) == 1 and x.sizes == y.sizes, f"dot of {x.sizes} and {y.sizes}")
    return fresh(x, ())


def _matmul(x: TensorMeta, y: TensorMeta) -> TensorMeta:
    """Any ranks from 1 up; batch dimensions broadcast."""
    a, b = x.sizes, y.sizes
    require(len(a) > 0 and len(b) > 0, "matmul of a 0-dim tensor")
    _alike(x, y)
    inner = b[0] if len(b) == 1 else b[-2]
    require(a[-1] == inner, f"matmul of {a} and {b}")
    batch = broadcast([a[:-2], b[:-2]]) if len(a) > 2 or len(b) > 2 else ()
    rows, columns = (a[-2:-1] if len(a) > 1 else ()), (b[-1:] if len(b) > 1 else ())
    return fresh(x, (*batch, *rows, *columns))


def _linear(x: TensorMeta, weight: TensorMeta, bias: TensorMeta | None = None) -> TensorMeta:
    _alike(x, weight, bias)
    require(0 < len(weight.sizes) <= 2 and len(x.sizes) > 0, f"linear of {x.sizes} by {weight.sizes}")
    if len(weight.sizes) == 1:
        require(x.sizes[-1] == weight.sizes[0], f"linear of {x.sizes} by {weight.sizes}")
        require(bias is None, "a bias for one output")
        return fresh(x, x.sizes[:-1])
    require(x.sizes[-1] == weight.sizes[1], f"linear of {x.sizes} by {weight.sizes}")
    made = fresh(x, (*x.sizes[:-1], weight.sizes[0]))
    if bias is not None:
        _check_bias(bias, made)
    return made


RULES: dict[str, Rule] = {
    "aten::mm": _mm,
    "aten::addmm": _addmm,
    "aten::bmm": _bmm,
    "aten::baddbmm": _baddbmm,
    "aten::mv": _mv,
    "aten::addmv": _addmv,
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::matmul": _matmul,
    "aten::linear": _linear,
}
