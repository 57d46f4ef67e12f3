"""Matrix products that a CPU runs by a kernel of ours (`codegen/product_c.py`, `product_bf16_c.py`) instead of a library call.

Where MKL takes its slow path (every CPU but Intel's) and vectors are 64 bytes wide, the kernel reads the weight as it lies, in any of the two
orders, as fast as oneDNN multiplies by a packed copy, and writes into memory that is there (docs/decisions, products of ours on CPUs). In
bfloat16 it takes linear layers of some dozens to hundreds of rows where the processor multiplies pairs and has no matrix tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thruway.core import sizes
from thruway.core.sizes import SizeLike
from thruway.core.target import OWN_SIDE, OWN_WORK, PAIRED_PIXELS, PAIRED_ROWS, Target, fits_pairs
from thruway.loops.ir import Buffer, BufferRef, Extern
from thruway.schedule.depend import root

DTYPES = frozenset({"float32", "bfloat16"})
ENDINGS = {"none": False, None: False, "relu": True}        # what a convolution ends with, and whether it clamps


@dataclass(frozen=True, slots=True)
class OwnProduct:
    """out[rows, columns] = x[rows, inner] @ weight[inner, columns] + bias[columns]. The weight's element k, j lies at k*down + j*across, row i of x at
    i*stride; both start `offsets` elements into their storages, as the bias does. In bfloat16 `other` may be added, in the layout of out and perhaps out
    itself, from `other_offset` on, and a relu end it."""

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
    other: str | None = None
    other_offset: SizeLike = 0
    clamps: bool = False

    @property
    def pointers(self) -> tuple[str, ...]:
        return (self.x, self.weight, self.out, *(name for name in (self.bias, self.other) if name is not None))

    @property
    def scalars(self) -> tuple[SizeLike, ...]:
        """As the kernel takes them."""
        end = (int(self.other is not None), self.other_offset, int(self.clamps)) if self.dtype == "bfloat16" else ()
        return (self.rows, self.columns, self.inner, self.stride, self.down, self.across, *self.offsets, int(self.bias is not None), *end)


def own_product(step: object, buffers: Mapping[str, Buffer], target: Target) -> OwnProduct | None:
    """The product that a step is, where it is one of ours."""
    product = _matched(step, buffers) if isinstance(step, Extern) and target.kind == "cpu" else None
    paired = PAIRED_PIXELS if isinstance(step, Extern) and step.op.startswith("mkldnn::") else PAIRED_ROWS
    return product if product is not None and _is_worth(product, target, paired) else None


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
        case "mkldnn::_convolution_pointwise", (BufferRef(x), BufferRef(weight), bias, *geometry, 1, ending, (), ""), ():
            return _of_pixels(x, weight, bias, step.outs[0], None, geometry, ending, buffers)
        case "mkldnn::_convolution_pointwise.binary", (BufferRef(x), BufferRef(other), BufferRef(weight), bias, *geometry, 1, "add", 1.0, ending, (), _), ():
            return _of_pixels(x, weight, bias, step.outs[0], other, geometry, ending, buffers)
        case "mkldnn::_convolution_pointwise_.binary", (BufferRef(other), BufferRef(x), BufferRef(weight), bias, *geometry, 1, "add", 1.0, ending, (), _), ():
            return _of_pixels(x, weight, bias, other, other, geometry, ending, buffers)
        case _:
            return None


def _of_pixels(
    x: str, weight: str, bias: object, out: str, other: str | None, geometry: Sequence[object], ending: object, buffers: Mapping[str, Buffer],
) -> OwnProduct | None:
    """A convolution whose window is one pixel, as the product that it is where channels lie innermost. One number each for padding, stride and dilation
    says that the weight is not packed (`graph/patterns/cpu_convolution`)."""
    names = (x, weight, out, *((bias.name,) if isinstance(bias, BufferRef) else ()), *(() if other is None else (other,)))
    if geometry != [(0,), (1,), (1,)] or ending not in ENDINGS or not all(is_plain(name, "bfloat16", buffers) for name in names):
        return None
    a, w, c = buffers[x], buffers[weight], buffers[out]
    if w.sizes[2:] != (1, 1) or w.strides[1] != 1 or c.alias is not None or not all(_has_channels_inside(b) for b in (a, c)):
        return None
    if other is not None and (buffers[other].sizes, buffers[other].strides) != (c.sizes, c.strides):
        return None
    if isinstance(bias, BufferRef) and buffers[bias.name].strides != (1,):
        return None
    (x, at), (weight, start) = place(x, buffers), place(weight, buffers)
    added, begins = (None, 0) if other is None else place(other, buffers)
    biased, first = place(bias.name, buffers) if isinstance(bias, BufferRef) else (None, 0)
    rows = sizes.product((a.sizes[0], *a.sizes[2:]))
    return OwnProduct(x, weight, out, biased, rows, c.sizes[1], a.sizes[1], a.sizes[1], 1, w.strides[0], (at, start, first), "bfloat16",
                      added, begins, ENDINGS[ending])


def _has_channels_inside(b: Buffer) -> bool:
    n, c, h, w = b.sizes
    return len(b.sizes) == 4 and b.strides[1] == 1 and _runs_on((n, h, w), (b.strides[0], *b.strides[2:]), c)


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


def _is_worth(product: OwnProduct, target: Target, paired: range) -> bool:
    """A number of rows that is not known counts as large."""
    rows, columns, inner = product.rows, product.columns, product.inner
    if type(columns) is not int or type(inner) is not int or min(columns, inner) < OWN_SIDE:
        return False
    if product.dtype == "bfloat16" and not (fits_pairs(columns, inner) and product.down == 1 and is_even(product.stride) and is_even(product.across)):
        return False
    count = rows if type(rows) is int else OWN_WORK
    return target.has_own_product(product.dtype, count, count * columns * inner, paired)


def is_even(stride: SizeLike) -> bool:
    return type(stride) is int and stride % 2 == 0
