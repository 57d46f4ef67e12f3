"""A kernel in terms of memory: every index becomes an element offset into the storage it reaches, and axes that run on together merge.

After this a Load or Store has its storage's root buffer and an `index` that is a sum: one size, then computed terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thruway.core import sizes
from thruway.core.dtypes import ITEMSIZE, LOW_FLOATS
from thruway.core.sizes import FloorDiv, Max, Min, Mod, SizeLike, Symbol
from thruway.loops.ir import (
    MOMENTS, Axis, Buffer, Condition, Expr, Index, IndexValue, Kernel, Let, Literal, Load, Op, Phase, Reduction, Store, Var, Within,
)
from thruway.schedule.depend import root
from thruway.schedule.layout import contiguous
from thruway.schedule.phases import phase_values
from thruway.schedule.rewrite import is_size, own_sizes, rewrite, walk, weigh

ARG_REDUCTIONS = frozenset({"argmin", "argmax"})
ORDERED = ARG_REDUCTIONS | frozenset(MOMENTS)       # reductions that ask where an element stands among the reduced ones
RAW = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and squared distances of the row that `row` reads along the inner axes of phase number `phase`, as eager has them for `dtype`;
    None for one that nobody wants."""

    phase: int
    row: Load
    dtype: str
    mean: str | None
    squares: str | None


@dataclass(frozen=True, slots=True)
class Flat:
    """`kernel` with offsets for indices; `unsafe` axes must run in order (points may collide in an in-place write);
    `ranks` is, per phase, the position of a point among the reduced ones, for argmin, argmax and moments, which `hold_rows` sets apart."""

    kernel: Kernel
    buffers: dict[str, Buffer]
    unsafe: frozenset[str]
    ranks: tuple[SizeLike, ...]
    moments: tuple[Moments, ...] = ()


def flatten(kernel: Kernel, buffers: Mapping[str, Buffer], unsafe: frozenset[str]) -> Flat:
    """`kernel` over element offsets, with as few axes as its accesses allow."""
    scratch = {b.name: replace(b, strides=contiguous(b.sizes)) for b in kernel.scratch}
    every = {**buffers, **scratch}
    phases = tuple(_flat_phase(p, every, scratch) for p in kernel.phases)
    ranks = tuple(_rank(p.inner) if any(r.op in ORDERED for r in p.reductions) else 0 for p in phases)
    used = {root(n, every) for n in (*kernel.reads, *kernel.writes)} | set(scratch)
    flat = Flat(replace(kernel, phases=phases, scratch=tuple(scratch.values())), {n: every[n] for n in used}, unsafe, ranks)
    return _collapse(_sorted(flat))


def _rank(inner: Sequence[Axis]) -> SizeLike:
    """The position of a point of `inner`, row-major."""
    total: SizeLike = 0
    for axis, stride in zip(inner, contiguous(tuple(a.extent for a in inner)), strict=True):
        total = sizes.add(total, sizes.mul(axis.index, stride))
    return total


def _flat_phase(phase: Phase, buffers: Mapping[str, Buffer], scratch: Mapping[str, Buffer]) -> Phase:
    seen: dict[int, Expr] = {}
    keep: list[Expr] = []

    def flat(expr: Expr) -> Expr:
        keep.append(expr)
        return rewrite(expr, lambda size: size, lambda load: replace(_flat_load(load, buffers), dtype=load.dtype), seen)

    lets = {x.var: flat(x.value) for x in phase.lets}
    stores = []
    for store in phase.stores:
        name, index = _offset(store.buffer, tuple(i if is_size(i) else flat(i) for i in store.index), buffers)
        value = flat(store.value)
        copied = _raw(value, lets, buffers[store.buffer].dtype, scratch) if store.mode == "set" and store.buffer not in scratch else value
        stores.append(Store(name, index, copied, store.mode))
    return Phase(
        phase.inner,
        tuple(Let(name, value) for name, value in lets.items()),
        tuple(replace(r, value=flat(r.value)) for r in phase.reductions),
        tuple(stores),
    )


def _flat_load(load: Load, buffers: Mapping[str, Buffer]) -> Load:
    name, index = _offset(load.buffer, load.index, buffers)
    return Load(name, index, load.dtype)


def _offset(name: str, index: Sequence[Index], buffers: Mapping[str, Buffer]) -> tuple[str, tuple[Index, ...]]:
    buffer = buffers[name]
    total: SizeLike = buffer.offset if buffer.alias is not None else 0
    computed: list[Expr] = []
    for one, stride in zip(index, buffer.strides, strict=True):
        if is_size(one):
            total = sizes.add(total, sizes.mul(one, stride))
        elif stride == 1:
            computed.append(one)
        else:                                                    # where the stride is 0 too: a check stands in it
            computed.append(Op("mul", (one, Literal(stride, "int64") if type(stride) is int else IndexValue(stride, "int64")), "int64"))
    base = buffer
    while base.alias is not None:
        base = buffers[base.alias]
        total = sizes.add(total, base.offset if base.alias is not None else 0)
    return base.name, (total, *computed)


def _raw(value: Expr, lets: Mapping[str, Expr], dtype: str, scratch: Mapping[str, Buffer]) -> Expr:
    """A value that is only moved from memory to memory, as the bits there, so that nothing is converted on the way. Scratch rows hold floats."""
    if dtype not in LOW_FLOATS:
        return value
    bits = _as_bits(value, lets, dtype, scratch)
    return value if bits is None else bits


def _as_bits(value: Expr, lets: Mapping[str, Expr], dtype: str, scratch: Mapping[str, Buffer]) -> Expr | None:
    match value:
        case Load(buffer, index, kind) if kind == dtype and buffer not in scratch:
            return Load(buffer, index, RAW[ITEMSIZE[dtype]])
        case Var(name) if name in lets:
            return _as_bits(lets[name], lets, dtype, scratch)
        case Literal(0, _):
            return Literal(0, RAW[ITEMSIZE[dtype]])
        case Within(conditions, then, other, _):
            inside, outside = (_as_bits(x, lets, dtype, scratch) for x in (then, other))
            return None if inside is None or outside is None else Within(conditions, inside, outside, RAW[ITEMSIZE[dtype]])
        case _:
            return None


# axis order and merging


def _accesses(phase: Phase) -> list[tuple[str, SizeLike, int]]:
    """(buffer, linear offset, weight) of each access; a store counts twice."""
    found: list[Any] = [(s.buffer, s.index[0], 2) for s in phase.stores]
    found += [(x.buffer, x.index[0], 1) for x in walk(*phase_values(phase)) if isinstance(x, Load)]
    return found


def coefficient(size: SizeLike, symbol: Symbol) -> SizeLike | None:
    """What `symbol` is multiplied by in `size`, 0 where it is absent, None where `size` is not affine in it."""
    if type(size) is int:
        return 0
    total: SizeLike = 0
    for monomial, factor in size.terms.items():
        for atom in monomial:
            if isinstance(atom, (FloorDiv, Mod, Max, Min)) and symbol in sizes.symbols(atom.left) | sizes.symbols(atom.right):
                return None
        if symbol in monomial:
            rest = list(monomial)
            rest.remove(symbol)
            if symbol in rest:
                return None
            total = sizes.add(total, sizes.mul(factor, sizes.product(sizes.atom(a) for a in rest)))
    return total


def _sorted(flat: Flat) -> Flat:
    """Outer and inner axes by falling stride of the accesses that weigh most, so that the last one runs along memory."""
    kernel = flat.kernel
    private = {b.name for b in kernel.scratch}
    accesses = [a for p in kernel.phases for a in _accesses(p) if a[0] not in private]

    def stride(axis: Axis) -> tuple[int, int]:
        """Votes for standing last, then the stride in the heaviest access that moves with the axis."""
        symbol = Symbol(axis.name)
        strides = [(weight * weigh(sizes.product(flat.buffers[b].sizes)), coefficient(size, symbol)) for b, size, weight in accesses]
        strides = [(w, weigh(c)) for w, c in strides if c is not None and c != 0]
        ones = sum(w for w, c in strides if abs(c) == 1)
        heaviest = max(strides, key=lambda t: t[0], default=(0, 1 << 60))
        return -ones, abs(heaviest[1])

    def arranged(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        keys = {a.name: stride(a) for a in axes}
        best = min(axes, key=lambda a: keys[a.name], default=None)
        rest = sorted((a for a in axes if a is not best), key=lambda a: -keys[a.name][1])
        return (*rest, best) if best is not None and keys[best.name][0] < 0 else tuple(sorted(axes, key=lambda a: -keys[a.name][1]))

    phases = tuple(replace(p, inner=arranged(p.inner)) if p.inner and not kernel.scan else p for p in kernel.phases)
    shared = next((p.inner for p in phases if p.inner), ())
    phases = tuple(replace(p, inner=shared) if p.inner else p for p in phases)
    return replace(flat, kernel=replace(kernel, outer=arranged(kernel.outer), phases=phases))


def _collapse(flat: Flat) -> Flat:
    """Neighbouring axes merged wherever every size moves along them as along one axis."""
    changed = True
    while changed:
        changed = False
        kernel = flat.kernel
        inner = next((p.inner for p in kernel.phases if p.inner), ())
        for group in (kernel.outer, inner):
            for first, second in zip(group, group[1:], strict=False):
                merged = _merge_pair(flat, first, second)
                if merged is not None:
                    flat, changed = merged, True
                    break
            if changed:
                break
    return flat


def _merge_pair(flat: Flat, first: Axis, second: Axis) -> Flat | None:
    kernel = flat.kernel
    if kernel.scan is not None or (first.name in flat.unsafe) != (second.name in flat.unsafe):
        return None
    a, b = Symbol(first.name), Symbol(second.name)
    for phase in kernel.phases:
        for expr in walk(*phase_values(phase)):
            if isinstance(expr, Within):
                if not all(_merges_condition(c, a, b, second.extent) for c in expr.conditions):
                    return None
            elif not all(_merges(s, a, b, second.extent) for s in own_sizes(expr)):
                return None
        if not all(_merges(s.index[0], a, b, second.extent) for s in phase.stores):
            return None
    if not all(_merges(rank, a, b, second.extent) for rank in flat.ranks):
        return None
    return _merged(flat, first, second)


def _merges(size: SizeLike, a: Symbol, b: Symbol, extent: SizeLike) -> bool:
    if type(size) is int:
        return True
    one, two = coefficient(size, a), coefficient(size, b)
    return one is not None and two is not None and one == sizes.mul(two, extent)


def _merges_condition(condition: Condition, a: Symbol, b: Symbol, extent: SizeLike) -> bool:
    if a in sizes.symbols(condition.right) or b in sizes.symbols(condition.right):
        return False
    if _merges(condition.left, a, b, extent):
        return True
    return coefficient(condition.left, a) == 1 and coefficient(condition.left, b) == 0


def _merged(flat: Flat, first: Axis, second: Axis) -> Flat:
    a, b = Symbol(first.name), Symbol(second.name)
    axis = Axis(second.name, sizes.mul(first.extent, second.extent))
    values = {a: 0}

    def on_size(size: SizeLike) -> SizeLike:
        return sizes.substitute(size, values)

    def on_condition(c: Condition) -> Condition:
        if _merges(c.left, a, b, second.extent):
            return Condition(on_size(c.left), c.right)
        rest = sizes.add(c.left, sizes.mul(first.index, -1))
        return Condition(sizes.add(axis.index, sizes.mul(rest, second.extent)), sizes.mul(c.right, second.extent))

    seen: dict[int, Expr] = {}

    def again(expr: Expr) -> Expr:
        return _rewrite_conditions(expr, on_size, on_condition, seen)

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(axis if x.name == second.name else x for x in old if x.name != first.name)

    phases = tuple(
        Phase(
            axes(p.inner),
            tuple(Let(x.var, again(x.value)) for x in p.lets),
            tuple(Reduction(r.var, r.op, again(r.value), r.dtype) for r in p.reductions),
            tuple(Store(s.buffer, (on_size(s.index[0]), *(again(i) for i in s.index[1:])), again(s.value), s.mode) for s in p.stores),
        )
        for p in flat.kernel.phases
    )
    kernel = replace(flat.kernel, outer=axes(flat.kernel.outer), phases=phases)
    unsafe = flat.unsafe - {first.name}
    return replace(flat, kernel=kernel, unsafe=unsafe, ranks=tuple(on_size(r) for r in flat.ranks))


def _rewrite_conditions(expr: Expr, on_size, on_condition, seen: dict[int, Expr]) -> Expr:
    """`rewrite` that maps whole conditions: their two sides change together."""
    if not any(isinstance(x, Within) for x in walk(expr)):
        return rewrite(expr, on_size, None, seen)
    key = id(expr)
    if key in seen:
        return seen[key]

    def again(x: Expr) -> Expr:
        return _rewrite_conditions(x, on_size, on_condition, seen)

    match expr:
        case Within(conditions, then, other, dtype):
            result: Expr = Within(tuple(on_condition(c) for c in conditions), again(then), again(other), dtype)
        case Op(name, args, dtype):
            result = Op(name, tuple(again(a) for a in args), dtype)
        case Load(buffer, index, dtype):
            result = Load(buffer, tuple(on_size(i) if is_size(i) else again(i) for i in index), dtype)
        case _:
            result = replace(expr, x=again(expr.x))
    seen[key] = result
    return result
