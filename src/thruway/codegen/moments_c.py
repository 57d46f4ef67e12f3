"""Mean and squared distances of rows, in eager's order of operations: the C functions, and the rows that they read.

Eager's row moments (Welford's updates in eight lanes, chunks of sixteen steps, chunks merged pairwise by the formula of Chan, Golub
and LeVeque, lanes one after the other) decide what layer norm gives far from zero, so the order of operations is kept to the bit. The
chains of a chunk are long; four go side by side. A row that is not plain float32 in memory is written to scratch first.
"""

from __future__ import annotations

from dataclasses import replace

from thruway.codegen.expressions import Emitter
from thruway.codegen.flatten import Flat, Moments, coefficient
from thruway.codegen.printer import DEEP
from thruway.codegen.shape import LANES as POINTS
from thruway.core import sizes
from thruway.core.sizes import Symbol
from thruway.loops.ir import MOMENTS, Buffer, Expr, Load, Phase, Store, Var
from thruway.schedule.layout import contiguous

LANES, CHUNK = 8, 16      # of eager: values side by side in a vector of float32, steps of a chunk
WIDTHS = {"float32": 8, "bfloat16": 16, "float16": 16}      # values in a vector of the dtype
MOST_CHUNKS = 64          # chunks up to which the code of a row is written out


def hold_rows(flat: Flat, in_place: bool) -> Flat:
    """`flat` with its moments apart from other reductions, each over a row of float32: as it stands in memory where `in_place` allows
    and it does, else a scratch row that the phase writes."""
    kernel = flat.kernel
    if not any(r.op in MOMENTS for p in kernel.phases for r in p.reductions):
        return flat
    phases, scratch, found = [], list(kernel.scratch), []
    for k, phase in enumerate(kernel.phases):
        ours = [r for r in phase.reductions if r.op in MOMENTS]
        phase = replace(phase, reductions=tuple(r for r in phase.reductions if r.op not in MOMENTS))
        for value, dtype in dict.fromkeys((r.value, MOMENTS[r.op]) for r in ours):
            row = value if in_place and _is_row(value, phase, flat) else _scratch_row(value, phase, flat.ranks[k], scratch)
            if row is None:
                count = sizes.product(a.extent for a in phase.inner)
                scratch.append(Buffer(f"{kernel.name}_row{len(scratch)}", "float32", (count,), contiguous((count,))))
                row = Load(scratch[-1].name, (flat.ranks[k],), "float32")
                phase = replace(phase, stores=(*phase.stores, Store(row.buffer, row.index, value)))
            named = {r.op.partition("_")[0]: r.var for r in ours if r.value == value and MOMENTS[r.op] == dtype}
            found.append(Moments(k, row, dtype, named.get("mean"), named.get("squares")))
        phases.append(phase)
    buffers = {**flat.buffers, **{b.name: b for b in scratch}}
    return replace(flat, kernel=replace(kernel, phases=tuple(phases), scratch=tuple(scratch)), buffers=buffers, moments=tuple(found))


def _is_row(value: Expr, phase: Phase, flat: Flat) -> bool:
    """Whether the values stand one after the other in memory, in float32, unchanged by the kernel."""
    if not isinstance(value, Load) or len(value.index) != 1 or len(phase.inner) != 1 or flat.buffers[value.buffer].dtype != "float32":
        return False
    written = any(store.buffer == value.buffer for one in flat.kernel.phases for store in one.stores)
    return not written and coefficient(value.index[0], Symbol(phase.inner[0].name)) == 1


def _scratch_row(value: Expr, phase: Phase, rank: sizes.SizeLike, scratch: list[Buffer]) -> Load | None:
    """A scratch row of float32 that gets just `value` in this phase anyway."""
    private = {b.name for b in scratch if b.dtype == "float32"}
    lets = {let.var: let.value for let in phase.lets}

    def plain(x: Expr) -> Expr:
        while isinstance(x, Var) and x.name in lets:
            x = lets[x.name]
        return x

    held = (s for s in phase.stores if s.buffer in private and s.index == (rank,) and plain(s.value) == plain(value))
    return next((Load(s.buffer, s.index, "float32") for s in held), None)


def row_lines(name: str, row: str, count: sizes.SizeLike, text: str, dtype: str) -> list[str]:
    """The statements that find `NAME_mean` and `NAME_squares` of the `count` values (`text` in C) that start at `row`."""
    lines, width = [f"float {name}_mean, {name}_squares;"], WIDTHS[dtype]
    if type(count) is not int or count > MOST_CHUNKS * CHUNK * width:
        return [*lines, f"tw_row_moments({row}, {text}, {width}, {_fused(dtype)}, &{name}_mean, &{name}_squares);"]
    return [*lines, "{", *(f"    {line}" for line in _straight(name, row, count, width, _fused(dtype))), "}"]


def _fused(dtype: str) -> int:
    """Whether eager's compiler fused the product and the sum for values behind the last vector; it did for float16."""
    return int(dtype == "float16")


def _straight(name: str, row: str, count: int, width: int, fused: int) -> list[str]:
    """The same without a loop over chunks but for what is done four chains at a time: every count is a constant, so nothing waits for memory."""
    vectors, parts = count // width, width // LANES
    chains = (vectors // CHUNK) * parts
    lines = [f"const float *row = {row};", f"float mean[{max(chains + parts, 1)}][{LANES}], squares[{max(chains + parts, 1)}][{LANES}];"]
    second = CHUNK * width if parts == 1 else LANES
    if chains >= 4:
        at = f"row + {4 * LANES * CHUNK} * four"
        others = ", ".join(f"{at} + {place}" for place in (second, 2 * LANES * CHUNK, 2 * LANES * CHUNK + second))
        lines.append(f"for (long four = 0; four < {chains // 4}; four++) tw_four_chunks({at}, {others}, {width}, mean + 4 * four, squares + 4 * four);")
    done = chains // 4 * 4
    if chains - done >= 2:
        at = f"row + {done * LANES * CHUNK}"
        lines.append(f"tw_two_chunks({at}, {at} + {second}, {width}, mean + {done}, squares + {done});")
        done += 2
    for k in range(done, chains + (parts if vectors % CHUNK else 0)):
        steps = CHUNK if k < chains else vectors % CHUNK
        place = k // parts * CHUNK * width + k % parts * LANES
        lines.append(f"tw_chunk(row + {place}, {steps}, {width}, {LANES}, mean[{k}], squares[{k}]);")
    joins, last = _joins(vectors, parts)
    lines += [f"tw_join({more}, mean[{k}], squares[{k}], {before}, mean[{into}], squares[{into}], {LANES});" for k, more, into, before in joins]
    if not vectors:
        lines.append(f"for (long k = 0; k < {LANES}; k++) mean[0][k] = squares[0][k] = 0;")
    start, each = vectors * width, vectors * width // LANES
    return [*lines, f"tw_row_end(row + {start}, {count - start}, {fused}, {each}, mean[{last}], squares[{last}], &{name}_mean, &{name}_squares);"]


def _joins(vectors: int, parts: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """(chain, its count, chain that takes it, that one's count) in order, and the chain that all have gone into at the end."""
    chunks = -(-vectors // CHUNK)
    levels: list[tuple[int, int] | None] = [None] * max(1, (chunks - 1).bit_length())
    joins = []

    def put(level: int, chain: tuple[int, int]) -> None:
        there = levels[level]
        if there is not None:
            joins.append((*chain, *there))
        levels[level] = chain if there is None else (there[0], there[1] + chain[1])

    def up(level: int, target: int) -> None:
        chain = levels[level]
        if chain is not None:
            levels[level] = None
            put(target, chain)

    for i in range(chunks):
        for part in range(parts):
            put(0, (i * parts + part, min(CHUNK, vectors - i * CHUNK)))
        level = 1
        while level < len(levels) and (i + 1) % (1 << level) == 0:
            up(level - 1, level)
            level += 1
    for level in range(1, len(levels)):
        up(level, 0)
    return joins, levels[0][0] if levels[0] is not None else 0


def moment_lines(e: Emitter, flat: Flat, moments: Moments, at: int) -> list[str]:
    """The statements for the row of one outer point; the variables are constants of the current scope afterwards."""
    inner = flat.kernel.phases[moments.phase].inner
    start = (sizes.substitute(moments.row.index[0], {Symbol(a.name): 0 for a in inner}),)
    count, name = sizes.product(a.extent for a in inner), f"m{at}"
    lines = row_lines(name, f"&{e.element(moments.row.buffer, start)}", count, e.size(count), moments.dtype)
    for var, kind in ((moments.mean, "mean"), (moments.squares, "squares")):
        if var is not None:
            e.vars[var] = (f"{name}_{kind}", e.scope.level)
    return lines


def lane_moment_lines(e: Emitter, flat: Flat, moments: Moments, at: int) -> list[str]:
    """The same for outer points side by side, whose rows stand in scratch: arrays over the points."""
    count = sizes.product(a.extent for a in flat.kernel.phases[moments.phase].inner)
    name = f"m{at}"
    for var, kind in ((moments.mean, "mean"), (moments.squares, "squares")):
        if var is not None:
            e.vars[var] = (f"{name}_{kind}[j]", DEEP)
    row = e.pointers[moments.row.buffer]
    return [f"float {name}_mean[{POINTS}], {name}_squares[{POINTS}];",
            f"tw_lane_moments({row}, {e.size(count)}, {WIDTHS[moments.dtype]}, {_fused(moments.dtype)}, {name}_mean, {name}_squares);"]
