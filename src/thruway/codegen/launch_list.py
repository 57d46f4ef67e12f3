"""The Plan flattened to what runtime executes: slots for buffers, allocations where each is first needed, calls in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thruway.core import launch, sizes
from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike, Symbol, as_symbol
from thruway.loops.ir import BufferRef, Extern, SizeArg
from thruway.schedule.depend import buffers_in, read_buffers, root
from thruway.schedule.plan import Plan


@dataclass(frozen=True, slots=True)
class Printed:
    """A kernel as printed: its symbol, the buffers its pointers are, the values of its sizes, the buffers it writes."""

    symbol: str
    pointers: tuple[str, ...]
    sizes: tuple[SizeLike, ...]
    checks: bool
    writes_input: bool
    writes: tuple[str, ...] = ()


def launch_list(plan: Plan, derived: Sequence[Printed | Extern], steps: Sequence[Printed | Extern]) -> launch.LaunchList:
    return _Flattener(plan).build(derived, steps)


class _Flattener:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.constants = tuple(name for name, buffer in plan.buffers.items() if buffer.kind == "constant" and buffer.alias is None)
        self.slots: dict[str, int] = {name: k for k, name in enumerate((*plan.inputs, *self.constants))}
        self.ready = set(self.slots)
        self.out: list[launch.Step] = []

    def build(self, derived: Sequence[Printed | Extern], steps: Sequence[Printed | Extern]) -> launch.LaunchList:
        for step in derived:
            self.step(step)
        derived_steps, self.out = tuple(self.out), []
        kept = {root(name, self.plan.buffers) for name in self.ready} - set(self.plan.inputs)
        made = {name for name in self.ready if name not in self.plan.inputs and name not in self.constants}
        views: dict[str, list[str]] = {}
        for name in self.plan.outputs:
            views.setdefault(root(name, self.plan.buffers), []).append(name)
        for step in steps:
            self.step(step)
            for buffer in step.writes if isinstance(step, Printed) else step.outs:
                for name in views.pop(buffer, ()):           # where it is made and not behind all steps: blocks that give views stay alike
                    self.whole(name)
        outputs = tuple(self.leaving(name, kept) for name in self.plan.outputs)
        used = self.used_by(steps) | {root(n, self.plan.buffers) for n in self.plan.outputs}
        derived_slots = tuple(sorted(self.slots[n] for n in made if n in used or root(n, self.plan.buffers) in used))
        return launch.LaunchList(
            inputs=tuple(launch.Input(k, self.spec(n), self.plan.buffers[n].kind == "weight") for k, n in enumerate(self.plan.inputs)),
            symbols=self.bindings(),
            constants=tuple((self.slots[n], self.spec(n), self.plan.buffers[n].data) for n in self.constants),
            derived=derived_steps,
            derived_slots=derived_slots,
            steps=tuple(self.out),
            outputs=outputs,
            arena_bytes=self.plan.arena_bytes,
            slots=len(self.slots),
        )

    def used_by(self, steps: Sequence[Printed | Extern]) -> set[str]:
        found: set[str] = set()
        for step in steps:
            names = step.pointers if isinstance(step, Printed) else read_buffers(step)
            found |= set(names) | {root(n, self.plan.buffers) for n in names}
        return found

    def slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))

    def spec(self, name: str) -> launch.TensorSpec:
        b = self.plan.buffers[name]
        return launch.TensorSpec(b.dtype, b.sizes, b.strides, b.device, b.offset if b.alias is not None else 0)

    def bindings(self) -> tuple[launch.SymbolBinding, ...]:
        found: dict[str, launch.SymbolBinding] = {}
        wanted: set[Symbol] = set()
        for k, name in enumerate(self.plan.inputs):
            for dim, size in enumerate(self.plan.buffers[name].sizes):
                wanted |= sizes.symbols(size)
                symbol = as_symbol(size)
                if symbol is not None:
                    found.setdefault(symbol.name, launch.SymbolBinding(symbol.name, k, dim))
        missing = sorted(s.name for s in wanted if s.name not in found)
        if missing:
            raise Unsupported("TW604", f"the size {missing[0]} is not the size of any input's dimension", "this graph runs with fixed sizes")
        return tuple(found.values())

    def step(self, step: Printed | Extern) -> None:
        if isinstance(step, Printed):
            for name in step.pointers:
                self.memory(name)
            pointers = tuple(self.slot(n) for n in step.pointers)
            writes = tuple(dict.fromkeys(self.slot(n) for n in step.writes if n in self.plan.inputs))
            self.out.append(launch.Kernel(step.symbol, pointers, step.sizes, step.checks, step.writes_input, writes))
        else:
            self.call(step)

    def memory(self, name: str) -> None:
        """Memory for a root buffer that nothing has made yet."""
        if name in self.ready:
            return
        placement = self.plan.placements[name]
        arena = placement.offset if placement.where == "arena" else None
        self.out.append(launch.Allocate(self.slot(name), self.spec(name), arena))
        self.ready.add(name)

    def whole(self, name: str) -> int:
        """The slot of a buffer as a tensor; a view is made where it is first wanted."""
        buffer = self.plan.buffers[name]
        if name not in self.ready:
            if buffer.alias is None:
                raise Unsupported("TW605", f"the buffer {name} is used before anything makes it")
            base = self.whole(buffer.alias)
            self.out.append(launch.View(self.slot(name), base, self.spec(name)))
            self.ready.add(name)
        return self.slot(name)

    def leaving(self, name: str, kept: set[str]) -> int:
        """The slot of an output: of a copy where the tensor stays with the compiled graph."""
        slot = self.whole(name)
        if root(name, self.plan.buffers) not in kept:
            return slot
        copy = self.slot(f"a copy of {name}")
        self.out.append(launch.Call("aten::clone", (launch.SlotRef(slot),), (), (copy,)))
        return copy

    def call(self, step: Extern) -> None:
        for name in buffers_in((step.args, tuple(v for _, v in step.kwargs))):
            self.whole(name)
        args = tuple(self.argument(a) for a in step.args)
        kwargs = tuple((k, self.argument(v)) for k, v in step.kwargs)
        writes_input = any(self.plan.buffers[root(n, self.plan.buffers)].kind != "temp" for n in step.mutates)
        outs = step.outs
        if len(outs) == 1 and self.plan.placements.get(outs[0]) is not None and self.plan.placements[outs[0]].where == "arena":
            self.memory(outs[0])
            self.out.append(launch.Call(f"{step.op}.out", args, (*kwargs, ("out", launch.SlotRef(self.slot(outs[0])))), (), writes_input))
            return
        slots = tuple(self.slot(n) for n in outs)
        self.ready |= set(outs)
        specs = tuple(self.spec(n) for n in outs) if step.op.startswith("aten::") else ()     # other libraries' packed layouts have none
        self.out.append(launch.Call(step.op, args, kwargs, slots, writes_input, specs))

    def argument(self, value: object) -> object:
        match value:
            case BufferRef(name):
                return launch.SlotRef(self.whole(name))
            case SizeArg(size):
                return launch.SizeRef(size)
            case tuple() | list():
                return tuple(self.argument(v) for v in value)
            case _:
                return value
