"""Largest elements of windows, where the channels lie innermost, so that a loop over them reads every place of the window in order.

A place beyond the edge counts for nothing in eager; here it is read at the edge, which lies in the window anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from thruway.core.dtypes import FLOATS, compute_dtype
from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike, add, maximum, minimum, mul
from thruway.loops.builder import Builder, Tensor, axis_indices, load
from thruway.loops.expressions import cast, op
from thruway.shapes.rules.convolve import spread

FEW_CHANNELS, LARGE_WINDOW = 16, 16


def max_pool2d(b: Builder, self: Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
               dilation: Sequence[int] = (1,), ceil_mode: bool = False) -> Tensor:
    """Later places win only where they are larger, or NaN: zeros of two signs come out as in eager."""
    kernel, pad, apart = (spread(values, 2) for values in (kernel_size, padding, dilation))
    step = spread(stride or kernel, 2)
    if not _is_worth(b, self, kernel) or apart != (1, 1):
        raise Unsupported("TW525", "max pooling other than over dense windows of channels that lie innermost")
    image, channel, *place = axis_indices(4)
    wide = compute_dtype(self.dtype)
    rows, columns = ([_within(add(mul(place[k], step[k]), i - pad[k]), self.sizes[2 + k]) for i in range(kernel[k])] for k in range(2))
    values = [cast(load(self, (image, channel, row, column)), wide) for row in rows for column in columns]
    return b.compute(b.out, reduce(lambda most, value: op("max", value, most), values))


def _within(at: SizeLike, size: SizeLike) -> SizeLike:
    return minimum(maximum(at, 0), add(size, -1))


def _is_worth(b: Builder, x: Tensor, kernel: Sequence[SizeLike]) -> bool:
    if x.rank != 4 or x.dtype not in FLOATS or b.device != "cpu" or any(type(size) is not int for size in (*kernel, x.sizes[1])):
        return False
    return x.sizes[1] >= FEW_CHANNELS and kernel[0] * kernel[1] <= LARGE_WINDOW and x.meta.strides[1] == 1 == b.out.strides[1]


ROWS: dict[str, Callable[..., Tensor]] = {"aten.max_pool2d.default": max_pool2d}
