"""Prints one Kernel as C: `int NAME(void **pointers, const long long *sizes)` and the functions it runs over pieces of its work.

Three shapes, by where memory runs on: *rows* (the last loop of a phase is vectorised: pointwise kernels, reductions along
contiguous data), *lanes* (64 neighbouring outer points side by side, one accumulator each: reductions across rows), and
*grid* (no outer axes: each phase is spread over the threads by itself, partial results are combined in a fixed order).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from thruway.codegen.ctypes_c import ROUND, TO_MEMORY, UNSIGNED, is_low, memory_type, register_type
from thruway.codegen.expressions import Emitter
from thruway.codegen.flatten import Flat, flatten
from thruway.codegen.loops_c import SIMD, Body, emit_leaf, emit_range
from thruway.codegen.operators import SCALAR_CALLS
from thruway.codegen.reductions import BLOCK, Accumulator, accumulator
from thruway.codegen.scope import block, indented
from thruway.codegen.shape import LANES, PARTS, choose_shape, grain_work, work_per_row
from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol
from thruway.core.target import Target
from thruway.loops.ir import Axis, Buffer, Cast, Expr, Kernel, Op, Phase, Store, Var
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import cost, is_size, own_sizes, walk
from thruway.schedule.space import unsafe_axes

DEEP = 90                 # a loop level below every loop: the value belongs to the innermost one
POINT_BLOCK = 256         # elements that stay together when a flat loop is cut: whole cache lines of every dtype
STACK_ROW = 1 << 15       # bytes of scratch up to which it stands on the stack
SPLIT_FROM = 512          # elements from which a cheap row reduction runs four sums at once


@dataclass(frozen=True, slots=True)
class KernelText:
    """The C text, and which storages and size symbols its pointers and sizes are."""

    text: str
    pointers: tuple[str, ...]
    sizes: tuple[Symbol, ...]


def print_kernel(name: str, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> KernelText:
    """The C text of `kernel` under `name`."""
    flat = flatten(kernel, buffers, unsafe_axes(kernel))
    printer = {"rows": Rows, "lanes": Lanes, "grid": Grid}[choose_shape(flat)](name, flat, target)
    return KernelText(printer.text(), printer.pointers, printer.symbols)


def pointer_order(flat_kernel: Kernel, flat: Flat) -> tuple[str, ...]:
    """The storages that the kernel's pointers are, in order."""
    private = {b.name for b in flat_kernel.scratch}
    found: dict[str, None] = {}
    for phase in flat_kernel.phases:
        for expr in walk(*phase_values(phase)):
            if hasattr(expr, "buffer") and expr.buffer not in private:
                found.setdefault(expr.buffer)
        for store in phase.stores:
            if store.buffer not in private:
                found.setdefault(store.buffer)
    return tuple(found)


def size_order(kernel: Kernel, flat: Flat) -> tuple[Symbol, ...]:
    """The size symbols that the kernel's `sizes` are, in order of name."""
    axes = {Symbol(a.name) for a in (*kernel.outer, *(a for p in kernel.phases for a in p.inner))}
    found = set()
    for phase in kernel.phases:
        for expr in walk(*phase_values(phase)):
            found |= {s for size in own_sizes(expr) for s in sizes.symbols(size)}
        found |= {s for store in phase.stores for i in store.index if is_size(i) for s in sizes.symbols(i)}
        found |= {s for a in phase.inner for s in sizes.symbols(a.extent)}
    found |= {s for a in kernel.outer for s in sizes.symbols(a.extent)}
    found |= {s for b in kernel.scratch for size in b.sizes for s in sizes.symbols(size)}
    return tuple(sorted(found - axes, key=lambda s: s.name))


class Printer:
    """What the shapes share: the call record, the opening of a function, stores, scratch."""

    def __init__(self, name: str, flat: Flat, target: Target):
        self.name, self.flat, self.target = name, flat, target
        self.kernel = flat.kernel
        self.pointers = pointer_order(flat.kernel, flat)
        self.symbols = size_order(flat.kernel, flat)
        self.inner = next((p.inner for p in self.kernel.phases if p.inner), ())
        self.writes = {s.buffer for p in self.kernel.phases for s in p.stores}

    # pieces of text

    def text(self) -> str:
        raise NotImplementedError

    def record(self, fields: Sequence[str] = ()) -> list[str]:
        return [f"typedef struct {{ void **pointers; const long long *sizes; int bad;{''.join(f' {f}' for f in fields)} }} {self.name}_call;"]

    def entry(self, lines: Sequence[str]) -> list[str]:
        """The exported function around `lines`, which see `call`."""
        return [f"int {self.name}(void **pointers, const long long *sizes) {{", f"    {self.name}_call call = {{pointers, sizes, 0}};",
                *indented(self.size_lines("call.sizes")), *indented(list(lines)), "    return call.bad;", "}"]

    def size_lines(self, where: str) -> list[str]:
        return [f"const long {s.name} = {where}[{k}];" for k, s in enumerate(self.symbols)]

    def emitter(self) -> Emitter:
        axes = (*self.kernel.outer, *self.inner)
        ranges = {Symbol(a.name): (0, a.extent - 1 if type(a.extent) is int else None) for a in axes}
        names = {b: f"p{k}" for k, b in enumerate(self.pointers)} | {b.name: f"row{k}" for k, b in enumerate(self.kernel.scratch)}
        rows = frozenset(b.name for b in self.kernel.scratch if is_low(b.dtype))
        e = Emitter(names, ranges, frozenset(self.writes), rows)
        for axis in axes:
            e.set_axis(Symbol(axis.name), axis.name, DEEP)
        return e

    def opening(self, call: str) -> list[str]:
        """Pointers and sizes as local names."""
        lines = []
        for k, name in enumerate(self.pointers):
            const = "" if name in self.writes else "const "
            lines.append(f"{const}{memory_type(self.flat.buffers[name].dtype)} *p{k} = {call}->pointers[{k}];")
        return lines + self.size_lines(f"{call}->sizes")

    def scratch_lines(self, e: Emitter, lanes: int = 1) -> tuple[list[str], list[str]]:
        """Declarations of the scratch rows, and what frees them."""
        before, after = [], []
        for k, buffer in enumerate(self.kernel.scratch):
            kind = register_type(buffer.dtype)
            elements = sizes.mul(sizes.product(buffer.sizes), lanes)
            if type(elements) is int and elements * 8 <= STACK_ROW * lanes:
                before.append(f"{kind} row{k}[{max(elements, 1)}] __attribute__((aligned(64)));")
            else:
                before.append(f"{kind} *row{k} = tw_row_alloc(sizeof({kind}) * ({e.size(elements)}));")
                after.append(f"tw_row_free(row{k});")
        return before, after

    def store(self, e: Emitter, store: Store) -> None:
        """One store."""
        private = store.buffer in {b.name for b in self.kernel.scratch}
        buffer = self.flat.buffers[store.buffer]
        value = _resolved(e, store.value)
        if store.mode != "set":
            text = _combined(e, store, buffer.dtype, value)
        elif private or value.dtype != buffer.dtype:
            text = e.emit(value)
        else:
            text = _to_memory(e, value, buffer.dtype)
        e.scope.lines.append(f"{e.element(store.buffer, store.index)} = {text};")

    def stores(self, e: Emitter, phase: Phase) -> None:
        """What a phase leaves behind; a kernel of checks alone leaves only its flag."""
        if not self.writes:
            for let in phase.lets:
                e.emit(let.value)
        for one in phase.stores:
            self.store(e, one)

    def vectorises(self, roots: Sequence[Expr]) -> bool:
        return not any(isinstance(x, Op) and x.name in SCALAR_CALLS for x in walk(*roots))

    def roots(self, phase: Phase) -> tuple[Expr, ...]:
        return tuple(phase_values(phase)[len(phase.lets) if self.writes else 0:])

    def add_lets(self, e: Emitter, phase: Phase) -> None:
        e.lets.update({let.var: let.value for let in phase.lets})

    def run(self, function: str, count: SizeLike, work: SizeLike, e: Emitter) -> list[str]:
        """The call of `function` over `count` items of `work` each: at once where that is little, else over the threads."""
        total = sizes.mul(count, work)
        limit = grain_work(self.target)
        if type(total) is int and total <= limit:
            return [f"{function}(0, {count}, &call);"]
        each = e.size(work)
        grain = str(max(1, limit // max(1, work))) if type(work) is int else f"tw_maxl(1, {limit} / tw_maxl(1, {each}))"
        return [f"tw_parallel_for(0, {e.size(count)}, {grain}, {function}, &call);"]


def _resolved(e: Emitter, value: Expr) -> Expr:
    while isinstance(value, Var) and value.name in e.lets:
        value = e.lets[value.name]
    return value


def _to_memory(e: Emitter, value: Expr, dtype: str) -> str:
    """`value` as it is stored; a rounding at the top and the conversion to memory are one step."""
    if dtype not in TO_MEMORY:
        return e.emit(value)
    if isinstance(value, Cast) and value.x.dtype == "float32":
        return f"{TO_MEMORY[dtype]}({e.emit(value.x)})"
    return f"{TO_MEMORY[dtype]}({e.emit(value)})"


def _combined(e: Emitter, store: Store, dtype: str, value: Expr) -> str:
    """The text of `old (mode) value`, read and written at the store's place."""
    old = e.load(store.buffer, store.index, dtype, False)
    new = e.emit(value)
    wide = UNSIGNED.get(dtype)
    match store.mode:
        case "add" | "mul":
            sign = "+" if store.mode == "add" else "*"
            text = f"(({wide}){old} {sign} ({wide}){new})" if wide else f"({old} {sign} {new})"
        case "min" | "max":
            sign = "<" if store.mode == "min" else ">"
            text = f"tw_keep({new} {sign} {old} || {new} != {new}, {new}, {old})"
        case _:
            raise ValueError(f"unknown update mode {store.mode}")
    return f"{TO_MEMORY[dtype]}({text})" if dtype in TO_MEMORY else text


class Rows(Printer):
    """Outer points in order; in each, the phases one after the other, each with its last loop vectorised."""

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
            self.add_lets(e, self.kernel.phases[0])
            self.stores(e, self.kernel.phases[0])
        elif len(axes) == 1:
            self.point_loop(e, axes[0], "0", e.size(axes[0].extent))
        else:
            nested(e, axes[0], lambda: self.ordered_loops(e, axes[1:]))

    def point_loop(self, e: Emitter, axis: Axis, lo: str, hi: str) -> None:
        phase = self.kernel.phases[0]
        self.add_lets(e, phase)
        body = Body(lambda: self.stores(e, phase), self.roots(phase))
        simd = axis.name not in self.flat.unsafe and self.vectorises(phase_values(phase))
        emit_range(e, axis, lo, hi, body, lambda a, b: emit_leaf(e, axis, a, b, body, simd=simd))

    # phases with inner axes

    def phase(self, e: Emitter, phase: Phase) -> None:
        self.add_lets(e, phase)
        found = [accumulator(r) for r in phase.reductions]
        if not phase.inner:
            self.stores(e, phase)
            return
        if self.kernel.scan is not None:
            self.scan(e, phase, found[0])
            return
        blocked = self.is_blocked(phase)
        for acc in found:
            self.declare(e, acc, blocked)
        self.inner_loops(e, phase, found, phase.inner, blocked)
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
            self.accumulate_split(e, phase, found, axis, lo, hi, into)
            return

        def emit() -> None:
            for r, acc in zip(phase.reductions, found, strict=True):
                _take(e, acc, into[acc.var], f"{acc.var}_nan", e.emit(r.value))
            self.stores(e, phase)

        clauses = [(into[a.var], a.clause) for a in found] + [(f"{a.var}_nan", "|") for a in found if a.nan_flag]
        emit_leaf(e, axis, lo, hi, Body(emit, roots, tuple(clauses)), simd=self.vectorises(roots))

    def splits(self, phase: Phase, found: list[Accumulator], axis: Axis) -> bool:
        long = type(axis.extent) is not int or axis.extent >= SPLIT_FROM
        return bool(found) and long and not phase.stores and cost(*phase_values(phase)) <= 3 and all(a.op in {"sum", "max", "min"} for a in found)

    def accumulate_split(self, e: Emitter, phase: Phase, found: list[Accumulator], axis: Axis, lo: str, hi: str, into: dict[str, str]) -> None:
        """Four quarters at once with accumulators of their own: one addition's latency would bound a single one."""
        scope = e.push()
        scope.add(f"const long quarter = {hi if lo == '0' else f'({hi} - {lo})'} / 4;")
        for acc in found:
            scope.add(f"{acc.type} " + ", ".join(f"{into[acc.var]}_{k} = {acc.identity}" for k in range(4)) + ";")
        start = "" if lo == "0" else f"{lo} + "

        def emit() -> None:
            for k in range(4):
                part = e.push(deeper=True)
                e.set_axis(Symbol(axis.name), f"({start}{f'{k}*quarter + ' if k else ''}{axis.name})", part.level)
                for r, acc in zip(phase.reductions, found, strict=True):
                    _take(e, acc, f"{into[acc.var]}_{k}", f"{acc.var}_nan", e.emit(r.value))
                e.pop()
                e.scope.lines += block("", part)

        clauses = [(f"{into[a.var]}_{k}", a.clause) for a in found for k in range(4)]
        clauses += [(f"{a.var}_nan", "|") for a in found if a.nan_flag]
        roots = tuple(phase_values(phase))
        emit_leaf(e, axis, "0", "quarter", Body(emit, roots, tuple(clauses)))
        for acc in found:
            for k in range(4):
                scope.add(acc.step(into[acc.var], f"{into[acc.var]}_{k}"))

        def rest() -> None:
            for r, acc in zip(phase.reductions, found, strict=True):
                _take(e, acc, into[acc.var], f"{acc.var}_nan", e.emit(r.value))

        emit_leaf(e, axis, f"{start}4*quarter", hi, Body(rest, roots), simd=False)
        e.pop()
        e.scope.lines += block("", scope)

    def finish(self, e: Emitter, phase: Phase, reduction, acc: Accumulator) -> None:
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

    def find_first(self, e: Emitter, phase: Phase, reduction, acc: Accumulator, axes: Sequence[Axis], rank: SizeLike) -> None:
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


def scan_type(acc: Accumulator) -> str:
    return "double" if acc.op in {"sum", "prod"} and acc.dtype == "float32" else acc.type


def scan_start(acc: Accumulator) -> str:
    return "-__builtin_inff()" if acc.op == "logsumexp" else acc.identity


def scan_step(acc: Accumulator, into: str, x: str) -> str:
    if acc.op == "logsumexp":
        return f"{into} = tw_logaddexp{'_d' if acc.dtype == 'float64' else ''}({into}, {x});"
    return acc.lane_step(into, x)


def rounded(acc: Accumulator, text: str) -> str:
    return f"{ROUND[acc.dtype]}({text})" if acc.dtype in ROUND else f"({register_type(acc.dtype)}){text}"


def decode(e: Emitter, axes: Sequence[Axis], number: str) -> None:
    """The coordinates of item `number`, row-major over `axes`, as constants of the current scope."""
    rest = number
    for k, axis in enumerate(reversed(axes)):
        last = k == len(axes) - 1
        text = rest if last else f"{rest} % {_factor(e, axis.extent)}"
        e.scope.lines.append(f"const long {axis.name} = {text};")
        e.set_axis(Symbol(axis.name), axis.name, e.scope.level)
        if not last:
            rest = f"{rest} / {_factor(e, axis.extent)}"


def _factor(e: Emitter, size: SizeLike) -> str:
    text = e.size(size)
    return text if text.replace("_", "").isalnum() else f"({text})"


def nested(e: Emitter, axis: Axis, inside: Callable[[], None]) -> None:
    """A plain loop over `axis` around what `inside` writes."""
    scope = e.push(deeper=True)
    e.set_axis(Symbol(axis.name), axis.name, scope.level)
    inside()
    e.pop()
    e.set_axis(Symbol(axis.name), axis.name, DEEP)
    e.scope.lines += block(f"for (long {axis.name} = 0; {axis.name} < {e.size(axis.extent)}; {axis.name}++)", scope)


class Lanes(Printer):
    """LANES neighbouring points of the last outer axis at once; results that the row would hold are arrays over the lanes."""

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
        for r, acc in zip(phase.reductions, found, strict=True):
            e.vars[r.var] = (f"{r.var}[j]" if not acc.arg else f"{r.var}_at[j]", DEEP)

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


LANES_BLOCK = 256


class Grid(Rows):
    """No outer axes: every phase is spread over the threads in PARTS pieces, and the entry function combines what they leave."""

    def text(self) -> str:
        functions: list[str] = []
        steps: list[str] = []
        fields: list[str] = []
        e = self.emitter()
        lets = []
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

    def known_values(self, e: Emitter, lets) -> list[str]:
        """What earlier phases found, as constants."""
        lines = []
        for phase in self.kernel.phases:
            for r in phase.reductions:
                if r.var in self.done:
                    lines.append(f"const {register_type(accumulator(r).dtype)} {r.var} = call->{r.var};")
                    e.vars[r.var] = (r.var, 0)
        e.lets.update({let.var: let.value for let in lets})
        return lines

    def piece(self, k: int, phase: Phase, found: list[Accumulator], lets) -> list[str]:
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

    def scalar_function(self, k: int, phase: Phase, lets) -> list[str]:
        e = self.emitter()
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
