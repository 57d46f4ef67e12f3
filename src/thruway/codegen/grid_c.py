"""Grid: no outer axes, so every phase is spread over the threads by itself and the entry function combines what the pieces leave."""

from __future__ import annotations

from collections.abc import Sequence

from thruway.codegen.ctypes_c import register_type
from thruway.codegen.expressions import Emitter
from thruway.codegen.loops_c import Body, emit_range
from thruway.codegen.printer import DEEP
from thruway.codegen.reductions import Accumulator, accumulator
from thruway.codegen.rows_c import Rows
from thruway.codegen.scope import block, indented
from thruway.codegen.shape import PARTS, work_per_row
from thruway.core import sizes
from thruway.core.sizes import Symbol
from thruway.loops.ir import Let, Phase


class Grid(Rows):
    def text(self) -> str:
        functions: list[str] = []
        steps: list[str] = []
        fields: list[str] = []
        e = self.emitter()
        lets: list[Let] = []
        for k, phase in enumerate(self.kernel.phases):
            if phase.inner:
                found = [accumulator(r) for r in phase.reductions]
                functions += self.piece(k, phase, found, lets)
                fields += [f"{a.total_type} {a.var}_parts[{PARTS}]; {register_type(a.dtype)} {a.var};" for a in found]
                steps += self.run(f"{self.name}_phase{k}", PARTS, sizes.floordiv(work_per_row(self.flat), PARTS), e)
                steps += self.combine(found)
            else:
                functions += self.scalar_function(k, phase, lets)
                steps.append(f"{self.name}_phase{k}(0, 1, &call);")
            lets = [*lets, *(phase.lets if not phase.inner else ())]
            self.done = [r.var for p in self.kernel.phases[: k + 1] for r in p.reductions]
        return "\n".join([*self.record(fields), *functions, *self.entry(steps)]) + "\n"

    done: list[str] = []

    def known_values(self, e: Emitter, lets: Sequence[Let]) -> list[str]:
        """What earlier phases found, as constants."""
        lines = []
        for phase in self.kernel.phases:
            for r in phase.reductions:
                if r.var in self.done:
                    lines.append(f"const {register_type(accumulator(r).dtype)} {r.var} = call->{r.var};")
                    e.vars[r.var] = (r.var, 0)
        e.lets.update({let.var: let.value for let in lets})
        return lines

    def piece(self, k: int, phase: Phase, found: list[Accumulator], lets: Sequence[Let]) -> list[str]:
        e = self.emitter()
        known = self.known_values(e, lets)
        self.add_lets(e, phase)
        top = e.scope
        leading = phase.inner[0]
        scope = e.push(deeper=True)
        extent = e.size(leading.extent)
        scope.add(f"const long begin = ({extent}) * part / {PARTS}, end = ({extent}) * (part + 1) / {PARTS};")
        for acc in found:
            self.declare(e, acc, True)
        self.piece_loops(e, phase, found)
        for acc in found:
            text = f"{acc.var}_nan ? {acc.nan()} : {acc.var}_acc" if acc.nan_flag else f"{acc.var}_acc"
            scope.add(f"call->{acc.var}_parts[part] = {text};")
        e.pop()
        loop = block("for (long part = lo; part < hi; part++)", scope)
        bad = any("bad |=" in line for line in top.lines + loop)
        lines = [*known, *(["int bad = 0;"] if bad else []), *top.lines, *loop, *(["if (bad) call->bad = 1;"] if bad else [])]
        return [f"static void {self.name}_phase{k}(long lo, long hi, void *context) {{", f"    {self.name}_call *call = context;",
                *indented(self.opening("call") + lines), "}"]

    def piece_loops(self, e: Emitter, phase: Phase, found: list[Accumulator]) -> None:
        leading, rest = phase.inner[0], phase.inner[1:]
        if not rest:
            body = Body(lambda: None, self.roots(phase))
            emit_range(e, leading, "begin", "end", body, lambda lo, hi: self.leaf(e, phase, found, leading, lo, hi, True))
            return
        scope = e.push(deeper=True)
        e.set_axis(Symbol(leading.name), leading.name, scope.level)
        self.inner_loops(e, phase, found, rest, True)
        e.pop()
        e.set_axis(Symbol(leading.name), leading.name, DEEP)
        e.scope.lines += block(f"for (long {leading.name} = begin; {leading.name} < end; {leading.name}++)", scope)

    def scalar_function(self, k: int, phase: Phase, lets: Sequence[Let]) -> list[str]:
        e = self.emitter()
        e.exact = True                                           # there is no loop that could be run again
        known = self.known_values(e, lets)
        self.add_lets(e, phase)
        self.stores(e, phase)
        bad = any("bad |=" in line for line in e.scope.lines)
        lines = [*known, *(["int bad = 0;"] if bad else []), *e.scope.lines, *(["if (bad) call->bad = 1;"] if bad else [])]
        return [f"static void {self.name}_phase{k}(long lo, long hi, void *context) {{", f"    {self.name}_call *call = context;",
                *indented(self.opening("call") + lines), "}"]

    def combine(self, found: list[Accumulator]) -> list[str]:
        """The pieces' results, in order."""
        lines = []
        for acc in found:
            lines += [f"{{ {acc.total_type} total = {acc.identity};",
                      f"  for (int k = 0; k < {PARTS}; k++) {{ const {acc.total_type} x = call.{acc.var}_parts[k]; {acc.lane_step('total', 'x')} }}",
                      f"  call.{acc.var} = ({register_type(acc.dtype)})total; }}"]
        return lines
