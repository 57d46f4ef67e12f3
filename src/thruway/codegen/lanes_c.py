"""Lanes: neighbouring points of the last outer axis side by side; results that the row would hold are arrays over the lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thruway.codegen.ctypes_c import register_type
from thruway.codegen.expressions import Emitter
from thruway.codegen.loops_c import SIMD
from thruway.codegen.moments_c import lane_moment_lines
from thruway.codegen.printer import DEEP, Printer, decode, nested
from thruway.codegen.reductions import Accumulator, accumulator, rounded, scan_start, scan_step, scan_type
from thruway.codegen.scope import block, indented
from thruway.codegen.shape import LANES, work_per_row
from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import Axis, Expr, Phase
from thruway.schedule.phases import phase_values

LANES_BLOCK = 256         # rows whose sum is added up apart


class Lanes(Printer):
    def text(self) -> str:
        e = self.emitter()
        lines = self.record()
        lines += self.functions("tiles")
        lines += self.entry(self.launch(e))
        return "\n".join(lines) + "\n"

    @property
    def axis(self) -> Axis:
        return self.kernel.outer[-1]

    def launch(self, e: Emitter) -> list[str]:
        tiles = sizes.floordiv(sizes.add(self.axis.extent, LANES - 1), LANES)
        count = sizes.mul(sizes.product(a.extent for a in self.kernel.outer[:-1]), tiles)
        work = sizes.mul(work_per_row(self.flat), LANES)
        return self.run(f"{self.name}_tiles", count, work, e)

    def functions(self, suffix: str) -> list[str]:
        """The function of one tile, written for any number of lanes and inlined for the full number, and the loop over tiles."""
        outer = self.kernel.outer[:-1]
        e = self.emitter()
        tile = e.scope
        for axis in outer:
            e.set_axis(Symbol(axis.name), axis.name, 0)
        e.set_axis(Symbol(self.axis.name), "(lane0 + j)", DEEP)
        before, after = self.scratch_lines(e, LANES)
        e.lane_rows = {b.name: LANES for b in self.kernel.scratch}
        for phase in self.kernel.phases:
            self.phase(e, phase)
        bad = any("bad |=" in line for line in tile.lines)
        lines = [*before, *(["int bad = 0;"] if bad else []), *tile.lines, *after, *(["if (bad) call->bad = 1;"] if bad else [])]
        arguments = "".join(f", const long {a.name}" for a in outer)
        arguments = f"{self.name}_call *call{arguments}, const long lane0, const long lanes"
        head = f"static inline __attribute__((always_inline)) void {self.name}_{suffix}_one({arguments})"
        return [f"{head} {{", *indented(self.opening("call") + lines), "}", *self.tiles(suffix, outer)]

    def tiles(self, suffix: str, outer: Sequence[Axis]) -> list[str]:
        e = self.emitter()
        extent = e.size(self.axis.extent)
        scope = e.push(deeper=True)
        scope.add(f"const long tiles = ({extent} + {LANES - 1}) / {LANES}, lane0 = item % tiles * {LANES}, outer = item / tiles;")
        decode(e, outer, "outer")
        given = "".join(f", {a.name}" for a in outer)
        call = f"{self.name}_{suffix}_one(context{given}, lane0, "
        scope.add(f"if (lane0 + {LANES} <= {extent}) {call}{LANES}); else {call}{extent} - lane0);")
        e.pop()
        sizes_ = self.size_lines(f"(({self.name}_call *)context)->sizes")
        return [f"static void {self.name}_{suffix}(long lo, long hi, void *context) {{",
                *indented(sizes_ + block("for (long item = lo; item < hi; item++)", scope)), "}"]

    def phase(self, e: Emitter, phase: Phase) -> None:
        found = [accumulator(r) for r in phase.reductions]
        if not phase.inner:
            self.scalars(e, phase)
            return
        self.add_lets(e, phase)
        for acc in found:
            self.declare(e, acc)
        self.inner_loops(e, phase, found, phase.inner)
        for k, one in enumerate(self.flat.moments):
            if self.kernel.phases[one.phase] is phase:
                e.scope.lines += lane_moment_lines(e, self.flat, one, k)
        for r, acc in zip(phase.reductions, found, strict=True):
            wide = f"{r.var}[j]" if acc.type == register_type(acc.dtype) else f"(({register_type(acc.dtype)}){r.var}[j])"
            e.vars[r.var] = (wide if not acc.arg else f"{r.var}_at[j]", DEEP)

    def scalars(self, e: Emitter, phase: Phase) -> None:
        """Values per outer point: kept in arrays, since later loops over the row would compute them for every element."""
        lets = [(let.var, let.value) for let in phase.lets]
        for name, value in lets:
            e.scope.lines.append(f"{register_type(value.dtype)} {name}[{LANES}];")

        def emit() -> None:
            for name, value in lets:
                e.scope.add(f"{name}[j] = {e.emit(value)};")
                e.vars[name] = (f"{name}[j]", DEEP)
            self.stores(e, phase)

        self.lane_loop(e, emit, tuple(phase_values(phase)))

    def lane_loop(self, e: Emitter, emit: Callable[[], None], roots: tuple[Expr, ...]) -> None:
        scope = e.push(deeper=True)
        e.exact = True
        emit()
        e.exact = False
        e.pop()
        bad = " reduction(|:bad)" if any("bad |=" in line for line in scope.lines) else ""
        e.scope.lines += block("for (long j = 0; j < lanes; j++)", scope, SIMD + bad if self.vectorises(roots) else "")

    def declare(self, e: Emitter, acc: Accumulator) -> None:
        kind = scan_type(acc) if self.kernel.scan is not None else acc.type
        start = scan_start(acc) if self.kernel.scan is not None else acc.identity
        e.scope.lines.append(f"{kind} {acc.var}[{LANES}];")
        e.scope.lines.append(f"for (long j = 0; j < {LANES}; j++) {acc.var}[j] = {start};")
        if acc.arg:
            e.scope.lines += [f"long long {acc.var}_at[{LANES}];", f"for (long j = 0; j < {LANES}; j++) {acc.var}_at[j] = 0;"]

    def inner_loops(self, e: Emitter, phase: Phase, found: list[Accumulator], axes: Sequence[Axis]) -> None:
        if len(axes) > 1:
            nested(e, axes[0], lambda: self.inner_loops(e, phase, found, axes[1:]))
            return
        axis = axes[0]
        sums = [a for a in found if a.op == "sum" and a.total_type == "double" and self.kernel.scan is None]
        long = type(axis.extent) is not int or axis.extent > 2 * LANES_BLOCK
        if sums and long:
            self.blocks(e, phase, found, sums, axis)
        else:
            self.column(e, phase, found, axis, "0", e.size(axis.extent), {a.var: a.var for a in found})

    def blocks(self, e: Emitter, phase: Phase, found: list[Accumulator], sums: list[Accumulator], axis: Axis) -> None:
        """Sums over long columns in blocks of rows, so that their rounding errors do not pile up."""
        scope = e.push()
        end = e.size(axis.extent)
        into = {a.var: f"{a.var}_part" if a in sums else a.var for a in found}
        scope.add(f"const long block_end = tw_minl(block + {LANES_BLOCK}, {end});")
        for acc in sums:
            scope.add(f"{acc.type} {acc.var}_part[{LANES}];")
            scope.add(f"for (long j = 0; j < {LANES}; j++) {acc.var}_part[j] = 0;")
        self.column(e, phase, found, axis, "block", "block_end", into)
        for acc in sums:
            scope.add(f"for (long j = 0; j < {LANES}; j++) {acc.var}[j] += {acc.var}_part[j];")
        e.pop()
        e.scope.lines += block(f"for (long block = 0; block < {end}; block += {LANES_BLOCK})", scope)

    def column(self, e: Emitter, phase: Phase, found: list[Accumulator], axis: Axis, lo: str, hi: str, into: dict[str, str]) -> None:
        scope = e.push(deeper=True)
        e.set_axis(Symbol(axis.name), axis.name, scope.level)
        rank = self.flat.ranks[self.kernel.phases.index(phase)]

        def emit() -> None:
            for r, acc in zip(phase.reductions, found, strict=True):
                x = e.emit(r.value)
                if acc.arg:
                    self.take_first(e, acc, x, rank)
                elif self.kernel.scan is not None:
                    e.scope.add(scan_step(acc, f"{acc.var}[j]", x))
                    e.scope.add(f"const {register_type(acc.dtype)} {acc.var}_now = {rounded(acc, f'{acc.var}[j]')};")
                    e.vars[acc.var] = (f"{acc.var}_now", DEEP)
                else:
                    e.scope.add(acc.lane_step(f"{into[acc.var]}[j]", x))
            self.stores(e, phase)

        self.lane_loop(e, emit, tuple(phase_values(phase)))
        e.pop()
        e.set_axis(Symbol(axis.name), axis.name, DEEP)
        e.scope.lines += block(f"for (long {axis.name} = {lo}; {axis.name} < {hi}; {axis.name}++)", scope)

    def take_first(self, e: Emitter, acc: Accumulator, x: str, rank: SizeLike) -> None:
        sign = ">" if acc.op == "max" else "<"
        best = f"{acc.var}[j]"
        hit = f"{x} {sign} {best} || ({x} != {x} && {best} == {best})" if acc.nan_flag else f"{x} {sign} {best}"
        e.scope.add(f"const int {acc.var}_hit = {hit};")
        e.scope.add(f"{best} = {acc.var}_hit ? {x} : {best}; {acc.var}_at[j] = {acc.var}_hit ? {e.size(rank)} : {acc.var}_at[j];")
