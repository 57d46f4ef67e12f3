"""One group becomes one Kernel: members are given phases, values that stay inside become Lets, reduction results or scratch rows.

Phases alternate: even numbers run over the inner axes, odd ones once per outer point. A value that is read in a later phase
is computed again where that is cheaper than keeping its row, read back where it is in memory anyway, else kept in scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import (
    MOMENTS, Axis, Buffer, Cast, Compute, Expr, Index, Kernel, Let, Literal, Load, Node, Op, Phase, Reduction, Scan, Store, Update, Var,
)
from thruway.schedule.fuse import Group
from thruway.schedule.rewrite import cost, is_size, loads, rewrite, strip_reduce, substitution, walk

RECOMPUTE_BELOW = 3   # cost up to which a value is computed again in a later phase


@dataclass(slots=True)
class _Draft:
    """A phase while it is filled."""

    lets: list[Let] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)


def build_kernel(name: str, group: Group, nodes: Sequence[Node], buffers: Mapping[str, Buffer], needed: frozenset[str]) -> Kernel:
    """The kernel of `group`; `needed` are the buffers that something outside the group reads."""
    node = nodes[group.nodes[0]]
    if isinstance(node, Scan):
        return _scan_kernel(name, node, buffers)
    return _Builder(name, group, nodes, buffers, needed).build()


def _scan_kernel(name: str, node: Scan, buffers: Mapping[str, Buffer]) -> Kernel:
    outer = tuple(a for a in node.axes if a.name != node.axis.name)
    store = Store(node.out, tuple(a.index for a in node.axes), Var("run0", node.value.dtype))
    phase = Phase((node.axis,), reductions=(Reduction("run0", node.op, node.value, node.value.dtype),), stores=(store,))
    reads = tuple(dict.fromkeys(x.buffer for x in loads(node.value)))
    return Kernel(name, outer, (phase,), reads, (node.out,), scan=node.axis, origin=(node.origin,))


class _Builder:
    def __init__(self, name: str, group: Group, nodes: Sequence[Node], buffers: Mapping[str, Buffer], needed: frozenset[str]):
        self.name, self.group, self.nodes, self.buffers, self.needed = name, group, nodes, buffers, needed
        self.rename = self._stable_names()
        self.ranges = {Symbol(a.name): (0, a.extent - 1 if type(a.extent) is int else None) for a in self.axes}
        self.inner = {Symbol(a.name) for a in self.inner_axes}
        self.defined = {nodes[i].out: i for i in group.nodes if isinstance(nodes[i], Compute)}
        self.phase: dict[int, int] = {}
        self.drafts: dict[int, _Draft] = {}
        self.scratch: dict[str, Buffer] = {}
        self.vars: dict[str, Var] = {}
        self.values: dict[int, Expr] = {}
        self.readers: dict[str, set[int]] = {}
        self.indices: dict[int, tuple[Index, ...]] = {}

    def _stable_names(self) -> dict[Symbol, SizeLike]:
        """Axis names by position: outer axes first (i0, i1, …), then inner ones (r0, r1, …)."""
        space = self.group.space
        outer = [(a, Axis(f"i{k}", a.extent)) for k, a in enumerate(space.outer_axes)]
        inner = [(a, Axis(f"r{k}", a.extent)) for k, a in enumerate(space.inner_axes)]
        self.outer_axes = tuple(new for _, new in outer)
        self.inner_axes = tuple(new for _, new in inner)
        self.axes = self.outer_axes + self.inner_axes
        return {Symbol(old.name): new.index for old, new in outer + inner}

    def build(self) -> Kernel:
        for i in self.group.nodes:
            self._prepare(i)
        for i in self.group.nodes:
            for name, j in self.defined.items():
                if self._reads(i, name) and j != i:
                    self.readers.setdefault(name, set()).add(self.phase[i])
        for i in self.group.nodes:
            self._place(i)
        phases = tuple(self._phase(k, self.drafts[k]) for k in sorted(self.drafts))
        return _trimmed(Kernel(self.name, self.outer_axes, phases, (), (), tuple(self.scratch.values()),
                               origin=tuple(self.nodes[i].origin for i in self.group.nodes)))

    def _phase(self, number: int, draft: _Draft) -> Phase:
        inner = self.inner_axes if number % 2 == 0 else ()
        return Phase(inner, tuple(draft.lets), tuple(draft.reductions), tuple(draft.stores))

    def _prepare(self, i: int) -> None:
        """The node's value over the kernel's axes, and its phase."""
        node = self.nodes[i]
        mapping = {k: sizes.substitute(v, self.rename) for k, v in self.group.maps[i].items()}
        on_size = substitution(mapping, self.ranges)
        seen: dict[int, Expr] = {}
        value = node.value if self.inner or isinstance(node, Update) else _of_one(node.value)
        self.values[i] = rewrite(value, on_size, None, seen)
        index = node.index if isinstance(node, Update) else tuple(a.index for a in node.axes)
        self.indices[i] = tuple(on_size(x) if is_size(x) else rewrite(x, on_size, None, seen) for x in index)
        self.phase[i] = self._number(i)

    def _number(self, i: int) -> int:
        per_row = self._is_scalar(i)
        number = -1 if per_row else 0
        for load in self._internal_loads(i):
            j = self.defined[load.buffer]
            known = self.phase[j] + (1 if self._reduction(j) is not None else 0)
            if per_row:
                number = max(number, known if known % 2 else known + 1)
            elif known % 2:
                number = max(number, known + 1)
            else:
                number = max(number, known if load.index == self.indices[j] else known + 2)
        return number

    def _internal_loads(self, i: int) -> list[Load]:
        index = [x for x in self.indices[i] if not is_size(x)] if isinstance(self.nodes[i], Update) else []
        return [x for x in loads(self.values[i], *index) if x.buffer in self.defined]

    def _reads(self, i: int, name: str) -> bool:
        return any(x.buffer == name for x in self._internal_loads(i))

    def _is_scalar(self, i: int) -> bool:
        """Whether the node is computed once per outer point and not by reducing over the row."""
        if not self.inner or self._reduction(i) is not None:
            return False
        node = self.nodes[i]
        own = {s for a in node.axes for s in sizes.symbols(sizes.substitute(self.group.maps[i][Symbol(a.name)], self.rename))}
        return not own & self.inner

    def _reduction(self, i: int):
        return strip_reduce(self.values[i])[0]

    def _place(self, i: int) -> None:
        """Node i's Let, Reduction or Store into its phase."""
        node, number = self.nodes[i], self.phase[i]
        draft = self._draft(number)
        value = self._resolved(self.values[i], number)
        if isinstance(node, Update):
            index = tuple(x if is_size(x) else self._resolved(x, number) for x in self.indices[i])
            draft.stores.append(Store(node.target, index, value, node.mode))
            return
        reduce, cast = strip_reduce(value)
        if reduce is not None:
            self._place_reduction(node.out, draft, number, reduce, cast, i)
            return
        self._place_value(node.out, draft, number, value, i)

    def _place_reduction(self, out: str, draft: _Draft, number: int, reduce, cast: str | None, i: int) -> None:
        name = f"v{len(self.vars)}"
        draft.reductions.append(Reduction(name, reduce.op, reduce.x, reduce.dtype))
        result: Expr = Var(name, reduce.dtype)
        if cast is not None:
            let = Let(f"{name}_cast", Cast(result, cast))
            self._draft(number + 1).lets.append(let)
            result = Var(let.var, cast)
        self.vars[out] = result
        if out in self.needed:
            self._draft(number + 1).stores.append(Store(out, self.indices[i], result))

    def _place_value(self, out: str, draft: _Draft, number: int, value: Expr, i: int) -> None:
        name = f"v{len(self.vars)}"
        draft.lets.append(Let(name, value))
        result = Var(name, value.dtype)
        self.vars[out] = result
        read_later = number % 2 == 0 and any(later > number for later in self.readers.get(out, ()))
        if read_later and out not in self.needed and not self._cheap_again(out, value):
            if self.outer_axes:
                self._keep_row(out, draft, result)
            else:
                self.needed |= {out}
        if out in self.needed:
            draft.stores.append(Store(out, self.indices[i], result))

    def _cheap_again(self, out: str, value: Expr) -> bool:
        """Whether later phases compute `out` again; they may only where each reads it at the same point."""
        at = self.indices[self.defined[out]]
        same = all(x.index == at for i in self.group.nodes for x in self._internal_loads(i) if x.buffer == out)
        return same and cost(value) <= RECOMPUTE_BELOW and len(loads(value)) <= 1

    def _keep_row(self, out: str, draft: _Draft, value: Var) -> None:
        row = tuple(a.extent for a in self.inner_axes)
        self.scratch[out] = Buffer(out, self.buffers[out].dtype, row, None)
        draft.stores.append(Store(out, tuple(a.index for a in self.inner_axes), value))

    def _resolved(self, value: Expr, number: int) -> Expr:
        """Loads of members' results replaced by Vars, by scratch rows, or by the expression again."""

        def on_load(load: Load) -> Expr:
            if load.buffer not in self.defined:
                return load
            j = self.defined[load.buffer]
            var = self.vars[load.buffer]
            if self._reduction(j) is not None or self.phase[j] % 2 or (self.phase[j] == number and load.index == self.indices[j]):
                return var
            if load.buffer in self.scratch:
                return self._from_scratch(load, j)
            if load.buffer in self.needed:
                return load
            return self._resolved(self.values[j], number)

        return rewrite(value, lambda size: size, on_load)

    def _from_scratch(self, load: Load, j: int) -> Load:
        """The load in row coordinates: each inner axis from the dimension it stood in."""
        at: dict[Symbol, Index] = {}
        for one, own in zip(load.index, self.indices[j], strict=True):
            _solve(own, one, self.inner_axes, at, self.ranges)
        return Load(load.buffer, tuple(at[Symbol(a.name)] for a in self.inner_axes), load.dtype)

    def _draft(self, number: int) -> _Draft:
        return self.drafts.setdefault(number, _Draft())


def _of_one(value: Expr) -> Expr:
    """A value whose reduction, if it has one, runs over a single element."""
    reduce, cast = strip_reduce(value)
    if reduce is None:
        return value
    element = Literal(0, reduce.dtype) if reduce.op.startswith("arg") else reduce.x
    if reduce.op in MOMENTS and reduce.op.startswith("squares"):
        element = Op("mul", (element, Op("sub", (element, element), element.dtype)), element.dtype)     # 0, and nan of an infinity
    element = element if element.dtype == reduce.dtype else Cast(element, reduce.dtype)
    return element if cast is None else Cast(element, cast)


def _solve(own: SizeLike, at: Index, inner: Sequence[Axis], found: dict[Symbol, Index], ranges: sizes.Ranges) -> None:
    """The inner axes' values where the coordinate `own` (a mixed-radix sum of inner axes) takes the value `at`."""
    mine = [a for a in inner if Symbol(a.name) in sizes.symbols(own)]
    if len(mine) == 1 and own == mine[0].index:
        found[Symbol(mine[0].name)] = at
        return
    step: SizeLike = 1
    for axis in reversed(mine):
        found[Symbol(axis.name)] = sizes.mod(sizes.floordiv(at, step, ranges), axis.extent, ranges)
        step = sizes.mul(step, axis.extent)


def _trimmed(kernel: Kernel) -> Kernel:
    """Without Lets that nothing uses, and with the lists of what is read and written."""
    used: set[str] = set()
    phases = []
    for phase in reversed(kernel.phases):
        roots = [r.value for r in phase.reductions] + [s.value for s in phase.stores]
        roots += [x for s in phase.stores for x in s.index if not is_size(x)]
        for one in roots:
            used |= _vars(one)
        lets = []
        for let in reversed(phase.lets):
            if let.var in used:
                used |= _vars(let.value)
                lets.append(let)
        if lets or phase.reductions or phase.stores:
            phases.append(Phase(phase.inner, tuple(reversed(lets)), phase.reductions, phase.stores))
    phases.reverse()
    private = {b.name for b in kernel.scratch}
    reads = dict.fromkeys(x.buffer for p in phases for e in phase_values(p) for x in loads(e) if x.buffer not in private)
    writes = dict.fromkeys(s.buffer for p in phases for s in p.stores if s.buffer not in private)
    return Kernel(kernel.name, kernel.outer, tuple(phases), tuple(reads), tuple(writes), kernel.scratch, kernel.scan, kernel.origin)


def phase_values(phase: Phase) -> list[Expr]:
    """Every expression of a phase."""
    return [*(x.value for x in phase.lets), *(r.value for r in phase.reductions), *(s.value for s in phase.stores),
            *(x for s in phase.stores for x in s.index if not is_size(x))]


def _vars(expr: Expr) -> set[str]:
    return {x.name for x in walk(expr) if isinstance(x, Var)}
