"""Rows: outer points in order; in each, the phases one after the other, each with its last loop vectorised."""

from __future__ import annotations

from collections.abc import Sequence

from thruway.codegen.ctypes_c import register_type
from thruway.codegen.expressions import Emitter
from thruway.codegen.loops_c import SIMD, Body, emit_leaf, emit_range
from thruway.codegen.moments_c import moment_lines
from thruway.codegen.printer import DEEP, Printer, decode, nested
from thruway.codegen.reductions import BLOCK, Accumulator, accumulator, rounded, scan_start, scan_step, scan_type
from thruway.codegen.scope import block, indented
from thruway.codegen.shape import work_per_row
from thruway.core import sizes
from thruway.core.sizes import SizeLike
from thruway.loops.ir import Axis, Phase, Reduction
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import cost

POINT_BLOCK = 256         # elements that stay together when a flat loop is cut: whole cache lines of every dtype
STRIP = 64                # elements of a row that are taken in at once, each with an accumulator of its own
IN_ORDER = "#pragma GCC unroll 1"       # unrolled whole, the loads get out of order, and fetching ahead loses a quarter of its speed
SPLIT_FROM = 2 * STRIP    # elements from which a cheap row reduction goes by strips
CHEAP_TERM = 6            # cost of a term up to which the additions' latency is what a row waits for


class Rows(Printer):
    def text(self) -> str:
        e = self.emitter()
        lines = self.record()
        lines += self.function("rows")
        lines += self.entry(self.launch(e))
        return "\n".join(lines) + "\n"

    @property
    def pointwise(self) -> bool:
        return not self.inner and self.kernel.scan is None

    def launch(self, e: Emitter) -> list[str]:
        rows, along = self.parallel_axes()
        count: SizeLike = sizes.product(a.extent for a in rows)
        if self.is_flat_loop():
            blocks = sizes.floordiv(sizes.add(self.kernel.outer[0].extent, POINT_BLOCK - 1), POINT_BLOCK)
            count, work = blocks, sizes.mul(work_per_row(self.flat), POINT_BLOCK)
        else:
            work = work_per_row(self.flat, along)
        return self.run(f"{self.name}_rows", count, work, e)

    def is_flat_loop(self) -> bool:
        return self.pointwise and len(self.kernel.outer) == 1 and not self.flat.unsafe

    def parallel_axes(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """The axes that items number, and those that stay inside an item."""
        outer = self.kernel.outer
        if not self.pointwise:
            return outer, ()
        last = outer[-1:] if outer else ()
        rows = tuple(a for a in outer if a not in last and a.name not in self.flat.unsafe)
        ordered = tuple(a for a in outer if a not in last and a.name in self.flat.unsafe)
        return rows, (*ordered, *last)

    def function(self, suffix: str) -> list[str]:
        e = self.emitter()
        top = e.scope
        if self.is_flat_loop():
            axis = self.kernel.outer[0]
            end = e.size(axis.extent)
            top.add(f"const long first = lo * {POINT_BLOCK}, last = tw_minl(hi * {POINT_BLOCK}, {end});")
            self.point_loop(e, axis, "first", "last")
            before, after = [], []
        else:
            before, after = self.scratch_lines(e)
            self.row_loop(e)
        bad = any("bad |=" in line for line in top.lines)
        lines = [*before, *(["int bad = 0;"] if bad else []), *top.lines, *after, *(["if (bad) call->bad = 1;"] if bad else [])]
        return [f"static void {self.name}_{suffix}(long lo, long hi, void *context) {{", f"    {self.name}_call *call = context;",
                *indented(self.opening("call") + lines), "}"]

    def row_loop(self, e: Emitter) -> None:
        rows, along = self.parallel_axes()
        scope = e.push(deeper=True)
        decode(e, rows, "row")
        if self.pointwise:
            self.ordered_loops(e, along)
        else:
            for phase in self.kernel.phases:
                self.phase(e, phase)
        e.pop()
        e.scope.lines += block("for (long row = lo; row < hi; row++)", scope)

    def ordered_loops(self, e: Emitter, axes: Sequence[Axis]) -> None:
        """A pointwise kernel's loops inside one item, the last one vectorised unless its points may collide."""
        if not axes:
            self.single_point(e, self.kernel.phases[0])
        elif len(axes) == 1:
            self.point_loop(e, axes[0], "0", e.size(axes[0].extent))
        else:
            nested(e, axes[0], lambda: self.ordered_loops(e, axes[1:]))

    def single_point(self, e: Emitter, phase: Phase) -> None:
        """A phase without a loop of its own: no block that would be done again, where the fast sin and cos fail."""
        e.exact = True
        self.add_lets(e, phase)
        self.stores(e, phase)
        e.exact = False

    def point_loop(self, e: Emitter, axis: Axis, lo: str, hi: str) -> None:
        phase = self.kernel.phases[0]
        self.add_lets(e, phase)
        body = Body(lambda: self.stores(e, phase), self.roots(phase))
        simd = axis.name not in self.flat.unsafe and self.vectorises(phase_values(phase))
        emit_range(e, axis, lo, hi, body, lambda a, b: emit_leaf(e, axis, a, b, body, simd=simd))

    # phases with inner axes

    def phase(self, e: Emitter, phase: Phase) -> None:
        if not phase.inner:
            self.single_point(e, phase)
            return
        self.add_lets(e, phase)
        found = [accumulator(r) for r in phase.reductions]
        if self.kernel.scan is not None:
            self.scan(e, phase, found[0])
            return
        blocked = self.is_blocked(phase)
        for acc in found:
            self.declare(e, acc, blocked)
        moments = [(k, one) for k, one in enumerate(self.flat.moments) if self.kernel.phases[one.phase] is phase]
        if phase.reductions or phase.stores or not moments:
            self.inner_loops(e, phase, found, phase.inner, blocked)
        for k, one in moments:
            e.scope.lines += moment_lines(e, self.flat, one, k)
        for r, acc in zip(phase.reductions, found, strict=True):
            self.finish(e, phase, r, acc)

    def is_blocked(self, phase: Phase) -> bool:
        extent = phase.inner[0].extent
        return len(phase.inner) > 1 or type(extent) is not int or extent > BLOCK

    def declare(self, e: Emitter, acc: Accumulator, blocked: bool) -> None:
        kind = acc.total_type if blocked else acc.type
        e.scope.lines.append(f"{kind} {acc.var}_acc = {acc.identity};")
        if acc.nan_flag:
            e.scope.lines.append(f"int {acc.var}_nan = 0;")

    def inner_loops(self, e: Emitter, phase: Phase, found: list[Accumulator], axes: Sequence[Axis], blocked: bool) -> None:
        if len(axes) > 1:
            nested(e, axes[0], lambda: self.inner_loops(e, phase, found, axes[1:], blocked))
            return
        axis = axes[0]
        roots = self.roots(phase)

        def leaf(lo: str, hi: str) -> None:
            self.leaf(e, phase, found, axis, lo, hi, blocked)

        emit_range(e, axis, "0", e.size(axis.extent), Body(lambda: None, roots), leaf)

    def leaf(self, e: Emitter, phase: Phase, found: list[Accumulator], axis: Axis, lo: str, hi: str, blocked: bool) -> None:
        cut = blocked and any(a.total_type != a.type for a in found)
        if not cut:
            self.accumulate(e, phase, found, axis, lo, hi, {a.var: f"{a.var}_acc" for a in found})
            return
        extent = axis.extent
        whole = type(extent) is int and extent <= BLOCK
        names = {a.var: f"{a.var}_part" if a.total_type != a.type else f"{a.var}_acc" for a in found}
        scope = e.push()
        for acc in found:
            if names[acc.var].endswith("_part"):
                scope.add(f"{acc.type} {acc.var}_part = {acc.identity};")
        start, end = (lo, hi) if whole else ("block", "block_end")
        if not whole:
            scope.add(f"const long block_end = tw_minl(block + {BLOCK}, {hi});")
        self.accumulate(e, phase, found, axis, start, end, names)
        for acc in found:
            if names[acc.var].endswith("_part"):
                scope.add(f"{acc.var}_acc += {acc.var}_part;")
        e.pop()
        e.scope.lines += block("" if whole else f"for (long block = {lo}; block < {hi}; block += {BLOCK})", scope)

    def accumulate(self, e: Emitter, phase: Phase, found: list[Accumulator], axis: Axis, lo: str, hi: str, into: dict[str, str]) -> None:
        roots = tuple(phase_values(phase))
        if self.splits(phase, found, axis):
            self.accumulate_strips(e, phase, found, axis, lo, hi, into)
            return

        def emit() -> None:
            for r, acc in zip(phase.reductions, found, strict=True):
                _take(e, acc, into[acc.var], f"{acc.var}_nan", e.emit(r.value))
            self.stores(e, phase)

        clauses = [(into[a.var], a.clause) for a in found] + [(f"{a.var}_nan", "|") for a in found if a.nan_flag]
        emit_leaf(e, axis, lo, hi, Body(emit, roots, tuple(clauses)), simd=self.vectorises(roots))

    def splits(self, phase: Phase, found: list[Accumulator], axis: Axis) -> bool:
        long = type(axis.extent) is not int or axis.extent >= SPLIT_FROM
        return bool(found) and long and not phase.stores and cost(*phase_values(phase)) <= CHEAP_TERM and all(a.op in {"sum", "max", "min"} for a in found)

    def accumulate_strips(self, e: Emitter, phase: Phase, found: list[Accumulator], axis: Axis, lo: str, hi: str, into: dict[str, str]) -> None:
        """Strips of elements, in each lane an accumulator of its own: one addition's latency would bound a single one, and memory is
        read in order, as the CPU fetches it ahead."""
        roots = tuple(phase_values(phase))
        scope = e.push()
        for acc in found:
            scope.add(f"{acc.type} {acc.var}_lane[{STRIP}];")
            scope.add(f"for (long j = 0; j < {STRIP}; j++) {acc.var}_lane[j] = {acc.identity};")
        strip = e.push(deeper=True)

        def emit() -> None:
            for r, acc in zip(phase.reductions, found, strict=True):
                e.scope.add(acc.lane_step(f"{acc.var}_lane[{axis.name}]", e.emit(r.value)))

        emit_leaf(e, axis, "0", str(STRIP), Body(emit, roots), f"(strip + {axis.name})")
        e.pop()
        scope.add(f"long strip = {lo};")
        scope.lines += block(f"for (; strip + {STRIP} <= {hi}; strip += {STRIP})", strip, IN_ORDER)
        for acc in found:
            self.combine_lanes(e, acc, into[acc.var])

        def rest() -> None:
            for r, acc in zip(phase.reductions, found, strict=True):
                _take(e, acc, into[acc.var], f"{acc.var}_nan", e.emit(r.value))

        emit_leaf(e, axis, "strip", hi, Body(rest, roots), simd=False)
        e.pop()
        e.scope.lines += block("", scope)

    def combine_lanes(self, e: Emitter, acc: Accumulator, into: str) -> None:
        lane, nan = f"{acc.var}_lane[j]", f"{acc.var}_nan"
        loop = e.push(deeper=True)
        _take(e, acc, into, nan, lane)
        e.pop()
        clauses = f" reduction({acc.clause}:{into})" + (f" reduction(|:{nan})" if acc.nan_flag else "")
        e.scope.lines += block(f"for (long j = 0; j < {STRIP}; j++)", loop, SIMD + clauses)

    def finish(self, e: Emitter, phase: Phase, reduction: Reduction, acc: Accumulator) -> None:
        """The result as a constant of the row."""
        text = f"({register_type(acc.dtype)}){acc.var}_acc"
        if acc.nan_flag:
            text = f"{acc.var}_nan ? {acc.nan()} : {acc.var}_acc"
        if not acc.arg:
            e.scope.lines.append(f"const {register_type(acc.dtype)} {acc.var} = {text};")
            e.vars[acc.var] = (acc.var, e.scope.level)
            return
        e.scope.lines += [f"const {register_type(acc.dtype)} {acc.var}_best = {text};", f"long long {acc.var}_at = 9223372036854775807LL;"]
        rank = self.flat.ranks[self.kernel.phases.index(phase)]
        self.find_first(e, phase, reduction, acc, phase.inner, rank)
        e.scope.lines.append(f"const long long {acc.var} = {acc.var}_at;")
        e.vars[acc.var] = (acc.var, e.scope.level)

    def find_first(self, e: Emitter, phase: Phase, reduction: Reduction, acc: Accumulator, axes: Sequence[Axis], rank: SizeLike) -> None:
        """A second pass: the least position whose element is the one found (NaN where there was one)."""
        if len(axes) > 1:
            nested(e, axes[0], lambda: self.find_first(e, phase, reduction, acc, axes[1:], rank))
            return

        def emit() -> None:
            x = e.emit(reduction.value)
            hit = f"({x} == {acc.var}_best)"
            hit = f"({hit} | (({x} != {x}) & {acc.var}_nan))" if acc.nan_flag else hit
            e.scope.add(f"const long long at = {e.size(rank)};")
            e.scope.add(f"{acc.var}_at = {hit} && at < {acc.var}_at ? at : {acc.var}_at;")

        body = Body(emit, (reduction.value,), ((f"{acc.var}_at", "min"),))
        emit_range(e, axes[0], "0", e.size(axes[0].extent), body, lambda lo, hi: emit_leaf(e, axes[0], lo, hi, body))

    def scan(self, e: Emitter, phase: Phase, acc: Accumulator) -> None:
        """The running result, in order; sums and products of floats run in double as eager's do."""
        kind = scan_type(acc)
        e.scope.lines.append(f"{kind} {acc.var}_acc = {scan_start(acc)};")
        e.vars[acc.var] = (f"{acc.var}_now", DEEP)

        def emit() -> None:
            x = e.emit(phase.reductions[0].value)
            e.scope.add(scan_step(acc, f"{acc.var}_acc", x))
            e.scope.add(f"const {register_type(acc.dtype)} {acc.var}_now = {rounded(acc, f'{acc.var}_acc')};")
            self.stores(e, phase)

        emit_leaf(e, phase.inner[0], "0", e.size(phase.inner[0].extent), Body(emit, self.roots(phase)), simd=False)


def _take(e: Emitter, acc: Accumulator, into: str, nan: str, x: str) -> None:
    e.scope.add(acc.step(into, x))
    if acc.nan_flag:
        e.scope.add(f"{nan} |= ({x} != {x});")
