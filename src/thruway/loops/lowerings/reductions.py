"""Reductions over dimensions: sums, extrema, their places, moments, norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from thruway.core.dtypes import FLOATS, compute_dtype
from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike, maximum, product
from thruway.loops.builder import Builder, Tensor, axis_indices, load, load_broadcast, reduced_axis
from thruway.loops.expressions import cast, op, where
from thruway.loops.ir import Expr, IndexValue, Literal, Reduce
from thruway.loops.lowerings.views import wrap_dim
from thruway.shapes.meta import TensorMeta


def wrap_dims(dim: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The dimensions to reduce, in order; all of them where none is named."""
    if dim is None or isinstance(dim, tuple) and not dim:
        return tuple(range(rank))
    return tuple(sorted({wrap_dim(d, rank) for d in (dim if isinstance(dim, tuple) else (dim,))})) if rank else ()


def reduced_sizes(sizes: Sequence[SizeLike], dims: Sequence[int], keepdim: bool) -> tuple[SizeLike, ...]:
    if keepdim:
        return tuple([1 if k in dims else size for k, size in enumerate(sizes)])
    return tuple([size for k, size in enumerate(sizes) if k not in dims])


def reduce(x: Sequence[SizeLike], dims: Sequence[int], keepdim: bool, name: str, at: Callable[..., Expr], dtype: str) -> Expr:
    """`name` over `dims` of `at(index)`, where `x` are the sizes it runs over; plain `at` where nothing is reduced."""
    index, position = [], 0
    for k in range(len(x)):
        index.append(reduced_axis(k, x[k]).index if k in dims else axis_indices(len(x))[position])
        position += keepdim or k not in dims
    value = at(tuple(index))
    if name == "sum" and dtype in FLOATS and product([x[k] for k in dims]) == 1:
        value = op("add", value, Literal(0.0, dtype))                 # sums start at 0, which takes the sign off a lone -0
    if not dims:
        return Literal(0, "int64") if name.startswith("arg") else cast(value, dtype)
    return Reduce(name, tuple([reduced_axis(k, x[k]) for k in dims]), value, dtype)


def reading(x: Tensor, dtype: str, change: Callable[[Expr], Expr] = lambda x: x) -> Callable[..., Expr]:
    """`at` for `reduce`: the element of `x` in `dtype`, changed."""
    return lambda index: change(cast(load(x, index), dtype))


def accumulation(dtype: str) -> str:
    """In what eager accumulates sums and products of `dtype`."""
    return compute_dtype(dtype) if dtype in FLOATS else "int64"


def sum_like(name: str) -> Callable[..., Tensor]:
    def row(b: Builder, self: Tensor, dim=None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
        into = accumulation(b.out.dtype)
        read = reading(self, into) if self.dtype == b.out.dtype else lambda index: cast(cast(load(self, index), b.out.dtype), into)
        return b.compute(b.out, reduce(self.sizes, wrap_dims(dim, self.rank), keepdim, name, read, into))
    return row


def sum_default(b: Builder, self: Tensor, *, dtype: object = None) -> Tensor:
    return sum_like("sum")(b, self)


def mean(b: Builder, self: Tensor, dim=None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    dims = wrap_dims(dim, self.rank)
    wide = compute_dtype(b.out.dtype)
    total = b.temp(b.out.sizes, reduce(self.sizes, dims, keepdim, "sum", reading(self, wide), wide), "sum")
    return b.compute(b.out, op("div", load_broadcast(total, total.rank), count(self, dims, wide)))


def count(x: Tensor, dims: Sequence[int], dtype: str) -> Expr:
    """How many elements a reduction over `dims` sees, as a value."""
    number = product([x.sizes[d] for d in dims])
    return Literal(float(number), dtype) if type(number) is int else IndexValue(number, dtype)


def extremum(name: str) -> Callable[..., Tensor]:
    """amax, amin and max/min of everything."""
    def row(b: Builder, self: Tensor, dim=None, keepdim: bool = False) -> Tensor:
        return b.compute(b.out, reduce(self.sizes, wrap_dims(dim, self.rank), keepdim, name, reading(self, self.dtype), self.dtype))
    return row


def extremum_with_index(name: str) -> Callable[..., tuple]:
    """max.dim and min.dim: values and the first place each stands at."""
    def row(b: Builder, self: Tensor, dim: int, keepdim: bool = False) -> tuple:
        dims = wrap_dims(dim, self.rank)
        values, places = b.meta
        read = reading(self, self.dtype)
        return (b.compute(values, reduce(self.sizes, dims, keepdim, name, read, self.dtype), "values"),
                b.compute(places, reduce(self.sizes, dims, keepdim, f"arg{name}", read, "int64"), "indices"))
    return row


def aminmax(b: Builder, self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple:
    dims = wrap_dims(dim, self.rank)
    read = reading(self, self.dtype)
    return tuple([b.compute(meta, reduce(self.sizes, dims, keepdim, name, read, self.dtype), name) for meta, name in zip(b.meta, ("min", "max"))])


def place(name: str) -> Callable[..., Tensor]:
    """argmax and argmin; of the flattened tensor where no dimension is named."""
    def row(b: Builder, self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return b.compute(b.out, reduce(self.sizes, wrap_dims(dim, self.rank), keepdim, name, reading(self, self.dtype), "int64"))
    return row


def truth(name: str) -> Callable[..., Tensor]:
    def row(b: Builder, self: Tensor, dim=None, keepdim: bool = False) -> Tensor:
        dims = () if dim == () else wrap_dims(dim, self.rank)
        return b.compute(b.out, reduce(self.sizes, dims, keepdim, name, reading(self, "bool"), "bool"))
    return row


def moments(b: Builder, x: Tensor, dims: Sequence[int], wide: str) -> tuple[Tensor, Tensor]:
    """Mean over `dims` and sum of squared distances from it, dimensions kept, in `wide`: two passes."""
    kept = reduced_sizes(x.sizes, dims, True)
    total = b.temp(kept, reduce(x.sizes, dims, True, "sum", reading(x, wide), wide), "sum")
    middle = b.temp(kept, op("div", load_broadcast(total, x.rank), count(x, dims, wide)), "mean")

    def squared(index: tuple) -> Expr:
        away = op("sub", cast(load(x, index), wide), load(middle, index))
        return op("mul", away, away)
    return middle, b.temp(kept, reduce(x.sizes, dims, True, "sum", squared, wide), "squares")


def keepdim_load(x: Tensor, dims: Sequence[int], keepdim: bool) -> Expr:
    """The element of `x`, which has `dims` kept at size 1, at the axes of a result that may have dropped them."""
    if keepdim:
        return load_broadcast(x, x.rank)
    axes = iter(axis_indices(x.rank))
    return load(x, [0 if k in dims else next(axes) for k in range(x.rank)])


def spread(b: Builder, meta: TensorMeta, self: Tensor, dim, correction: float | None, keepdim: bool, root: bool) -> tuple[Tensor, Tensor]:
    """The variance (its square root with `root`) laid out as `meta`, and the mean that it is taken around."""
    dims = wrap_dims(dim, self.rank)
    wide = compute_dtype(self.dtype)
    middle, squares = moments(b, self, dims, wide)
    variance = op("div", keepdim_load(squares, dims, keepdim), degrees(self, dims, 1 if correction is None else correction, wide))
    return b.compute(meta, op("sqrt", variance) if root else variance), middle


def degrees(x: Tensor, dims: Sequence[int], correction: float, dtype: str) -> Expr:
    number = product([x.sizes[d] for d in dims])
    if type(number) is int:
        return Literal(max(0.0, float(number - correction)), dtype)
    if correction == int(correction):
        return IndexValue(maximum(number - int(correction), 0), dtype)
    return op("max", op("sub", IndexValue(number, dtype), Literal(float(correction), dtype)), Literal(0.0, dtype))


def variance(root: bool, with_mean: bool) -> Callable[..., Tensor | tuple]:
    def row(b: Builder, self: Tensor, dim=None, *, correction: float | None = None, keepdim: bool = False) -> Tensor | tuple:
        meta = b.meta[0] if with_mean else b.out
        result, middle = spread(b, meta, self, dim, correction, keepdim, root)
        if not with_mean:
            return result
        return result, b.compute(b.meta[1], keepdim_load(middle, wrap_dims(dim, self.rank), keepdim), "mean")
    return row


def variance_dim(root: bool) -> Callable[..., Tensor]:
    def row(b: Builder, self: Tensor, dim=None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return spread(b, b.out, self, dim, float(unbiased), keepdim, root)[0]
    return row


def vector_norm(b: Builder, self: Tensor, ord: float = 2, dim=None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """(sum |x|^ord)^(1/ord), and its limits: the largest, the smallest, the number of nonzero elements."""
    wide = compute_dtype(b.out.dtype)
    dims = wrap_dims(dim, self.rank)
    if self.dtype not in FLOATS:
        raise Unsupported("TW508", f"a norm of {self.dtype}")
    inner, name, outer = _norm_parts(ord)
    total = b.temp(b.out.sizes, reduce(self.sizes, dims, keepdim, name, reading(self, wide, inner), wide), "sum")
    return b.compute(b.out, outer(load_broadcast(total, total.rank)))


def _norm_parts(ord: float) -> tuple[Callable[[Expr], Expr], str, Callable[[Expr], Expr]]:
    same = lambda x: x
    magnitude = lambda x: op("abs", x)
    if math.isinf(ord):
        return magnitude, "max" if ord > 0 else "min", same
    if ord == 0:
        return (lambda x: cast(op("ne", x, Literal(0.0, x.dtype)), x.dtype)), "sum", same
    if ord == 1:
        return magnitude, "sum", same
    if ord == 2:
        return (lambda x: op("mul", x, x)), "sum", lambda x: op("sqrt", x)
    return (lambda x: op("pow", magnitude(x), Literal(float(ord), x.dtype))), "sum", lambda x: op("pow", x, Literal(1 / ord, x.dtype))


def norm(b: Builder, self: Tensor, p: float | None = 2, dim=None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    return vector_norm(b, self, 2 if p is None else p, dim, keepdim)


def logsumexp(b: Builder, self: Tensor, dim=None, keepdim: bool = False) -> Tensor:
    """log of the sum of exponentials, around the largest finite element."""
    wide = compute_dtype(b.out.dtype)
    dims = wrap_dims(dim, self.rank)
    kept = reduced_sizes(self.sizes, dims, True)
    top = b.temp(kept, reduce(self.sizes, dims, True, "max", reading(self, wide), wide), "max")
    raw = load_broadcast(top, top.rank)
    base = b.temp(kept, where(op("isinf", raw), Literal(0.0, wide), raw), "base")
    powers = lambda index: op("exp", op("sub", cast(load(self, index), wide), load(base, index)))
    total = b.temp(kept, reduce(self.sizes, dims, True, "sum", powers, wide), "sum")
    return b.compute(b.out, op("add", op("log", keepdim_load(total, dims, keepdim)), keepdim_load(base, dims, keepdim)))


def count_nonzero(b: Builder, self: Tensor, dim=None) -> Tensor:
    read = lambda index: cast(cast(load(self, index), "bool"), "int64")
    return b.compute(b.out, reduce(self.sizes, wrap_dims(dim, self.rank), False, "sum", read, "int64"))


def global_average(b: Builder, self: Tensor, output_size: Sequence[int]) -> Tensor:
    """Adaptive pooling to one element per channel is a mean, in eager too."""
    if any(type(size) is not int or size != 1 for size in output_size):
        raise Unsupported("TW525", "adaptive pooling to more than one element")
    return mean(b, self, tuple(range(-len(output_size), 0)), True)


ROWS: dict[str, Callable[..., Tensor | tuple]] = {
    "aten.sum.dim_IntList": sum_like("sum"), "aten.sum.default": sum_default,
    "aten.prod.dim_int": sum_like("prod"), "aten.prod.default": lambda b, self, *, dtype=None: sum_like("prod")(b, self),
    "aten.mean.dim": mean, "aten.mean.default": lambda b, self, *, dtype=None: mean(b, self),
    "aten.amax.default": extremum("max"), "aten.amin.default": extremum("min"),
    "aten.max.default": extremum("max"), "aten.min.default": extremum("min"),
    "aten.max.dim": extremum_with_index("max"), "aten.min.dim": extremum_with_index("min"), "aten.aminmax.default": aminmax,
    "aten.argmax.default": place("argmax"), "aten.argmin.default": place("argmin"),
    **{f"aten.{name}.{kind}": truth(name) for name in ("any", "all") for kind in ("default", "dim", "dims")},
    "aten.var.correction": variance(False, False), "aten.std.correction": variance(True, False),
    "aten.var_mean.correction": variance(False, True), "aten.std_mean.correction": variance(True, True),
    **{f"aten.{name}.{kind}": variance_dim(name == "std") for name in ("var", "std") for kind in ("default", "dim")},
    "aten.linalg_vector_norm.default": vector_norm,
    **{f"aten.norm.{kind}": norm for kind in ("Scalar", "ScalarOpt_dim", "ScalarOpt_dim_dtype", "ScalarOpt_dtype")},
    **{f"aten.{name}.default": global_average for name in ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_avg_pool3d")},
    "aten.logsumexp.default": logsumexp, "aten.count_nonzero.default": count_nonzero, "aten.count_nonzero.dim_IntList": count_nonzero,
}
