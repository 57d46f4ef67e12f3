"""The kernels of a graph for the sizes of a call: with 32-bit indices, and once these do not reach, with 64-bit ones.

Indices of 64 bits cost a kernel time, so a graph whose sizes change starts without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from thruway.core.errors import CompilerBug, Unsupported
from thruway.core.launch import FAR, GpuKernel
from thruway.core.sizes import SizeLike, evaluate
from thruway.native import RegionFailed

Kernels = Mapping[str, GpuKernel]


class SizedKernels:
    """`usual` holds while each size of `reach` stays below FAR; `widen` makes the kernels that replace it there, once."""

    def __init__(self, usual: Kernels, reach: Sequence[SizeLike] = (), widen: Callable[[], Sequence[GpuKernel]] = tuple):
        self.usual, self.reach, self.widen = usual, reach, widen
        self.wide: Kernels | None = None

    def __call__(self, values: Mapping[str, int]) -> Kernels:
        """The kernels by symbol where the size symbols have these values. RegionFailed where they cannot be had."""
        if all(evaluate(size, values) < FAR for size in self.reach):
            return self.usual
        if self.wide is None:
            try:
                self.wide = {kernel.symbol: kernel for kernel in self.widen()}
            except (Unsupported, CompilerBug) as error:
                raise RegionFailed(error) from error
        return self.wide
