"""Moves index checks in front of the first write to an input, so that a failed check leaves everything as it was.

Takes steps in order, gives steps in order. Kernels from that write on keep their indices but check nothing any more: what they
would have found, a kernel of checks alone has found before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from thruway.core.errors import Unsupported
from thruway.core.sizes import Symbol
from thruway.loops.ir import Axis, Buffer, CheckIndex, Expr, Extern, IndexValue, Kernel, Let, Literal, Load, Op, Phase, Var, Within
from thruway.schedule.depend import changed_buffers, read_buffers, root, written_buffers
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import children, is_size, map_expressions, symbols, walk

Step = Kernel | Extern


def settle_checks(steps: Sequence[Step], buffers: Mapping[str, Buffer]) -> tuple[Step, ...]:
    """The steps with every check before the first write to something older than the call."""
    steps = _indices_first(steps, buffers)
    first = _first_write(steps, buffers)
    known = {root(name, buffers) for step in steps[:first] for name in _written(step)}
    known |= {name for name, b in buffers.items() if b.kind != "temp"}
    found: dict[tuple[Expr, tuple[Axis, ...]], None] = {}
    for step in steps[first:]:
        for check in _checks(step) if isinstance(step, Kernel) else ():
            if any(isinstance(x, Var) or isinstance(x, Load) and root(x.buffer, buffers) not in known for x in walk(check)):
                raise Unsupported("TW606", "an index that is only known after an input has been written", "write the input last")
            axes = tuple(a for a in _axes(step) if Symbol(a.name) in symbols(check))
            found.setdefault((check, axes))
        known -= {root(name, buffers) for name in _written(step)}
    if not found:
        return tuple(steps)
    ahead = [_check_kernel(f"c{k}", check, axes) for k, (check, axes) in enumerate(found)]
    return (*steps[:first], *ahead, *(_unchecked(s) if isinstance(s, Kernel) else s for s in steps[first:]))


def _first_write(steps: Sequence[Step], buffers: Mapping[str, Buffer]) -> int:
    return next((k for k, step in enumerate(steps) if _writes_input(step, buffers)), len(steps))


def _indices_first(steps: Sequence[Step], buffers: Mapping[str, Buffer]) -> Sequence[Step]:
    """The steps, with those that compute what later checks look at in front of the first write to an input, where nothing is in their way."""
    first = _first_write(steps, buffers)
    touches = [(_roots(_read(step), buffers), _roots(_written(step), buffers)) for step in steps]
    moved: set[int] = set()
    wanted = [(name, k) for k, step in enumerate(steps) if k > first and isinstance(step, Kernel) for name in _roots(_checked(step), buffers)]
    while wanted:
        name, before = wanted.pop()
        makers = {k for k in range(first, before) if name in touches[k][1]} - moved
        moved |= makers
        wanted += [(read, k) for k in makers for read in touches[k][0]]
    left = [k for k in range(first, len(steps)) if k not in moved]
    if any(not _may_pass(k, other, touches) for k in moved for other in left if other < k) or any(_stays(steps[k], buffers) for k in moved):
        return steps
    return [*steps[:first], *(steps[k] for k in sorted(moved)), *(steps[k] for k in left)]


def _may_pass(step: int, other: int, touches: Sequence[tuple[set[str], set[str]]]) -> bool:
    """Whether `step` may run before `other`."""
    (reads, writes), (others_reads, others_writes) = touches[step], touches[other]
    return others_writes.isdisjoint(reads | writes) and writes.isdisjoint(others_reads)


def _stays(step: Step, buffers: Mapping[str, Buffer]) -> bool:
    return _writes_input(step, buffers) or (isinstance(step, Extern) and step.pinned)


def _checked(kernel: Kernel) -> set[str]:
    """The buffers that the kernel's checks look at."""
    return {x.buffer for check in _checks(kernel) for x in walk(check) if isinstance(x, Load)}


def _roots(names: Iterable[str], buffers: Mapping[str, Buffer]) -> set[str]:
    return {root(name, buffers) for name in names}


def _read(step: Step) -> Iterable[str]:
    return step.reads if isinstance(step, Kernel) else read_buffers(step)


def _writes_input(step: Step, buffers: Mapping[str, Buffer]) -> bool:
    names = step.writes if isinstance(step, Kernel) else changed_buffers(step)
    return any(buffers[root(n, buffers)].kind != "temp" for n in names)


def _written(step: Step) -> Sequence[str]:
    return step.writes if isinstance(step, Kernel) else written_buffers(step)


def _axes(kernel: Kernel) -> tuple[Axis, ...]:
    inner = next((p.inner for p in kernel.phases if p.inner), ())
    return kernel.outer + inner


def _checks(kernel: Kernel) -> list[Expr]:
    """The kernel's checks, each under the conditions under which the kernel makes it."""
    found: list[Expr] = []
    seen: set[int] = set()
    values: dict[str, Expr] = {}                                  # of the kernel's variables, written out

    def written_out(x: Expr) -> Expr:
        return values.get(x.name, x) if isinstance(x, Var) else x

    def collect(expr: Expr, guarded: Callable[[Expr], Expr], is_shared: bool) -> None:
        if is_shared and id(expr) in seen:
            return
        seen.add(id(expr))
        if isinstance(expr, CheckIndex):
            found.append(map_expressions(guarded(expr), written_out))
        if not isinstance(expr, Within):
            for x in children(expr):
                collect(x, guarded, is_shared)
            return
        zero = Literal(0, "int64")
        collect(expr.then, lambda x: guarded(Within(expr.conditions, x, zero, "int64")), False)
        collect(expr.other, lambda x: guarded(Within(expr.conditions, zero, x, "int64")), False)

    for phase in kernel.phases:
        values |= {let.var: map_expressions(let.value, written_out) for let in phase.lets}
        for value in phase_values(phase):
            collect(value, lambda x: x, True)
    return found


def _check_kernel(name: str, check: Expr, axes: tuple[Axis, ...]) -> Kernel:
    reads = tuple(dict.fromkeys(x.buffer for x in walk(check) if isinstance(x, Load)))
    return Kernel(name, axes, (Phase((), lets=(Let("check", check),)),), reads, ())


def _unchecked(kernel: Kernel) -> Kernel:
    """The kernel with each check replaced by the index that it gives when it holds."""

    def change(expr: Expr) -> Expr:
        if not isinstance(expr, CheckIndex):
            return expr
        size = Literal(expr.size, "int64") if type(expr.size) is int else IndexValue(expr.size, "int64")
        if not expr.wrap:
            return expr.x
        negative = Op("lt", (expr.x, Literal(0, "int64")), "bool")
        return Op("where", (negative, Op("add", (expr.x, size), "int64"), expr.x), "int64")

    phases = tuple(
        Phase(
            p.inner,
            tuple(replace(x, value=map_expressions(x.value, change)) for x in p.lets),
            tuple(replace(r, value=map_expressions(r.value, change)) for r in p.reductions),
            tuple(replace(s, value=map_expressions(s.value, change),
                          index=tuple(i if is_size(i) else map_expressions(i, change) for i in s.index)) for s in p.stores),
        )
        for p in kernel.phases
    )
    return replace(kernel, phases=phases)
