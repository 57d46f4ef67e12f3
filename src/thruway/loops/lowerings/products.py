"""Matrix products as loops: a sum of products that fuses with what feeds it and with what reads it.

Whether a product is opened so or stays a library call is the target's choice: `lower` asks with a `Product` in how many parts along the
inner axis. The sum runs in float32 for bf16 and fp16 and is rounded once, behind the bias, as the libraries do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from thruway.core import sizes
from thruway.core.dtypes import FLOATS, compute_dtype
from thruway.core.sizes import SizeLike, add, floordiv, mul
from thruway.loops.builder import Builder, Tensor, axis_index, axis_indices, load, load_broadcast, reduced_axis
from thruway.loops.expressions import cast, op
from thruway.loops.ir import Axis, Expr, Literal, Reduce
from thruway.shapes.meta import TensorMeta, contiguous_strides


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` products of [rows, inner] with [inner, columns] in `dtype`. `along`: whether the second factor's elements lie along
    `inner`; `joins`: whether only loops read the result, so that they can take its parts."""

    dtype: str
    batch: SizeLike
    rows: SizeLike
    columns: SizeLike
    inner: SizeLike
    along: bool = True
    joins: bool = False


Parts = Callable[[Product], int]         # 0: a library call


@dataclass(frozen=True, slots=True)
class _Operands:
    left: Tensor
    right: Tensor
    bias: Tensor | None = None
    turned: bool = False          # the second factor is [columns, inner]
    relu: bool = False


def product_of(name: str, args: tuple, kwargs: Mapping[str, object], joins: bool = False) -> Product | None:
    """The product that an operator is, where it can be opened."""
    x = _operands(name, args, kwargs)
    if x is None or x.left.dtype != x.right.dtype or x.left.dtype not in FLOATS or (x.bias is not None and x.bias.dtype != x.left.dtype):
        return None
    *rows, inner = x.left.sizes
    columns = x.right.sizes[-2 if x.turned else -1]
    strides = x.right.meta.strides
    along = len(strides) > 1 and strides[-1 if x.turned else -2] == 1
    if name == "aten.bmm.default":
        return Product(x.left.dtype, rows[0], rows[1], columns, inner, along, joins)
    return Product(x.left.dtype, 1, sizes.product(rows), columns, inner, along, joins)


def open_product(b: Builder, name: str, args: tuple, kwargs: Mapping[str, object], parts: int = 1) -> Tensor:
    """The operator as a sum of products."""
    x = _operands(name, args, kwargs)
    assert x is not None, "only what product_of knows is opened"
    return _opened(b, x, 0, b.out, parts)


def open_columns(b: Builder, args: tuple, kwargs: Mapping[str, object], parts: int, start: int) -> Tensor:
    """The columns of a linear layer from `start` on, as many as the node at hand has."""
    x = _operands("aten.linear.default", args, kwargs)
    assert x is not None, "only a linear layer is cut"
    plain = replace(b.out, strides=contiguous_strides(b.out.sizes), offset=0)
    return _opened(b, x, start, plain, parts)


def _opened(b: Builder, x: _Operands, start: int, meta: TensorMeta, parts: int) -> Tensor:
    """The sum, and what is left to do with it, laid out as `meta`. Columns count from `start`."""
    wide, rank = compute_dtype(x.left.dtype), x.left.rank
    out, inner = axis_indices(rank), x.left.sizes[-1]
    column = out[-1] + start

    def summed(along: Axis, at: SizeLike, place: tuple[SizeLike, ...]) -> Reduce:
        """At `place` of the result, over `along`, which stands at `at` of the inner axis."""
        *rows, last = place
        across = (last + start, at) if x.turned else (at, last + start)
        reads = load(x.left, (*rows, at)), load(x.right, (*place[:x.right.rank - 2], *across))
        return Reduce("sum", (along,), op("mul", *[cast(each, wide) for each in reads]), wide)

    total: Expr
    if parts == 1:
        along = reduced_axis(0, inner)
        total = summed(along, along.index, out)
    else:
        along = reduced_axis(0, floordiv(inner, parts))
        at = add(mul(axis_index(0), along.extent), along.index)
        partial = b.temp((parts, *meta.sizes), summed(along, at, axis_indices(rank + 1)[1:]), "parts")
        total = load(partial, (0, *out))
        for k in range(1, parts):
            total = op("add", total, load(partial, (k, *out)))
    if x.bias is None and not x.relu:
        return b.compute(meta, total)
    if parts == 1:
        total = load_broadcast(b.temp(meta.sizes, total, "total"), rank)
    value = total if x.bias is None else op("add", total, cast(load(x.bias, (column,)), wide))
    return b.compute(meta, op("max", value, Literal(0.0, wide)) if x.relu else value)


def _operands(name: str, args: tuple, kwargs: Mapping[str, object]) -> _Operands | None:
    match name, args:
        case "aten.mm.default" | "aten.bmm.default", (Tensor() as left, Tensor() as right):
            return _Operands(left, right)
        case "aten.addmm.default" | "aten._addmm_activation.default", (Tensor() as bias, Tensor() as left, Tensor() as right):
            plain = kwargs.get("beta", 1) == 1 and kwargs.get("alpha", 1) == 1 and not kwargs.get("use_gelu")
            return _Operands(left, right, bias, relu="activation" in name) if plain and bias.rank == 1 else None
        case "aten.linear.default", (Tensor() as left, Tensor() as right, *rest) if right.rank == 2 and left.rank > 1:
            return _Operands(left, right, rest[0] if rest else kwargs.get("bias"), turned=True)
        case _:
            return None
