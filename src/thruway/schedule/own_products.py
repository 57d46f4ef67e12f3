"""Matrix products that a CPU runs by a kernel of ours (`codegen/product_c.py`, `product_bf16_c.py`) instead of a library call.

Where MKL takes its slow path (every CPU but Intel's) and vectors are 64 bytes wide, the kernel reads the weight as it lies, in any of the two
orders, as fast as oneDNN multiplies by a packed copy, and writes into memory that is there (docs/decisions, products of ours on CPUs). In
bfloat16 it takes linear layers of some dozens to hundreds of rows where the processor multiplies pairs and has no matrix tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thruway.core import sizes
from thruway.core.sizes import SizeLike
from thruway.core.target import OWN_WORK, Target, fits_pairs
from thruway.loops.ir import Buffer, BufferRef, Extern
from thruway.schedule.depend import root

LEAST_SIDE = 32
DTYPES = frozenset({"float32", "bfloat16"})


@dataclass(frozen=True, slots=True)
class OwnProduct:
    """out[rows, columns] = x[rows, inner] @ weight[inner, columns] + bias[columns]. The weight's element k, j lies at k*down + j*across, row i of x at
    i*stride; both start `offsets` elements into their storages, as the bias does."""

    x: str
    weight: str
    out: str
    bias: str | None
    rows: SizeLike
    columns: SizeLike
    inner: SizeLike
    stride: SizeLike
    down: SizeLike
    across: SizeLike
    offsets: tuple[SizeLike, SizeLike, SizeLike]
    dtype: str = "float32"

    @property
    def pointers(self) -> tuple[str, ...]:
        return (self.x, self.weight, self.out, *(() if self.bias is None else (self.bias,)))

    @property
    def scalars(self) -> tuple[SizeLike, ...]:
        """As the kernel takes them."""
        return (self.rows, self.columns, self.inner, self.stride, self.down, self.across, *self.offsets, int(self.bias is not None))


def own_product(step: object, buffers: Mapping[str, Buffer], target: Target) -> OwnProduct | None:
    """The product that a step is, where it is one of ours."""
    product = _matched(step, buffers) if isinstance(step, Extern) and target.kind == "cpu" else None
    return product if product is not None and _is_worth(product, target) else None


def _matched(step: Extern, buffers: Mapping[str, Buffer]) -> OwnProduct | None:
    match step.op, step.args, step.kwargs:
        case "aten::mm", (BufferRef(x), BufferRef(weight)), ():
            return _product(step, x, weight, None, buffers)
        case "aten::addmm", (BufferRef(bias), BufferRef(x), BufferRef(weight)), ():
            return _product(step, x, weight, bias, buffers)
        case "aten::linear", (BufferRef(x), BufferRef(weight)) | (BufferRef(x), BufferRef(weight), None), ():
            return _product(step, x, weight, None, buffers, turned=True)
        case "aten::linear", (BufferRef(x), BufferRef(weight), BufferRef(bias)), ():
            return _product(step, x, weight, bias, buffers, turned=True)
        case _:
            return None


def _product(step: Extern, x: str, weight: str, bias: str | None, buffers: Mapping[str, Buffer], turned: bool = False) -> OwnProduct | None:
    names = (x, weight, step.outs[0], *(() if bias is None else (bias,)))
    dtype = buffers[x].dtype
    if dtype not in DTYPES or any(not is_plain(name, dtype, buffers) for name in names):
        return None
    a, w, out = buffers[x], buffers[weight], buffers[step.outs[0]]
    if len(w.sizes) != 2 or len(a.sizes) < 2 or out.alias is not None or not _runs_on(out.sizes, out.strides, 1):
        return None
    if bias is not None and (buffers[bias].sizes != out.sizes[-1:] or buffers[bias].strides != (1,)):
        return None
    rows, columns, inner = sizes.product(a.sizes[:-1]), out.sizes[-1], a.sizes[-1]
    across, down = w.strides if turned else reversed(w.strides)
    is_read = a.strides[-1] == 1 and _runs_on(a.sizes[:-1], a.strides[:-1], a.strides[-2]) and 1 in (across, down)
    if not is_read:
        return None
    roots, starts = zip(*(place(name, buffers) for name in names))
    return OwnProduct(roots[0], roots[1], roots[2], roots[3] if bias is not None else None, rows, columns, inner, a.strides[-2], down, across,
                      (starts[0], starts[1], starts[3] if bias is not None else 0), dtype)


def is_plain(name: str, dtype: str, buffers: Mapping[str, Buffer]) -> bool:
    b, base = buffers[name], buffers[root(name, buffers)]
    return b.strides is not None and b.dtype == base.dtype == dtype and b.device == "cpu"


def place(name: str, buffers: Mapping[str, Buffer]) -> tuple[str, SizeLike]:
    """The storage that a buffer lies in, and its first element there."""
    start: SizeLike = 0
    while (alias := buffers[name].alias) is not None:
        start, name = sizes.add(start, buffers[name].offset), alias
    return name, start


def _runs_on(lengths: tuple[SizeLike, ...], strides: tuple[SizeLike, ...], distance: SizeLike) -> bool:
    """Whether all elements lie at one distance."""
    for length, stride in zip(reversed(lengths), reversed(strides), strict=True):
        if stride != distance and length != 1:
            return False
        distance = sizes.mul(distance, length)
    return True


def _is_worth(product: OwnProduct, target: Target) -> bool:
    """A number of rows that is not known counts as large."""
    rows, columns, inner = product.rows, product.columns, product.inner
    if type(columns) is not int or type(inner) is not int or min(columns, inner) < LEAST_SIDE:
        return False
    if product.dtype == "bfloat16" and not (fits_pairs(columns, inner) and product.down == 1 and is_even(product.stride) and is_even(product.across)):
        return False
    count = rows if type(rows) is int else OWN_WORK
    return target.has_own_product(product.dtype, count, count * columns * inner)


def is_even(stride: SizeLike) -> bool:
    return type(stride) is int and stride % 2 == 0
