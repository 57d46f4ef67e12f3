"""What the kernel shapes share: pointers and sizes as local names, the entry function, stores, scratch rows, plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thruway.codegen.ctypes_c import SHORT_ROUND, SHORT_TO_MEMORY, TO_MEMORY, UNSIGNED, is_low, memory_type, register_type
from thruway.codegen.expressions import Emitter
from thruway.codegen.flatten import Flat
from thruway.codegen.operators import SCALAR_CALLS
from thruway.codegen.roundings import has_short_nans
from thruway.codegen.scope import block, indented
from thruway.codegen.shape import grain_work
from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol
from thruway.core.target import Target
from thruway.loops.ir import Axis, Expr, Kernel, Op, Phase, Store
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import is_size, own_sizes, walk

DEEP = 90                 # a loop level below every loop: the value belongs to the innermost one
STACK_ROW = 1 << 15       # bytes of scratch up to which it stands on the stack


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
    for moments in flat.moments:
        if moments.row.buffer not in private:
            found.setdefault(moments.row.buffer)
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
    found |= {s for moments in flat.moments for s in sizes.symbols(moments.row.index[0])}
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
        is_empty = any(axis.extent == 0 for axis in axes)                   # then no load may move out of a loop that never runs
        e = Emitter(names, ranges, frozenset(names if is_empty else self.writes), rows)
        for axis in axes:
            e.set_axis(Symbol(axis.name), axis.name, DEEP)
        e.maxima = {r.var: r.value for p in self.kernel.phases for r in p.reductions if r.op == "max"}
        private = {b.name for b in self.kernel.scratch}
        e.kept = {s.buffer: (s.index, s.value) for p in self.kernel.phases for s in p.stores if s.buffer in private}
        values = [x for p in self.kernel.phases for x in walk(*phase_values(p))]
        if has_short_nans(values, lambda buffer: buffer not in private):
            e.rounding, e.storing = SHORT_ROUND, SHORT_TO_MEMORY
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
        value = e.resolved(store.value)
        if store.mode != "set":
            text = _combined(e, store, buffer.dtype, value)
        elif private or value.dtype != buffer.dtype:
            text = e.emit(value)
        else:
            text = e.to_memory(value, buffer.dtype)
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
