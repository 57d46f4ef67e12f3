"""Iteration spaces of fused nodes, and how one space is laid over another.

A `Space` has axes, some of them inner (what reductions run over). `align` maps the axes of one space onto another by the
coordinates at which both touch the same buffer, splitting axes where one side sees a merged dimension and the other its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from thruway.core import sizes
from thruway.core.sizes import Ranges, SizeLike, Symbol, as_symbol
from thruway.loops.ir import Axis, Index, Kernel
from thruway.schedule.rewrite import is_size, weigh

Coordinates = tuple[Index, ...]
AxisMap = dict[Symbol, SizeLike]


@dataclass(frozen=True, slots=True)
class Space:
    """`axes` have distinct names and no extent 1; `inner` names those that reductions run over (or that rows span)."""

    axes: tuple[Axis, ...]
    inner: frozenset[str] = frozenset()

    @property
    def outer_axes(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.name not in self.inner)

    @property
    def inner_axes(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.name in self.inner)

    @property
    def ranges(self) -> Ranges:
        return ranges_of(self.axes)


@dataclass(frozen=True, slots=True)
class Alignment:
    """The common space, and what each side's axis symbols become in it."""

    space: Space
    first: AxisMap
    second: AxisMap


def ranges_of(axes: Iterable[Axis]) -> Ranges:
    return {Symbol(a.name): (0, a.extent - 1 if type(a.extent) is int else None) for a in axes}


def fresh_space(axes: Sequence[Axis], inner: Sequence[Axis], names: count) -> tuple[Space, AxisMap]:
    """A space for one node with axis names nobody else has; axes of extent 1 become coordinate 0."""
    mapping: AxisMap = {}
    kept, inner_names = [], set()
    for axis in (*axes, *inner):
        if axis.extent == 1:
            mapping[Symbol(axis.name)] = 0
            continue
        new = Axis(f"x{next(names)}", axis.extent)
        mapping[Symbol(axis.name)] = new.index
        kept.append(new)
        if axis in inner:
            inner_names.add(new.name)
    return Space(tuple(kept), frozenset(inner_names)), mapping


def align(first: Space, second: Space, pairs: Iterable[tuple[Coordinates, Coordinates]], names: count) -> Alignment | None:
    """`second` laid over `first`; `pairs` are coordinates (of first, of second) that should mean the same element."""
    mapping = bare_matches(first, second, pairs)
    used = {s for value in mapping.values() for s in sizes.symbols(value)}
    rest_first = tuple(a for a in first.axes if Symbol(a.name) not in used)
    rest_second = tuple(a for a in second.axes if Symbol(a.name) not in mapping)
    if not rest_second and (not rest_first or _is_outer_of(used, first) and not second.inner):
        return _merged(first, second, {}, mapping, first.axes)
    if rest_second and not rest_first:
        return _extended(first, second, mapping, rest_second)
    refined = refine(rest_first, rest_second, names)
    if refined is None:
        return _by_extents(first, second, names)
    axes, of_first, of_second = refined
    return _merged(first, second, of_first, {**_mapped(mapping, of_first), **of_second}, _replaced(first.axes, of_first, axes))


def bare_matches(first: Space, second: Space, pairs: Iterable[tuple[Coordinates, Coordinates]]) -> AxisMap:
    """Axes of `second` that are plainly an axis of `first`."""
    extents = {Symbol(a.name): a.extent for a in (*first.axes, *second.axes)}
    mine = {Symbol(a.name) for a in first.axes}
    theirs = {Symbol(a.name) for a in second.axes}
    mapping: AxisMap = {}
    taken: set[Symbol] = set()
    for of_first, of_second in pairs:
        for one, two in zip(of_first, of_second, strict=True):
            a, b = (as_symbol(x) if is_size(x) else None for x in (one, two))
            if a in mine and b in theirs and a not in taken and b not in mapping and extents[a] == extents[b]:
                mapping[b] = one
                taken.add(a)
    return mapping


def _is_outer_of(used: set[Symbol], space: Space) -> bool:
    return bool(space.inner) and used == {Symbol(a.name) for a in space.outer_axes}


def _by_extents(first: Space, second: Space, names: count) -> Alignment | None:
    """Matching by position alone: whole against whole, or the second against the first's outer axes."""
    refined = refine(first.axes, second.axes, names)
    if refined is not None:
        axes, of_first, of_second = refined
        return _merged(first, second, of_first, of_second, axes)
    if first.inner and not second.inner and (refined := refine(first.outer_axes, second.axes, names)) is not None:
        axes, of_first, of_second = refined
        return _merged(first, second, of_first, of_second, (*axes, *first.inner_axes))
    return None


def _extended(first: Space, second: Space, mapping: AxisMap, rest: tuple[Axis, ...]) -> Alignment | None:
    """All of `first` is the outer part of `second`; what is left becomes the inner axes."""
    names = {a.name for a in rest}
    leading = second.axes[: len(second.axes) - len(rest)]
    if first.inner or (second.inner and second.inner != names) or any(a in rest for a in leading):
        return None
    space = Space(first.axes + rest, frozenset(names))
    return Alignment(space, {}, {**mapping, **{Symbol(a.name): a.index for a in rest}})


def _merged(first: Space, second: Space, of_first: AxisMap, of_second: AxisMap, axes: tuple[Axis, ...]) -> Alignment | None:
    """The alignment over `axes`, if both sides agree about what is inner."""
    inner_first = _image(first.inner, of_first)
    inner_second = _image(second.inner, of_second)
    if inner_first and inner_second and inner_first != inner_second:
        return None
    inner = inner_first or inner_second
    outer_used = _image({a.name for a in second.outer_axes}, of_second) if second.inner else frozenset()
    if inner & outer_used:
        return None
    return Alignment(Space(axes, inner), of_first, of_second)


def _image(names: Iterable[str], mapping: AxisMap) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        value = mapping.get(Symbol(name))
        found |= {name} if value is None else {s.name for s in sizes.symbols(value)}
    return frozenset(found)


def _mapped(mapping: AxisMap, values: Mapping[Symbol, SizeLike]) -> AxisMap:
    return {k: sizes.substitute(v, values) for k, v in mapping.items()} if values else dict(mapping)


def _replaced(axes: tuple[Axis, ...], split: AxisMap, parts: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """`axes` with each axis in `split` replaced by its parts, in order."""
    by_name = {a.name: a for a in parts}
    result: list[Axis] = []
    for axis in axes:
        value = split.get(Symbol(axis.name))
        if value is None:
            result.append(axis)
        else:
            found = {s.name for s in sizes.symbols(value)}
            result.extend(p for p in parts if p.name in found and p.name in by_name)
    return tuple(result)


def refine(first: Sequence[Axis], second: Sequence[Axis], names: count) -> tuple[tuple[Axis, ...], AxisMap, AxisMap] | None:
    """The common refinement of two lists of axes with equal products, innermost first: new axes, and each old axis over them."""
    parts: list[Axis] = []
    maps: tuple[AxisMap, AxisMap] = ({}, {})
    stacks = ([[a, a.extent, 1] for a in first], [[a, a.extent, 1] for a in second])
    while stacks[0] and stacks[1]:
        tops = stacks[0][-1], stacks[1][-1]
        step = _common(tops[0][1], tops[1][1])
        if step is None:
            return None
        part = Axis(f"x{next(names)}", step)
        parts.append(part)
        for stack, top, mapping in zip(stacks, tops, maps, strict=True):
            symbol = Symbol(top[0].name)
            mapping[symbol] = mapping.get(symbol, 0) + part.index * top[2]
            top[1], top[2] = sizes.floordiv(top[1], step), sizes.mul(top[2], step)
            if top[1] == 1:
                stack.pop()
    if stacks[0] or stacks[1]:
        return None
    return tuple(reversed(parts)), *maps


def _common(a: SizeLike, b: SizeLike) -> SizeLike | None:
    """The smaller of two extents if it divides the other."""
    for small, large in ((a, b), (b, a)):
        if small not in (0, 1) and sizes.mod(large, small) == 0 and sizes.mul(sizes.floordiv(large, small), small) == large:
            return small
    return None


def is_injective(index: Sequence[Index], axes: Sequence[Axis]) -> bool:
    """Whether different points of `axes` surely give different coordinates: every axis stands in a mixed-radix coordinate."""
    covered = _told_apart(index, axes)
    return all(a.extent == 1 or Symbol(a.name) in covered for a in axes)


def unsafe_axes(kernel: Kernel) -> frozenset[str]:
    """Axes along which two points of a kernel may write one element, so that their order is meaning."""
    found: set[str] = set()
    for phase in kernel.phases:
        axes = kernel.outer + phase.inner
        private = {b.name for b in kernel.scratch}
        for store in phase.stores:
            if store.buffer not in private:
                covered = _told_apart(store.index, axes)
                found |= {a.name for a in axes if Symbol(a.name) not in covered}
    return frozenset(found)


def _told_apart(index: Sequence[Index], axes: Sequence[Axis]) -> set[Symbol]:
    covered: set[Symbol] = set()
    extents = {Symbol(a.name): a.extent for a in axes}
    for one in index:
        if is_size(one):
            covered |= _radix_symbols(one, extents)
    return covered


def _radix_symbols(size: SizeLike, extents: Mapping[Symbol, SizeLike]) -> set[Symbol]:
    """The axes that `size` tells apart: symbols with coefficients that grow by at least the extents below them."""
    if type(size) is int:
        return set()
    terms = []
    for monomial, coefficient in size.terms.items():
        mine = [a for a in monomial if isinstance(a, Symbol) and a in extents]
        if len(mine) > 1 or any(not isinstance(a, Symbol) for a in monomial):
            return set()
        if mine:
            others = sizes.product(sizes.atom(a) for a in monomial if a not in extents)
            terms.append((mine[0], sizes.mul(others, coefficient)))
    found: set[Symbol] = set()
    reach: SizeLike = 1
    for symbol, coefficient in sorted(terms, key=lambda t: weigh(t[1])):
        if not _at_least(coefficient, reach):
            return set()
        found.add(symbol)
        reach = sizes.mul(coefficient, extents[symbol])
    return found


def _at_least(a: SizeLike, b: SizeLike) -> bool:
    low = sizes.bounds(sizes.add(a, sizes.mul(b, -1)))[0]
    return low is not None and low >= 0
