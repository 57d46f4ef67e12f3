"""Prints a kernel that sums products of two factors as a matrix product on tensor cores.

Same input and output as `triton.print_kernel`, for kernels of the form `product_of` knows: one phase that sums products over the inner axes,
then one that does anything with the sums at each point. A program makes a tile of X rows and R columns, D inner elements at a time. The
factors may be any expressions (what stood before the product), and several products may share their axes. Sums run in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from thruway.codegen.triton import Printer, weight
from thruway.codegen.triton_source import Config, TritonSource, tile_count
from thruway.codegen.triton_ops import TYPES
from thruway.core import sizes
from thruway.core.dtypes import ITEMSIZE
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import Axis, Buffer, Expr, Index, Kernel, Load, Phase, Var
from thruway.schedule.products import Factors, factors
from thruway.schedule.rewrite import is_size, loads, map_expressions, substitute, symbols, walk

ABREAST = 8                    # rows of tiles that run at once, so that they find each other's columns in the cache
LARGEST_SIDE, DEPTH = 128, 64  # of a tile at most; what inner extents are a multiple of, or each step is masked
TURNED = "t_"                  # inner axes as they run down the second factor
# By falling area, the deepest first.
FEW = (
    Config(16, 128, 4, 64, 4), Config(16, 64, 4, 128, 3), Config(16, 32, 2, 256, 3), Config(16, 32, 4, 128, 4), Config(16, 16, 4, 256, 3),
    Config(16, 16, 2, 64, 4),
)
MANY = (
    Config(128, 128, 8, 64, 4), Config(128, 64, 4, 64, 4), Config(64, 128, 4, 64, 4), Config(64, 64, 4, 128, 3), Config(64, 64, 4, 64, 5),
    Config(64, 32, 4, 128, 4), Config(32, 64, 4, 128, 4), Config(32, 32, 4, 128, 4), Config(32, 32, 4, 64, 4), Config(16, 32, 4, 128, 4),
    Config(16, 32, 4, 64, 4),
)
MOST_CONFIGS = 6
SHARED_BYTES, ACCUMULATORS = 200_000, 128          # of a program, and registers of a thread
FULL = 96                      # tiles that keep most multiprocessors of a large GPU busy: 96 of 64 by 32 beat 192 of 32 by 32


def product_of(kernel: Kernel) -> tuple[Factors, ...] | None:
    """The factors of each reduction, where the kernel is a product over the same rows and columns and what becomes of it."""
    if kernel.scan is not None or kernel.scratch or not kernel.phases or len(kernel.phases) > 2:
        return None
    first, *rest = kernel.phases
    if not first.inner or first.stores or not first.reductions or any(p.inner for p in rest) or any(r.op != "sum" for r in first.reductions):
        return None
    values = {let.var: let.value for let in first.lets}

    def in_full(x: Expr) -> Expr:
        return map_expressions(x, lambda y: in_full(values[y.name]) if isinstance(y, Var) and y.name in values else y)

    found = [factors(in_full(r.value), kernel.outer) for r in first.reductions]
    if any(f is None or (f.rows, f.columns) != (found[0].rows, found[0].columns) for f in found):
        return None
    return tuple(f for f in found if f is not None)


def print_product(kernel: Kernel, buffers: Mapping[str, Buffer], products: tuple[Factors, ...], wide: bool = False) -> TritonSource:
    return ProductPrinter(kernel, buffers, products, wide).product()


class ProductPrinter(Printer):
    """Masks: `am` and `bm` over the tiles of the factors, `xm` over the tile of the result, `wm` over its rows, `cm` over its columns."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], products: tuple[Factors, ...], wide: bool = False):
        super().__init__(kernel, buffers, wide)
        self.products = products
        one = products[0]
        self.row_axes, self.column_axes, self.batch_axes = (
            tuple(a for a in kernel.outer if a.name in names) for names in (one.rows, one.columns, one.batch))
        self.rows, self.columns, self.batch = (sizes.product(a.extent for a in axes) for axes in (self.row_axes, self.column_axes, self.batch_axes))
        self.depth = sizes.product(a.extent for a in kernel.phases[0].inner)
        self.resident, self.has_rows = False, False
        self.moving = {a.name for a in (*self.row_axes, *self.column_axes)} | self.inner_names | {TURNED + name for name in self.inner_names}

    def product(self) -> TritonSource:
        self.tiles()
        for k, _ in enumerate(self.products):
            self.emit(f"acc{k} = tl.zeros([X, R], tl.float32)")
        self.emit(f"for start in range(0, {self.size(self.depth)}, D):")
        self.indent += "    "
        self.multiply()
        self.indent = self.indent[:-4]
        self.names.clear()
        self.variables |= {r.var: f"acc{k}" for k, r in enumerate(self.kernel.phases[0].reductions)}
        for phase in self.kernel.phases[1:]:
            self.body(Phase((), phase.lets, (), phase.stores), "xm")
        return self.finished(("X", "R", "D"), (self.batch, self.rows, self.columns))

    def tiles(self) -> None:
        """Which tile: those that share columns run soon after one another."""
        wide = self.widened()
        self.emit(f"down, across = ({self.size(self.rows)} + X - 1) // X, ({self.size(self.columns)} + R - 1) // R")
        self.emit("tile = tl.program_id(0) % (down * across)")
        self.emit(f"first = tile // ({ABREAST} * across) * {ABREAST}")
        self.emit(f"height = tl.minimum(down - first, {ABREAST})")
        self.emit(f"at = tile % ({ABREAST} * across)")
        self.emit(f"m = ((first + at % height){wide} * X + tl.arange(0, X))[:, None]")
        self.emit(f"n = ((at // height){wide} * R + tl.arange(0, R))[None, :]")
        self.emit(f"z = tl.program_id(0){wide} // (down * across)")
        self.emit(f"wm = {self.below('m', self.rows, LARGEST_SIDE, '[X, 1]')}")
        self.emit(f"cm = {self.below('n', self.columns, LARGEST_SIDE, '[1, R]')}")
        self.emit("xm = wm & cm")
        for axes, flat in ((self.row_axes, "m"), (self.column_axes, "n"), (self.batch_axes, "z")):
            self.decode(axes, flat)

    def multiply(self) -> None:
        inner = self.kernel.phases[0].inner
        turned = tuple(replace(a, name=TURNED + a.name) for a in inner)
        self.emit(f"k = start + tl.arange(0, D)[None, :]{self.widened()}")
        self.emit(f"t = start + tl.arange(0, D)[:, None]{self.widened()}")
        self.emit(f"am = wm & ({self.below('k', self.depth, DEPTH, '[1, D]')})")
        self.emit(f"bm = cm & ({self.below('t', self.depth, DEPTH, '[D, 1]')})")
        self.names.clear()
        self.decode(inner, "k")
        self.decode(turned, "t")
        renamed = {Symbol(a.name): b.index for a, b in zip(inner, turned)}
        for number, each in enumerate(self.products):
            left = self.factor(each.left, "am", "[X, D]")
            right = self.factor(substitute(each.right, renamed), "bm", "[D, R]")
            self.emit(f"acc{number} = tl.dot({left}, {right}, acc{number})")

    def factor(self, expr: Expr, mask: str, shape: str) -> str:
        """A tile of one factor, 0 behind the end of the inner axes."""
        name = self.value(expr, mask)
        if not isinstance(expr, Load) and not self.whole_steps():
            name = self.named(f"tl.where({mask}, {name}, 0)")
        return self.named(f"tl.broadcast_to({name}.to({TYPES[expr.dtype]}), {shape})")

    def whole_steps(self) -> bool:
        return type(self.depth) is int and self.depth % DEPTH == 0

    # --- where the plain printer thinks in points and rows

    def value(self, expr: Expr, mask: str) -> str:
        """What does not move with both sides of the result is had once per row or column."""
        if mask == "xm" and not any(isinstance(x, Var) for x in walk(expr)):
            names = {s.name for s in symbols(expr)}
            if not names & {a.name for a in self.row_axes}:
                mask = "cm"
            elif not names & {a.name for a in self.column_axes}:
                mask = "wm"
        return super().value(expr, mask)

    def axes_shared(self) -> tuple[Axis, ...]:
        return ()

    def is_uniform(self, total: SizeLike, computed: list[str]) -> bool:
        return not computed and not any(s.name in self.moving for s in sizes.symbols(total))

    def spread_text(self, mask: str) -> str:
        return f"({mask}).to(tl.int32) * 0"

    def spans_block(self, index: tuple[Index, ...], mask: str) -> bool:
        own = {s.name for i in index if is_size(i) for s in sizes.symbols(i)}
        return bool(own & {a.name for a in self.row_axes}) and bool(own & {a.name for a in self.column_axes})

    def guesses(self) -> tuple[Config, ...]:
        """The largest tile of which there are enough to keep the GPU busy, else the smallest; then those nearest to it in size."""
        listed = FEW if weight(self.rows) <= 16 else MANY
        steps = [c for c in listed if not self.whole_steps() or self.depth % c.depth == 0]
        fits = [c for c in steps if self.shared_bytes(c) <= SHARED_BYTES and len(self.products) * c.x * c.r <= ACCUMULATORS * 32 * c.warps] or steps[-1:]
        best = next((c for c in fits if weight(self.tile_count(c)) >= FULL), min(fits, key=lambda c: c.x * c.r))
        return tuple(sorted(fits, key=lambda c: (c != best, abs(math.log2(c.x * c.r / best.x / best.r)))))[:MOST_CONFIGS]

    def shared_bytes(self, config: Config) -> int:
        """Shared memory for what the loads of a few steps bring."""
        sides = ((config.x, {x for each in self.products for x in loads(each.left)}), (config.r, {x for each in self.products for x in loads(each.right)}))
        return config.stages * config.depth * sum(side * ITEMSIZE[x.dtype] for side, found in sides for x in found)

    def configs(self) -> tuple[Config, ...]:
        return self.guesses()

    def tile_count(self, config: Config) -> SizeLike:
        return tile_count((self.batch, self.rows, self.columns), config)
