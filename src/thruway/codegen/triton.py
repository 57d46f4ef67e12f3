"""Prints a loop kernel as Triton source for an NVIDIA GPU.

Takes a `loops.ir.Kernel` with its buffers, gives a `TritonSource`: text that defines one `@triton.jit` function, the order of its
arguments, and what the grid must cover. One program handles X points of the outer axes at a time. While the inner extent of every
phase fits a block (`RESIDENT`), a program keeps whole rows in registers: all phases run over [X, R] tiles and scratch rows never
reach memory. Longer rows are walked R at a time, once per phase. Arithmetic is eager's: float32 where the IR says so, no fused
multiply-add (the launcher passes enable_fp_fusion=False), correctly rounded division and square root.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping

from thruway.codegen.triton_source import RESIDENT, Config, TritonSource
from thruway.codegen.triton_ops import COMBINE, IDENTITY, ONE_PLUS_ERF, TYPES, has_atomic, literal, operator, reduce_call
from thruway.core import sizes
from thruway.core.errors import Unsupported
from thruway.core.launch import FAR
from thruway.core.sizes import FloorDiv, Max, Min, Mod, SizeLike, Symbol
from thruway.loops.ir import (
    Axis,
    Buffer,
    Cast,
    CheckIndex,
    Condition,
    Expr,
    Index,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Op,
    Phase,
    Reduction,
    Store,
    Var,
    Within,
)
from thruway.schedule.depend import root
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import children, is_size, own_sizes, symbols, walk

FULL = 264                  # programs that keep a large GPU busy: two per multiprocessor
ACROSS, ACROSS_FEW = 256, 2048       # and of one that stands across memory, where there are many of them and where there are few
SEGMENT = 8                 # neighbouring points that are read together at least, or most of each sector of memory is read in vain
EARLY = 4096                # rows up to which what later phases read is loaded at the start
SHORT = frozenset({"bfloat16", "float16"})
SCANNED = frozenset({"sum", "prod", "min", "max", "logsumexp"})

HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

"""


def print_kernel(kernel: Kernel, buffers: Mapping[str, Buffer], wide: bool = False) -> TritonSource:
    """The Triton text of one kernel. Unsupported for what Triton cannot do: rows handed over in scratch that do not fit a block.
    `wide`: with 64-bit indices in any case."""
    return Printer(kernel, buffers, wide).source()


class Printer:
    """Prints one kernel. `lines` grow in program order; `names` remembers what is printed already, by expression and mask."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], wide: bool = False):
        self.kernel, self.buffers = kernel, {**buffers, **{b.name: b for b in kernel.scratch}}
        self.scratch = {b.name for b in kernel.scratch}
        self.pointers = tuple(dict.fromkeys((*kernel.reads, *kernel.writes)))
        self.phases = kernel.phases
        self.outer = kernel.outer
        if not self.outer and len(self.phases) == 1 and not self.phases[0].reductions and kernel.scan is None:
            self.outer, self.phases = self.phases[0].inner, (_flattened(self.phases[0]),)
        self.points = sizes.product(a.extent for a in self.outer)
        self.reach = self.reaches()
        self.wide = wide or any(type(n) is int and n >= FAR for n in self.reach)
        self.row = max((sizes.product(a.extent for a in p.inner) for p in self.phases), key=weight, default=1)
        self.has_rows = any(p.inner for p in self.phases)
        self.across = self.stands_across()
        self.resident = type(self.row) is int and self.row <= self.longest_kept()
        self.lines: list[str] = []
        self.names: dict[tuple[object, ...], str] = {}
        self.count = 0
        self.masks: dict[tuple[Axis, ...], str] = {}
        self.rows: dict[str, str] = {}            # scratch buffer → the block that holds it
        self.variables: dict[str, str] = {}
        self.inner_names = {a.name for p in self.phases for a in p.inner}
        self.row_variables = {let.var for p in self.phases if p.inner for let in p.lets if kernel.scan is None}
        self.row_variables |= {r.var for p in self.phases for r in p.reductions if kernel.scan is not None}
        self.stored: dict[tuple[str, tuple[Index, ...]], tuple[str, str]] = {}     # what this program put where, still in registers
        self.written = {root(name, self.buffers) for name in kernel.writes}
        self.reduced: dict[tuple[str, str, str, str], str] = {}    # what is reduced already in these registers, by the first's variable
        self.rough: set[int] = set()              # expressions that are rounded to a short float at once
        self.varying: dict[int, bool] = {}
        self.spread: dict[int, bool] = {}         # the same for points
        self.shared = self.axes_shared()
        self.outer_names = {a.name for a in self.moving_axes()}
        self.of_points: set[str] = set()          # variables and scratch rows that may differ between the points of a program
        self.alive: list[Expr] = []               # keeps the ids in `varying` theirs
        self.checks = False
        self.indent = "    "

    def source(self) -> TritonSource:
        if self.scratch and not self.resident:
            raise Unsupported("TW702", f"rows of {self.row} elements are handed between loops, more than one GPU program keeps")
        if self.kernel.scan is not None and self.phases[0].reductions[0].op not in SCANNED:
            raise Unsupported("TW703", f"a running {self.phases[0].reductions[0].op} has no Triton form")
        self.prologue()
        written: set[str] = set()
        for number, phase in enumerate(self.phases):
            if any(isinstance(x, Load) and root(x.buffer, self.buffers) in written and (x.buffer, x.index) not in self.stored
                   for x in walk(*phase_values(phase))):
                self.emit("tl.debug_barrier()")       # other threads of this program wrote what is read now
            self.phase(phase, number)
            written |= {root(s.buffer, self.buffers) for s in phase.stores if s.buffer not in self.scratch}
        return self.finished(("X", "R") if self.has_rows else ("X",))

    def finished(self, blocks: tuple[str, ...], tiles: tuple[SizeLike, SizeLike, SizeLike] | None = None) -> TritonSource:
        """The lines as a function."""
        names = self.size_names()
        flag = ["flag"] if self.checks else []
        arguments = [f"p{i}" for i in range(len(self.pointers))] + flag + names + [f"{name}: tl.constexpr" for name in blocks]
        comment = "".join(f"# {line}\n" for line in _comment(self.kernel))
        text = f"{HEADER}{COMBINE}\n\n{comment}@triton.jit\ndef {self.kernel.name}({', '.join(arguments)}):\n" + "\n".join(self.lines) + "\n"
        row = self.row if self.has_rows else None
        return TritonSource(self.kernel.name, text, self.pointers, self.checks, tuple(names), self.points, row, self.configs(), tiles, self.wide,
                            tuple(n for n in self.reach if type(n) is not int))

    def size_names(self) -> list[str]:
        axes = {a.name for a in self.outer} | {a.name for p in self.phases for a in p.inner}
        used: set[str] = set()
        for buffer in self.pointers:
            b = self.buffers[buffer]
            for size in (*b.sizes, *(b.strides or ()), b.offset):
                used |= {s.name for s in sizes.symbols(size)}
        for axis in (*self.outer, *(a for p in self.phases for a in p.inner)):
            used |= {s.name for s in sizes.symbols(axis.extent)}
        for size in _sizes_in(self.phases):
            used |= {s.name for s in sizes.symbols(size)}
        return sorted(used - axes)

    def configs(self) -> tuple[Config, ...]:
        """The guesses, with no more points per program than there are."""
        most = power_of_two(self.points) if type(self.points) is int else 1 << 30
        return tuple(dict.fromkeys(Config(max(1, min(c.x, most)), c.r, c.warps) for c in self.guesses()))

    def guesses(self) -> tuple[Config, ...]:
        if not self.has_rows:
            count = weight(self.points)
            block = 1024 if count >= 1 << 20 else 256 if count >= FULL * 256 else 128
            return (Config(block, 1, 4), Config(512, 1, 4), Config(2048, 1, 8), Config(256, 1, 2))
        if not self.resident:
            along = (Config(1, 2048, 8), Config(1, 4096, 16), Config(4, 512, 8), Config(16, 128, 8))
            return along if self.rows_lie_in_memory() else (Config(32, 64, 8), Config(64, 32, 8), *along)
        r = power_of_two(self.row)
        x = max(1, min(8, 2048 // r)) if self.inner_is_contiguous() else max(1, min(64, 4096 // r))
        if self.across:
            x = max(1, min(64, (8192 if r <= ACROSS else RESIDENT) // r))
        least = SEGMENT if self.across else 1
        while x > least and weight(self.points) < FULL * x and self.inner_is_contiguous():
            x //= 2                                # rather more programs than more work for each
        warps = min(16, max(1, r * x // 256 if r * x <= 1024 else r * x // 512))
        others = (Config(max(1, x // 2), r, warps), Config(x * 2, r, min(16, warps * 2)), Config(x, r, min(32, warps * 2)), Config(x, r, max(1, warps // 2)))
        return (Config(x, r, warps), *others)

    def longest_kept(self) -> int:
        """Elements of a row that one program keeps; of rows that stand across memory fewer, so that many can be read side by side."""
        if not self.across or any(p.inner for p in self.phases[1:]):
            return RESIDENT
        return ACROSS_FEW if weight(self.points) <= 32 * FULL else ACROSS

    def stands_across(self) -> bool:
        """Whether rows are read whose elements are not neighbours in memory, while those of neighbouring rows are."""
        return self.kernel.scan is None and bool(self.outer) and self.has_rows and not self.rows_lie_in_memory()

    def rows_lie_in_memory(self) -> bool:
        """Whether a step along the row is the next element of some tensor among those of the most elements that are read."""
        found = [(x, p.inner[-1]) for p in self.phases if p.inner for x in walk(*phase_values(p))
                 if isinstance(x, Load) and x.buffer not in self.scratch and all(map(is_size, x.index))]
        extents = {Symbol(a.name): weight(a.extent) for a in (*self.outer, *(a for p in self.phases for a in p.inner))}
        weights = [math.prod(extents.get(s, 1) for s in {s for i in x.index for s in sizes.symbols(i)}) for x, _ in found]
        return any(self.is_next(x, last) for (x, last), weight in zip(found, weights) if 2 * weight >= max(weights))

    def is_next(self, x: Load, axis: Axis) -> bool:
        """Whether a step along `axis` is the next element in memory."""
        place = sizes.add(0, sum((sizes.mul(i, n) for i, n in zip(x.index, self.buffers[x.buffer].strides or ())), start=0))
        return sizes.add(sizes.substitute(place, {Symbol(axis.name): sizes.add(axis.index, 1)}), sizes.mul(place, -1)) == 1

    def inner_is_contiguous(self) -> bool:
        """Whether some load or store runs along the inner axis with stride 1."""
        for phase in self.phases:
            if phase.inner:
                last = phase.inner[-1].index
                for name in self.pointers:
                    if (self.buffers[name].strides or (0,))[-1:] == (1,):
                        return last is not None
        return False

    # --- structure

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def prologue(self) -> None:
        shape = "" if not self.has_rows else "[:, None]"
        wide = self.widened()
        self.emit(f"x = (tl.program_id(0){wide} * X + tl.arange(0, X)){shape}")
        self.emit(f"xm = {self.below('x', self.points, max(c.x for c in self.configs()), '[X, 1]' if self.has_rows else '[X]')}")
        if self.shared:
            self.emit(f"s = tl.program_id(0){wide} * X // {self.size(sizes.product(a.extent for a in self.moving_axes()))}")
            self.decode(self.shared, "s")
            self.emit(f"f = x % {self.size(sizes.product(a.extent for a in self.moving_axes()))}")
            self.decode(self.moving_axes(), "f")
        else:
            self.decode(self.outer, "x")
        if self.has_rows and self.resident:
            self.emit(f"r = tl.arange(0, R)[None, :]{self.widened()}")

    def axes_shared(self) -> tuple[Axis, ...]:
        """Leading outer axes that are the same for all points of a program, where some row hangs on them alone: it is had once."""
        most = max(c.x for c in self.configs())
        ends = [k for k in range(1, len(self.outer)) if self.ends_together(self.outer[k:], most)]
        moving = {a.name for a in self.outer[ends[-1]:]} if ends else set()
        if not moving or not self.resident or not any(not {s.name for s in symbols(r.value)} & moving for p in self.phases if p.inner for r in p.reductions):
            return ()
        return self.outer[:ends[-1]]

    def ends_together(self, axes: tuple[Axis, ...], step: int) -> bool:
        """Whether blocks of up to `step` points never reach over the end of these axes."""
        extent = sizes.product(a.extent for a in axes)
        return type(extent) is int and extent > 0 and extent % step == 0

    def moving_axes(self) -> tuple[Axis, ...]:
        return self.outer[len(self.shared):]

    def below(self, name: str, extent: SizeLike, step: int, shape: str) -> str:
        """The mask `name` < `extent`; all of it where blocks of up to `step` end there."""
        return f"tl.full({shape}, 1, tl.int1)" if type(extent) is int and extent > 0 and extent % step == 0 else f"{name} < {self.size(extent)}"

    def widened(self) -> str:
        """What stands behind indices that are not computed from others."""
        return ".to(tl.int64)" if self.wide else ""

    def reaches(self) -> tuple[SizeLike, ...]:
        """How far indices count: over the points, along the rows, and to the last element of each tensor."""
        rows = [sizes.product(a.extent for a in p.inner) for p in self.phases]
        return tuple(dict.fromkeys((self.points, *rows, *(_span(self.buffers[name]) for name in self.pointers))))

    def decode(self, axes: tuple[Axis, ...], flat: str) -> None:
        """Each axis's index from the flattened one, last axis fastest."""
        rest = flat
        for axis in reversed(axes[1:]):
            self.emit(f"{axis.name} = {rest} % {self.size(axis.extent, True)}")
            self.emit(f"{flat}_{axis.name} = {rest} // {self.size(axis.extent, True)}")
            rest = f"{flat}_{axis.name}"
        if axes:
            self.emit(f"{axes[0].name} = {rest}")

    def phase(self, phase: Phase, number: int) -> None:
        if not phase.inner:
            self.body(phase, "xm")
            return
        extent = sizes.product(a.extent for a in phase.inner)
        if not self.resident:
            self.looped(phase, extent, number)
            self.names.clear()                    # values over this walk's block mean nothing in the next
            return
        if phase.inner not in self.masks:         # phases over the same axes share what they have loaded
            self.masks[phase.inner] = f"rm{number}"
            self.emit(f"row{number} = {self.below('r', extent, power_of_two(weight(extent)), '[1, R]')}")
            self.emit(f"rm{number} = xm & row{number}")
            self.decode(phase.inner, "r")
            if number == 0 and len(self.phases) > 1 and self.row <= EARLY:
                self.load_early()
        self.body(phase, self.masks[phase.inner])

    def load_early(self) -> None:
        """Starts the loads of later phases before the first reduction waits: their latencies then pass side by side."""
        for phase in self.phases[1:]:
            mask = self.masks.get(phase.inner)
            for value in phase_values(phase) if mask else ():
                for load in _certain_loads(value):
                    if load.buffer not in self.scratch and root(load.buffer, self.buffers) not in self.written:
                        self.value(load, mask)

    def body(self, phase: Phase, mask: str) -> None:
        for let in phase.lets:
            self.let(let, mask)
        for reduction in phase.reductions:
            if self.kernel.scan is not None:
                self.scan_block(reduction, mask)
            else:
                self.reduce_block(reduction, mask)
        for store in phase.stores:
            self.store(store, mask)

    def let(self, let: Let, mask: str) -> None:
        self.variables[let.var] = self.value(let.value, mask)
        if self.varies_over_points(let.value):
            self.of_points.add(let.var)

    def reduce_block(self, reduction: Reduction, mask: str) -> None:
        value = self.value(reduction.value, mask)
        if self.varies_over_points(reduction.value):
            self.of_points.add(reduction.var)
        else:
            mask = f"row{mask[2:]}"
        same = self.reduced.setdefault((reduction.op, reduction.dtype, value, mask), reduction.var)
        if same != reduction.var:
            self.variables[reduction.var] = self.variables[same]
            return
        identity = IDENTITY(reduction.op, reduction.value.dtype if reduction.op in ("argmin", "argmax") else reduction.dtype)
        self.emit(f"{reduction.var} = {reduce_call(reduction.op, f'tl.where({mask}, {self.cast_text(value, reduction)}, {identity})', 'r')}")
        self.variables[reduction.var] = reduction.var

    def scan_block(self, scan: Reduction, mask: str) -> None:
        """Running results along the block, after those of the blocks before."""
        value = self.cast_text(self.value(scan.value, mask), scan)
        self.emit(f"{scan.var} = tl.associative_scan(tl.where({mask}, {value}, {IDENTITY(scan.op, scan.dtype)}).to({TYPES[scan.dtype]}), 1, tw_{scan.op})")
        self.variables[scan.var] = scan.var
        self.of_points.add(scan.var)

    def cast_text(self, value: str, reduction: Reduction) -> str:
        if reduction.op in ("argmin", "argmax"):
            return value
        return f"{value}.to({TYPES[reduction.dtype]})"

    def looped(self, phase: Phase, extent: SizeLike, number: int) -> None:
        """Walks the row R elements at a time; partial results stand in [X, R] accumulators until the end."""
        if self.kernel.scan is not None:
            return self.looped_scan(phase, phase.reductions[0], extent)
        for reduction in phase.reductions:
            finds_place = reduction.op in ("argmin", "argmax")
            kind = reduction.value.dtype if finds_place else reduction.dtype
            self.emit(f"{reduction.var}_acc = tl.full([X, R], {IDENTITY(reduction.op, kind)}, {TYPES[kind]})")
            if finds_place:
                self.emit(f"{reduction.var}_at = tl.full([X, R], 9223372036854775807, tl.int64)")
        self.emit(f"for start in range(0, {self.size(extent)}, R):")
        self.indent += "    "
        self.emit(f"r = start + tl.arange(0, R)[None, :]{self.widened()}")
        mask = f"rm{number}"
        self.emit(f"row{number} = {self.below('r', extent, max(c.r for c in self.configs()), '[1, R]')}")
        self.emit(f"{mask} = xm & row{number}")
        self.names.clear()
        self.decode(phase.inner, "r")
        for let in phase.lets:
            self.let(let, mask)
        for reduction in phase.reductions:
            self.accumulate(reduction, mask)
        for store in phase.stores:
            self.store(store, mask)
        self.indent = self.indent[:-4]
        for reduction in phase.reductions:
            self.of_points.add(reduction.var)     # its accumulator has the block's shape
            index = f"{reduction.var}_at" if reduction.op in ("argmin", "argmax") else "r"
            self.emit(f"{reduction.var} = {reduce_call(reduction.op, f'{reduction.var}_acc', index)}")
            self.variables[reduction.var] = reduction.var

    def looped_scan(self, phase: Phase, scan: Reduction, extent: SizeLike) -> None:
        """A scan over blocks: each goes on from the last element of the one before."""
        kind = TYPES[scan.dtype]
        self.emit(f"carry = tl.full([X, 1], {IDENTITY(scan.op, scan.dtype)}, {kind})")
        self.emit(f"for start in range(0, {self.size(extent)}, R):")
        self.indent += "    "
        self.emit(f"r = start + tl.arange(0, R)[None, :]{self.widened()}")
        self.emit(f"row0 = r < {self.size(extent)}")
        self.emit("rm0 = xm & row0")
        self.names.clear()
        self.decode(phase.inner, "r")
        self.scan_block(scan, "rm0")
        self.emit(f"{scan.var} = tw_{scan.op}(carry, {scan.var})")
        self.emit(f"carry = tl.sum(tl.where(r == start + R - 1, {scan.var}, 0).to({kind}), 1, keep_dims=True).to({kind})")
        for store in phase.stores:
            self.store(store, "rm0")
        self.indent = self.indent[:-4]

    def accumulate(self, reduction: Reduction, mask: str) -> None:
        value, acc = self.value(reduction.value, mask), f"{reduction.var}_acc"
        if reduction.op in ("argmin", "argmax"):
            at = f"{reduction.var}_at"
            self.emit(f"{reduction.var}_n, {reduction.var}_i = tw_{reduction.op}({acc}, {at}, {value}, r.to(tl.int64) + tl.zeros([X, R], tl.int64))")
            self.emit(f"{acc} = tl.where({mask}, {reduction.var}_n, {acc})")
            self.emit(f"{at} = tl.where({mask}, {reduction.var}_i, {at})")
            return
        self.emit(f"{acc} = tl.where({mask}, tw_{reduction.op}({acc}, {self.cast_text(value, reduction)}), {acc})")

    def store(self, store: Store, mask: str) -> None:
        value = self.value(store.value, mask)
        if store.buffer in self.scratch:
            self.rows[store.buffer] = value
            if self.varies_over_points(store.value):
                self.of_points.add(store.buffer)
            return
        buffer = self.buffers[store.buffer]
        where = self.address(store.buffer, store.index, mask)
        if not self.spans_block(store.index, mask):
            where = f"{where} + ({mask}).to(tl.int32) * 0"
        value = self.named(f"{value}.to({TYPES[buffer.dtype]})")
        self.forget(store.buffer)
        inside = self.inside(store, mask)
        match store.mode:
            case "set":
                if self.resident or not self.has_rows:
                    self.stored[store.buffer, store.index] = mask, value
                self.emit(f"tl.store({where}, {value}, mask={inside})")
            case "add" | "min" | "max" if has_atomic(store.mode, buffer.dtype):
                self.emit(f"tl.atomic_{store.mode}({where}, {value}, mask={inside})")
            case _:
                raise Unsupported("TW704", f"writing {buffer.dtype} with {store.mode} at computed places has no atomic on the GPU")

    # --- expressions

    def value(self, expr: Expr, mask: str) -> str:
        """The name that holds `expr` under `mask`; a load of memory that this kernel does not write is done once, and what is
        the same along the row is had once per row."""
        if mask.startswith("rm") and not self.varies_along_row(expr):
            mask = "xm"
        elif mask.startswith("rm") and not self.varies_over_points(expr):
            mask = f"row{mask[2:]}"
        stable = not isinstance(expr, Load) or expr.buffer not in self.kernel.writes
        rough = id(expr) in self.rough
        key = (expr, mask, rough)
        if stable and key in self.names:
            return self.names[key]
        name = self.named(self.expression(expr, mask))
        self.names[key] = name
        return name

    def varies_along_row(self, expr: Expr) -> bool:
        """Whether the value may differ between elements of one row."""
        known = self.varying.get(id(expr))
        if known is None:
            match expr:
                case Var(name):
                    known = name in self.row_variables
                case Load(buffer):
                    known = buffer in self.scratch
                case _:
                    known = False
            known = known or any(s.name in self.inner_names for size in own_sizes(expr) for s in sizes.symbols(size))
            known = known or any(self.varies_along_row(x) for x in children(expr))
            self.varying[id(expr)] = known
            self.alive.append(expr)
        return known

    def varies_over_points(self, expr: Expr) -> bool:
        """Whether the value may differ between the points of one program."""
        known = self.spread.get(id(expr))
        if known is None:
            name = expr.name if isinstance(expr, Var) else expr.buffer if isinstance(expr, Load) else ""
            known = name in self.of_points or isinstance(expr, CheckIndex)
            known = known or any(s.name in self.outer_names for size in own_sizes(expr) for s in sizes.symbols(size))
            known = known or any(self.varies_over_points(x) for x in children(expr))
            self.spread[id(expr)] = known
            self.alive.append(expr)
        return known

    def round_at_once(self, expr: Expr) -> None:
        """Marks `expr`, whose result is rounded to a short float, and what feeds it without cancellation: a few units in float32's
        last place do not show."""
        if not isinstance(expr, Op) or id(expr) in self.rough:
            return
        self.rough.add(id(expr))
        self.alive.append(expr)
        if expr.name in ("div", "mul", "neg") or (expr.name == "add" and all(map(_is_positive, expr.args))):
            for x in expr.args:
                self.round_at_once(x)

    def named(self, text: str) -> str:
        if text.isidentifier():
            return text
        self.count += 1
        name = f"e{self.count}"
        self.emit(f"{name} = {text}")
        return name

    def expression(self, expr: Expr, mask: str) -> str:
        rough = id(expr) in self.rough
        match expr:
            case Literal(value, dtype):
                return literal(value, dtype)
            case Var(name, _):
                return self.variables[name]
            case Load(buffer, index, dtype):
                return self.load(buffer, index, dtype, mask)
            case IndexValue(size, dtype):
                return f"tl.cast({self.number(size)}, {TYPES[dtype]})"
            case Op("add", (Literal(1.0), Op("erf", (x,))), "float32") if rough:
                return ONE_PLUS_ERF.format(self.value(x, mask))
            case Op(name, args, dtype):
                return operator(name, [self.value(a, mask) for a in args], [a.dtype for a in args], dtype, rough)
            case Cast(x, dtype):
                if dtype in SHORT and x.dtype == "float32":
                    self.round_at_once(x)
                return self.cast(self.value(x, mask), x.dtype, dtype)
            case Within(conditions, then, other, _):
                return self.within(conditions, then, other, mask)
            case CheckIndex():
                return self.check_index(expr, mask)
            case _:
                raise TypeError(f"no Triton text for {expr!r}")

    def cast(self, value: str, source: str, target: str) -> str:
        if source == target:
            return value
        if target == "bool":
            return f"({value} != 0)"
        return f"tl.cast({value}, {TYPES[target]})"

    def load(self, buffer: str, index: tuple[Index, ...], dtype: str, mask: str) -> str:
        if buffer in self.scratch:
            return self.rows[buffer]
        known = self.stored.get((buffer, index))
        if known is not None and known[0] == mask:
            return known[1]
        text = f"tl.load({self.address(buffer, index, mask)}, mask={mask}, other=0)"
        return f"({text} != 0)" if dtype == "bool" else text

    def address(self, buffer: str, index: tuple[Index, ...], mask: str) -> str:
        b = self.buffers[buffer]
        total: SizeLike = b.offset if b.alias is not None else 0
        computed = []
        for coordinate, stride, extent in zip(index, b.strides or (), b.sizes, strict=True):
            if isinstance(coordinate, int | sizes.Size):
                total = sizes.add(total, sizes.mul(coordinate, stride))
            else:
                computed.append(f"{self.bounded(coordinate, extent, mask)} * {self.size(stride, True)}")
        text = " + ".join([self.size(total), *computed])
        spread = f" + {self.spread_text(mask)}" if self.is_uniform(total, computed) else ""
        return f"p{self.pointers.index(buffer)} + ({text}){spread}"

    def bounded(self, coordinate: Expr, extent: SizeLike, mask: str) -> str:
        """A computed coordinate, kept inside: the check of an earlier kernel has only raised the flag, and nobody waited for it."""
        name = self.value(coordinate, mask)
        return name if isinstance(coordinate, CheckIndex) else self.named(f"tl.minimum(tl.maximum({name}, 0), {self.size(extent, True)} - 1)")

    def inside(self, store: Store, mask: str) -> str:
        """`mask`, without the elements whose computed place lies outside."""
        unchecked = [(i, n) for i, n in zip(store.index, self.buffers[store.buffer].sizes) if not is_size(i) and not isinstance(i, CheckIndex)]
        names = [(self.value(i, mask), self.size(n, True)) for i, n in unchecked]
        return " & ".join([mask, *(f"({name} >= 0) & ({name} < {size})" for name, size in names)])

    def is_uniform(self, total: SizeLike, computed: list[str]) -> bool:
        """Whether an address is the same for the whole block, so that it must be spread to the block's shape."""
        return not computed and not any(s.name in self.outer_names | self.inner_names for s in sizes.symbols(total))

    def spread_text(self, mask: str) -> str:
        """Zeros in the shape of the block."""
        return "x * 0"

    def within(self, conditions: tuple[Condition, ...], then: Expr, other: Expr, mask: str) -> str:
        tests = " & ".join(f"(({self.size(c.left)}) >= 0) & (({self.size(c.left)}) < ({self.size(c.right)}))" for c in conditions)
        inside, outside = self.mask_name(f"{mask} & {tests}"), self.mask_name(f"{mask} & ~({tests})")
        return f"tl.where({inside}, {self.value(then, inside)}, {self.value(other, outside)})"

    def mask_name(self, text: str) -> str:
        key = text, "mask"
        if key not in self.names:
            self.names[key] = f"m{len(self.lines)}"
            self.emit(f"{self.names[key]} = {text}")
        return self.names[key]

    def forget(self, buffer: str) -> None:
        """What was stored in the memory of `buffer` may have changed."""
        memory = root(buffer, self.buffers)
        self.stored = {key: value for key, value in self.stored.items() if root(key[0], self.buffers) != memory}

    def spans_block(self, index: tuple[Index, ...], mask: str) -> bool:
        """Whether places surely differ along every axis of the block, so that their text has the block's shape."""
        computed = [x for x in walk(*(i for i in index if not is_size(i)))]
        own = {s.name for i in (*(i for i in index if is_size(i)), *(z for x in computed for z in own_sizes(x))) for s in sizes.symbols(i)}
        rows = mask == "xm" or bool(own & self.inner_names)
        return rows and bool(own & {a.name for a in self.outer})

    def check_index(self, check: CheckIndex, mask: str) -> str:
        self.checks = True
        value, size = self.value(check.x, mask), self.size(check.size, True)
        if check.wrap:
            value = self.named(f"tl.where({value} < 0, {value} + {size}, {value})")
        bad = self.mask_name(f"({value} < 0) | ({value} >= {size})")
        self.emit(f"tl.store(flag + ({mask}).to(tl.int32) * 0, 1, mask={mask} & {bad})")
        return f"tl.where({bad}, 0, {value})"

    def size(self, size: SizeLike, grouped: bool = False) -> str:
        """Triton text of an integer size. Its // and % are C's, so those of what may be negative are written out."""
        text = sizes.show(size, _show_atom)
        return f"({text})" if grouped and not text.isalnum() else text

    def number(self, size: SizeLike) -> str:
        """Text of a size that is a value, which unlike a place in memory may pass 32 bits where all indices stay below."""
        if self.wide or type(size) is int or sizes.as_symbol(size) is not None or self.is_short(size):
            return self.size(size)
        return sizes.show(size, functools.partial(_show_atom, symbol="{}.to(tl.int64)"))

    def is_short(self, size: sizes.Size) -> bool:
        """Whether 32 bits surely hold a sum of products of indices."""
        ranges = {Symbol(a.name): (0, a.extent - 1) for a in (*self.outer, *(a for p in self.phases for a in p.inner)) if type(a.extent) is int}
        low, high = sizes.bounds(size, ranges)
        plain = all(isinstance(atom, Symbol) for monomial in size.terms for atom in monomial)
        return plain and low is not None and high is not None and -FAR < low and high < FAR


def _show_atom(node, symbol: str = "{}") -> str:
    show = functools.partial(sizes.show, print_atom=functools.partial(_show_atom, symbol=symbol))
    match node:
        case Symbol(name):
            return symbol.format(name)
        case FloorDiv(left, right):
            a, b = show(left), show(right)
            return f"(({a} - {_remainder(a, b)}) // ({b}))" if _may_be_negative(left) else f"(({a}) // ({b}))"
        case Mod(left, right):
            a, b = show(left), show(right)
            return _remainder(a, b) if _may_be_negative(left) else f"(({a}) % ({b}))"
        case Max(left, right):
            return f"tl.maximum({show(left)}, {show(right)})"
        case Min(left, right):
            return f"tl.minimum({show(left)}, {show(right)})"
        case _:
            raise TypeError(f"not an atom of a size: {node!r}")


def _is_positive(x: Expr) -> bool:
    return isinstance(x, Literal) and x.value > 0 or isinstance(x, Op) and x.name in ("exp", "exp2", "sigmoid")


def _certain_loads(expr: Expr) -> Iterator[Load]:
    """Loads that are evaluated wherever `expr` is, at places that need no computing."""
    match expr:
        case Load(_, index) if all(is_size(i) for i in index):
            yield expr
        case Op(_, args):
            for x in args:
                yield from _certain_loads(x)
        case Cast(x):
            yield from _certain_loads(x)
        case _:
            return


def _remainder(a: str, b: str) -> str:
    """Python's a % b for b > 0 in words of C's."""
    return f"((({a}) % ({b}) + ({b})) % ({b}))"


def _may_be_negative(size: SizeLike) -> bool:
    return size < 0 if type(size) is int else any(factor < 0 for factor in size.terms.values())


def _sizes_in(phases: tuple[Phase, ...]) -> Iterator[SizeLike]:
    """Every size that the phases' expressions and stores mention."""
    for x in walk(*(value for phase in phases for value in phase_values(phase))):
        yield from own_sizes(x)
    for phase in phases:
        yield from (i for s in phase.stores for i in s.index if is_size(i))


def _flattened(phase: Phase) -> Phase:
    return Phase((), phase.lets, (), phase.stores)


def weight(size: SizeLike) -> int:
    """A size for ranking: the number, or a large one where it is not known."""
    return size if type(size) is int else FAR - 1


def _span(buffer: Buffer) -> SizeLike:
    """Elements from the beginning of its memory to the last one, as addresses count them."""
    total = buffer.offset if buffer.alias is not None else 0
    for size, stride in zip(buffer.sizes, buffer.strides or ()):
        total = sizes.add(total, sizes.mul(sizes.add(size, -1), stride))
    return sizes.add(total, 1)


def power_of_two(n: int) -> int:
    return 1 << max(0, (n - 1).bit_length())


def _comment(kernel: Kernel) -> list[str]:
    """Graph nodes and user lines that the kernel comes from."""
    lines = []
    for origin in kernel.origin:
        where = f"  ({origin.line})" if origin.line else ""
        lines.append(", ".join(origin.nodes) + where)
    return list(dict.fromkeys(line for line in lines if line.strip()))
