"""Groups nodes into the kernels to be: vertically (a value with its readers) and horizontally (readers of the same data).

Takes nodes after inlining, gives `Group`s with one iteration space each and every member's axes mapped into it. Holds
afterwards: inside a group, data passes only between the same point, or between points of one row (equal outer coordinates),
so that a kernel that runs its phases row by row computes what the nodes in order compute; and groups form no cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from thruway.core import sizes
from thruway.core.dtypes import ITEMSIZE
from thruway.core.errors import CompilerBug
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import MOMENTS, Buffer, CheckIndex, Compute, Extern, Load, Node, Reduce, Scan, Update
from thruway.schedule.depend import loads_of, members, predecessors, read_buffers, root, values_of, written_buffers
from thruway.schedule.plan import Prediction
from thruway.schedule.products import factors
from thruway.schedule.rewrite import is_size, loads, strip_reduce, walk, weigh
from thruway.schedule.space import Alignment, AxisMap, Coordinates, Space, align, bare_matches, fresh_space, is_injective

LARGEST_GROUP = 48      # nodes
MOST_BUFFERS = 24       # pointers of one kernel
BYTES_PER_MICROSECOND = 12_000
REPEATED_ROW = 4096     # elements of a row that is computed again rather than handed over


@dataclass(slots=True)
class Group:
    """Nodes that become one step. `maps[i]` are node i's axis symbols over the space; `before` every node that must run earlier; `missing`
    are the axes that a node does not move with, so that its row is computed again along them."""

    nodes: list[int]
    space: Space
    maps: dict[int, AxisMap]
    mask: int
    direct: int
    before: int
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    closed: bool = False
    missing: dict[int, frozenset[Symbol]] = field(default_factory=dict)


def fuse(nodes: Sequence[Node], buffers: Mapping[str, Buffer], private: frozenset[str] | None = None) -> tuple[list[Group], tuple[Prediction, ...]]:
    """Groups in an order of creation (not yet of execution), with the traffic each merge should save. `private`: on a target where a step
    costs more than computing a short row again, the buffers that nobody outside the program sees."""
    fuser = Fuser(nodes, buffers)
    for i in range(len(nodes)):
        fuser.add(i)
    if private is not None:
        fuser.repeat_rows(private)
    return [g for g in fuser.groups if g is not None], tuple(fuser.predictions)


class Fuser:
    def __init__(self, nodes: Sequence[Node], buffers: Mapping[str, Buffer]):
        self.nodes, self.buffers = nodes, buffers
        self.names = count()
        self.preds = predecessors(nodes, buffers)
        self.groups: list[Group | None] = []
        self.home: dict[int, int] = {}
        self.defined: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.loads = [() if isinstance(n, Extern) else tuple(loads_of(n)) for n in nodes]
        self.predictions: list[Prediction] = []
        self.inputs_written = 0                              # the nodes that write an input, as a mask
        self.looked_at: set[str] = set()                     # what index checks look at, where any does
        self._find_checks()

    def _find_checks(self) -> None:
        """Checks come before the first write to an input (see `checks`), so what they look at is not computed in that write's kernel."""
        for i, node in enumerate(self.nodes):
            if isinstance(node, Update) and self.buffers[root(node.target, self.buffers)].kind != "temp":
                self.inputs_written |= 1 << i
        if self.inputs_written:
            checks = (x for node in self.nodes for value in values_of(node) for x in walk(value) if isinstance(x, CheckIndex))
            self.looked_at = {load.buffer for check in checks for load in loads(check)}

    def add_alone(self, i: int) -> None:
        """Node i as a group of its own."""
        node = self.nodes[i]
        group = self._singleton(i)
        self.home[i] = len(self.groups)
        self.groups.append(group)
        if isinstance(node, Compute):
            self.defined[node.out] = i

    def add(self, i: int) -> None:
        """Node i as a group of its own, then merged with what it reads and with what reads the same."""
        self.add_alone(i)
        if not self.groups[self.home[i]].closed:
            for j in self._producers(i):
                self._try(self.home[j], self.home[i], horizontal=False)
            for j in self._siblings(i):
                self._try(self.home[j], self.home[i], horizontal=True)
        for name in read_buffers(self.nodes[i]):
            self.readers.setdefault(name, []).append(i)

    def _singleton(self, i: int) -> Group:
        node = self.nodes[i]
        before = self.preds[i]
        for j in {self.home[j] for j in members(self.preds[i])}:
            before |= self.groups[j].before | self.groups[j].mask
        reads = {root(b, self.buffers) for b in read_buffers(node)}
        writes = {root(b, self.buffers) for b in written_buffers(node)}
        match node:
            case Compute(value=value):
                reduce, _ = strip_reduce(value)
                space, mapping = fresh_space(node.axes, reduce.axes if reduce else (), self.names)
                closed = False
            case Update():
                space, mapping = fresh_space(node.axes, (), self.names)
                closed = node.mode != "set" or not is_injective(node.index, node.axes)
            case Scan() | Extern():
                axes = node.axes if isinstance(node, Scan) else ()
                space, mapping, closed = Space(axes), {Symbol(a.name): a.index for a in axes}, True
            case _:
                raise TypeError(f"not a node of a program: {node!r}")
        return Group([i], space, {i: mapping}, 1 << i, self.preds[i], before, reads, writes, closed)

    def _producers(self, i: int) -> list[int]:
        """Nodes whose results node i reads, the most bytes first."""
        found = {self.defined[x.buffer]: weigh(sizes.product(self.buffers[x.buffer].sizes))
                 for x in self.loads[i] if x.buffer in self.defined}
        return sorted(found, key=lambda j: (-found[j], j))

    def _siblings(self, i: int) -> Iterator[int]:
        """Earlier nodes that read a buffer that node i reads in full, the latest first."""
        space = weigh(sizes.product(a.extent for a in self._group(i).space.axes))
        for load in self.loads[i]:
            if 2 * weigh(sizes.product(self.buffers[load.buffer].sizes)) >= space:
                yield from reversed(self.readers.get(load.buffer, [])[-4:])

    def _group(self, i: int) -> Group:
        group = self.groups[self.home[i]]
        if group is None:
            raise CompilerBug("schedule", f"node {i} is in a group that was merged away")
        return group

    def _try(self, at: int, other: int, horizontal: bool) -> None:
        first, second = self.groups[at], self.groups[other]
        if at == other or first.closed or second.closed or not self._allowed(first, second):
            return
        alignment = align(first.space, second.space, self._pairs(first, second), self.names)
        if alignment is None or horizontal and not _same_extents(first.space, second.space):
            return
        merged = self._merge(first, second, alignment)
        if merged is not None:
            self._predict(first, second)
            self._replace(at, other, merged)

    def _allowed(self, first: Group, second: Group) -> bool:
        """No cycle through another group, no in-place write of a storage that the other side touches, and not too large."""
        if len(first.nodes) + len(second.nodes) > LARGEST_GROUP or len(first.reads | second.reads | first.writes | second.writes) > MOST_BUFFERS:
            return False
        for one, two in ((first, second), (second, first)):
            if any(root(self.nodes[i].target, self.buffers) in two.reads | two.writes for i in one.nodes if isinstance(self.nodes[i], Update)):
                return False
            if one.mask & self.inputs_written and not self.looked_at.isdisjoint(two.writes):
                return False
            outside = {self.home[j] for j in members(one.direct & ~one.mask & ~two.mask)}
            if any(self.groups[j].before & two.mask for j in outside):
                return False
        return True

    def repeat_rows(self, private: frozenset[str]) -> None:
        """Rows that one other group alone reads, along more outer axes, are computed again in each of its programs: a norm in the product
        of one row behind it, a softmax in the weighted sum."""
        for at, first in enumerate(self.groups):
            others = set() if first is None else self._readers_of(first, private)
            if len(others) == 1 and (other := others.pop()) != at:
                merged = self._repeated(first, self.groups[other])
                if merged is not None:
                    self._predict(first, self.groups[other])
                    self._replace(at, other, merged)

    def _readers_of(self, group: Group, private: frozenset[str]) -> set[int]:
        """The other groups that read what `group` makes; none where its row is not one to repeat."""
        row = sizes.product(a.extent for a in group.space.inner_axes)
        short = bool(group.space.inner) and type(row) is int and row <= REPEATED_ROW
        plain = all(isinstance(self.nodes[i], Compute) for i in group.nodes) and not group.missing
        if group.closed or not short or not plain or not all(name in private for name, _ in self._definitions(group)):
            return set()
        made = {name for name, _ in self._definitions(group)}
        return {self.home[j] for name in made for j in self.readers.get(name, ())} - {self.home[group.nodes[0]]}

    def _repeated(self, first: Group, second: Group) -> Group | None:
        """`second` with the rows of `first`, where each axis of `first` is one of `second`'s, the inner ones all of its inner ones."""
        if second.closed or not self._allowed(first, second) or any(self._has_rows(i) for i in second.nodes):
            return None
        mapping = bare_matches(second.space, first.space, self._pairs(second, first))
        places = {a.name: sizes.symbols(mapping.get(Symbol(a.name), 0)) for a in first.space.axes}
        inner = {s for name in first.space.inner for s in places[name]}
        outer = {s for a in first.space.outer_axes for s in places[a.name]}
        missing = {Symbol(a.name) for a in second.space.outer_axes} - outer
        if not all(places.values()) or inner != {Symbol(n) for n in second.space.inner} or inner & outer or not missing:
            return None
        maps = {i: {k: sizes.substitute(v, mapping) for k, v in first.maps[i].items()} for i in first.nodes} | second.maps
        mask = first.mask | second.mask
        merged = Group(sorted(maps), second.space, maps, mask, (first.direct | second.direct) & ~mask, (first.before | second.before) & ~mask,
                       first.reads | second.reads, first.writes | second.writes, False, second.missing | dict.fromkeys(first.nodes, frozenset(missing)))
        return merged if self._rows_hold(merged) else None

    def _has_rows(self, i: int) -> bool:
        """Whether node i is a product that tensor cores take."""
        node = self.nodes[i]
        reduce = strip_reduce(node.value)[0] if isinstance(node, Compute) else None
        return reduce is not None and reduce.op == "sum" and factors(reduce.x, [a for a in node.axes if a.extent != 1]) is not None

    def _pairs(self, first: Group, second: Group) -> list[tuple[Coordinates, Coordinates]]:
        """Coordinates at which both groups touch the same buffer, definitions before mere shared reads."""
        result = []
        for one, two, swap in ((first, second, False), (second, first, True)):
            for name, i in self._definitions(one):
                for j in two.nodes:
                    result.extend(_ordered(self._coordinates(one, i), _mapped(x, two.maps[j]), swap) for x in self.loads[j] if x.buffer == name)
        if not result:
            for j in second.nodes:
                for x in self.loads[j]:
                    result.extend((_mapped(y, first.maps[i]), _mapped(x, second.maps[j]))
                                  for i in first.nodes for y in self.loads[i] if x.buffer == y.buffer)
        return result

    def _definitions(self, group: Group) -> Iterator[tuple[str, int]]:
        for i in group.nodes:
            if isinstance(self.nodes[i], Compute):
                yield self.nodes[i].out, i

    def _coordinates(self, group: Group, i: int) -> tuple[SizeLike, ...]:
        return tuple(group.maps[i][Symbol(a.name)] for a in self.nodes[i].axes)

    def _merge(self, first: Group, second: Group, alignment: Alignment) -> Group | None:
        maps = {}
        ranges = alignment.space.ranges
        for group, change in ((first, alignment.first), (second, alignment.second)):
            for i in group.nodes:
                maps[i] = {k: sizes.substitute(v, change, ranges) for k, v in group.maps[i].items()} if change else group.maps[i]
        mask = first.mask | second.mask
        merged = Group(sorted(maps), alignment.space, maps, mask, (first.direct | second.direct) & ~mask,
                       (first.before | second.before) & ~mask, first.reads | second.reads, first.writes | second.writes)
        return merged if self._rows_hold(merged) else None

    def _rows_hold(self, group: Group) -> bool:
        """Whether every value passed inside the group stays in its row, and reductions run over exactly the inner axes."""
        ranges = group.space.ranges
        inner = {Symbol(n) for n in group.space.inner}
        defined = dict(self._definitions(group))
        roots = set(defined)
        for i in group.nodes:
            level = self._level(group, i, inner)
            if level is None:
                return False
            for load in self.loads[i]:
                if load.buffer in defined:
                    if not _same_row(load, group.maps[i], self._coordinates(group, defined[load.buffer]), inner, ranges):
                        return False
                elif root(load.buffer, self.buffers) in roots:
                    return False
        return True

    def _level(self, group: Group, i: int, inner: set[Symbol]) -> str | None:
        """"full" for a node over the whole space, "outer" for one over the outer axes alone, None where it fits neither."""
        node = self.nodes[i]
        everything = {Symbol(a.name) for a in group.space.axes} - group.missing.get(i, frozenset())
        own = _symbols(group.maps[i][Symbol(a.name)] for a in node.axes)
        reduce, _ = strip_reduce(node.value) if isinstance(node, Compute) else (None, None)
        if reduce is not None:
            over = _symbols(group.maps[i][Symbol(a.name)] for a in reduce.axes)
            return "full" if over == inner and own == everything - inner and self._counts_alike(group, i, reduce) else None
        return "full" if own == everything else "outer" if own == everything - inner else None

    def _counts_alike(self, group: Group, i: int, reduce: Reduce) -> bool:
        """Whether a reduction that asks for the order of its elements numbers them as the row does."""
        if not reduce.op.startswith("arg") and reduce.op not in MOMENTS:
            return True
        inner = [a for a in group.space.axes if a.name in group.space.inner]
        own = _position([(group.maps[i][Symbol(a.name)], a.extent) for a in reduce.axes])
        return sizes.simplify(sizes.add(own, sizes.mul(_position([(a.index, a.extent) for a in inner]), -1)), group.space.ranges) == 0

    def _predict(self, first: Group, second: Group) -> None:
        shared = (first.writes & second.reads) | (first.reads & second.reads)
        saved = sum(weigh(sizes.product(self.buffers[b].sizes)) * ITEMSIZE[self.buffers[b].dtype] for b in shared)
        what = f"fuse {', '.join(_name(self.nodes[i]) for i in second.nodes)} with {_name(self.nodes[first.nodes[-1]])}"
        self.predictions.append(Prediction(what, saved, round(saved / BYTES_PER_MICROSECOND + 0.3, 2)))

    def _replace(self, at: int, other: int, merged: Group) -> None:
        self.groups[at], self.groups[other] = None, merged
        for i in merged.nodes:
            self.home[i] = other
        for group in self.groups:
            if group is not None and group is not merged and group.before & merged.mask:
                group.before |= merged.before | merged.mask


def _same_row(load: Load, mapping: AxisMap, coordinates: Sequence[SizeLike], inner: set[Symbol], ranges: sizes.Ranges) -> bool:
    for one, defined in zip(load.index, coordinates, strict=True):
        along_row = bool(sizes.symbols(defined)) and sizes.symbols(defined) <= inner
        if along_row:
            continue
        if not is_size(one) or sizes.substitute(one, mapping, ranges) != defined:
            return False
    return True


def _mapped(load: Load, mapping: AxisMap) -> Coordinates:
    return tuple(sizes.substitute(i, mapping) if is_size(i) else i for i in load.index)


def _ordered(one: Coordinates, two: Coordinates, swap: bool) -> tuple[Coordinates, Coordinates]:
    return (two, one) if swap else (one, two)


def _symbols(values) -> set[Symbol]:
    return {s for value in values for s in sizes.symbols(value)}


def _position(coordinates: Sequence[tuple[SizeLike, SizeLike]]) -> SizeLike:
    """The row-major number of an element, from (coordinate, extent) pairs."""
    position: SizeLike = 0
    for at, extent in coordinates:
        position = sizes.add(sizes.mul(position, extent), at)
    return position


def _same_extents(first: Space, second: Space) -> bool:
    return [a.extent for a in first.axes] == [a.extent for a in second.axes]


def _name(node: Node) -> str:
    return "/".join(node.origin.nodes) or written_buffers(node)[0]
