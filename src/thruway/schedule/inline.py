"""Substitutes pointwise definitions into their readers: views, casts, constants and cheap arithmetic never reach memory.

Takes and gives a list of nodes with the same meaning. A definition is not carried across an in-place write of what it reads,
and an expensive one is not computed more often than once per element of its own space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol, as_symbol
from thruway.loops.ir import Axis, Buffer, Cast, CheckIndex, Compute, Expr, Extern, Index, IndexValue, Literal, Load, Node, Scan, Update, Within
from thruway.schedule.depend import changed_buffers, cost_of, is_pinned, loads_of, read_buffers, root
from thruway.schedule.products import SHORT, is_product
from thruway.schedule.rewrite import children, is_size, rewrite, strip_reduce, substitution, walk, weigh
from thruway.schedule.space import is_injective

CHEAP = 3          # additions: computing this again from one load costs less than a round trip through memory
MOVEMENT = 12      # the same for expressions that only move or convert
EXPENSIVE = 9      # from here on, computing the expression once per element of a larger space costs more than storing it
TILE = 64          # columns of a product that use one computed element of a factor
CHEAP_WORK = 10_000_000     # additions that cost less than a step of its own for what feeds a product, which may read so many tensors:
MOST_LOADS = 3
LARGEST = 400      # an expression above this size is not grown any further


@dataclass(slots=True)
class Definition:
    """A pointwise Compute that may be substituted. `at` maps each storage that its value hangs on, its own result's included, to the
    program position from which on a write of it forbids that."""

    node: Compute
    at: dict[str, int]
    cost: int
    numel: int
    loads: int
    moves: bool
    checks: bool


def inline(nodes: Sequence[Node], buffers: Mapping[str, Buffer], outputs: Sequence[str], tiles: bool = False) -> list[Node]:
    """The nodes with cheap pointwise definitions substituted into their readers; definitions nobody reads any more are gone. `tiles`: the
    target makes products in tiles, with what stands before and behind them."""
    return drop_dead(_Inliner(nodes, buffers, outputs, tiles).run(), buffers, outputs)


class _Inliner:
    def __init__(self, nodes: Sequence[Node], buffers: Mapping[str, Buffer], outputs: Sequence[str], tiles: bool):
        self.nodes, self.buffers, self.tiles = nodes, buffers, tiles
        self.readers: Counter[str] = Counter()
        self.kept = {root(name, buffers) for name in outputs}
        for node in nodes:
            self.readers.update(read_buffers(node))
            if isinstance(node, Extern):
                self.kept |= {root(b, buffers) for b in read_buffers(node)}
        self.kept |= {root(b.name, buffers) for b in buffers.values() if b.alias is not None}
        self.kept |= {root(b, buffers) for node in nodes for b in changed_buffers(node)}
        self.definitions: dict[str, Definition] = {}
        self.last_write: dict[str, int] = {}
        self.products: set[str] = set()           # sums of products of short floats
        self.statistics: set[str] = set()         # other reductions, and what is computed from them

    def run(self) -> list[Node]:
        result = []
        for position, node in enumerate(self.nodes):
            if not isinstance(node, Extern):
                node = self.expand(node, position)
            result.append(node)
            for name in changed_buffers(node):
                self.last_write[root(name, self.buffers)] = position
            if isinstance(node, Compute) and strip_reduce(node.value)[0] is None:
                if not self.rounds_a_product(node):
                    self.define(node, position)
            elif isinstance(node, Compute) and self.tiles:
                (self.products if is_product(node.value) else self.statistics).add(node.out)
        return result

    def rounds_a_product(self, node: Compute) -> bool:
        """Whether the node makes a short float of a product's sum: that is done where the sum is, or the wide sum would go through memory."""
        found = [x for x in loads_of(node) if x.buffer in self.products and x.dtype not in SHORT]
        return len(found) == 1 and self.buffers[node.out].dtype in SHORT

    def define(self, node: Compute, position: int) -> None:
        at = {root(node.out, self.buffers): position}
        found = loads_of(node)
        for load in found:
            name = root(load.buffer, self.buffers)
            at[name] = min(at.get(name, position), self.inherited.get(name, position))
        numel = weigh(sizes.product(a.extent for a in node.axes))
        if any(load.buffer in self.statistics for load in found):
            self.statistics.add(node.out)
        moves = all(isinstance(x, (Load, Cast, Within, Literal, IndexValue)) for x in walk(node.value))
        checks = any(isinstance(x, CheckIndex) for x in walk(node.value)) and self.buffers[node.out].device == "cpu"
        self.definitions[node.out] = Definition(node, at, cost_of(node), numel, len(found), moves, checks)

    def expand(self, node: Node, position: int) -> Node:
        """`node` with every definition that may be substituted in it."""
        self.inherited: dict[str, int] = {}
        wanted = self.chosen(node, position)
        if not wanted:
            return node
        for name in wanted:
            for storage, at in self.definitions[name].at.items():
                self.inherited[storage] = min(at, self.inherited.get(storage, position))
        expanded = _substituted(node, {name: self.definitions[name].node for name in wanted})
        return expanded if self._safe_in_place(expanded) else node

    def chosen(self, node: Node, position: int) -> set[str]:
        by_buffer: dict[str, list[Load]] = {}
        for load in loads_of(node):
            by_buffer.setdefault(load.buffer, []).append(load)
        space = weigh(sizes.product(a.extent for a in space_of(node)))
        size = cost_of(node)
        wanted = set()
        for name, found in by_buffer.items():
            definition = self.definitions.get(name)
            if definition is None or not self._may(definition, found, position):
                continue
            if definition.checks and _leaves_out(definition.node, found, space_of(node)):
                continue                                    # what is left out would not be checked
            pays = self._pays(definition, name, len(set(found)), space) or self._feeds_product(node, definition, name, len(set(found)), space)
            if pays and size + definition.cost * len(found) <= LARGEST:
                wanted.add(name)
                size += definition.cost * len(found)
        return wanted

    def _may(self, definition: Definition, found: list[Load], position: int) -> bool:
        if any(self.last_write.get(storage, -1) >= at for storage, at in definition.at.items()):
            return False
        return all(_fits(definition.node, load) for load in found)

    def _pays(self, definition: Definition, name: str, places: int, space: int) -> bool:
        times = places * max(1.0, space / max(1, definition.numel))
        if definition.loads == 0 and definition.cost <= MOVEMENT or definition.moves and definition.cost <= MOVEMENT:
            return True
        if name in self.kept:
            return False
        if self.readers[name] == 1:
            return times < 2 or times * definition.cost < EXPENSIVE
        return definition.cost <= CHEAP and definition.loads <= 1

    def _feeds_product(self, node: Node, definition: Definition, name: str, places: int, space: int) -> bool:
        """Whether a product's factor is computed in it: once per tile, which is little work where the step saved is what costs. A norm needs
        a step for its statistics anyway, and what reads another product is computed there."""
        if not self.tiles or not isinstance(node, Compute) or not is_product(node.value) or name in self.kept or self.readers[name] > 1 or places > 1:
            return False
        if name in self.statistics or any(load.buffer in self.products for load in loads_of(definition.node)):
            return False
        return definition.loads <= MOST_LOADS and space * definition.cost <= TILE * CHEAP_WORK

    def _safe_in_place(self, node: Node) -> bool:
        """Whether an Update reads its own target, after substitution, at the very element that it writes, which it writes once, and nowhere else."""
        if not isinstance(node, Update):
            return True
        target = root(node.target, self.buffers)
        mine = [x for x in loads_of(node) if root(x.buffer, self.buffers) == target]
        return not mine or is_injective(node.index, node.axes) and all(x.buffer == node.target and x.index == node.index for x in mine)


def space_of(node: Node) -> tuple[Axis, ...]:
    """The whole iteration space of a node: its output's axes, then those it reduces over."""
    if isinstance(node, Extern):
        return ()
    if isinstance(node, Compute):
        reduce, _ = strip_reduce(node.value)
        return node.axes + (reduce.axes if reduce else ())
    return node.axes


def _leaves_out(definition: Compute, found: list[Load], space: Sequence[Axis]) -> bool:
    """Whether every one of the loads surely leaves out elements of the definition: at one place of an axis, or over less of it than there is."""
    extents = {Symbol(a.name): a.extent for a in space}
    return all(any(_is_partial(axis, at, extents) for axis, at in zip(definition.axes, load.index, strict=True)) for load in found)


def _is_partial(axis: Axis, at: Index, extents: Mapping[Symbol, SizeLike]) -> bool:
    if axis.extent == 1:
        return False
    if not is_size(at):
        return True
    named = [extents[one] for one in sizes.symbols(at) if one in extents]
    if len(named) == 1 and type(named[0]) is int and type(axis.extent) is int:
        return named[0] < axis.extent
    return not named


def _fits(definition: Compute, load: Load) -> bool:
    """Whether the load's index can be written into the definition: computed coordinates may only go where a bare axis stood in an index."""
    gathered = {Symbol(a.name) for a, i in zip(definition.axes, load.index, strict=True) if not is_size(i)}
    if not gathered:
        return True
    checked = {Symbol(a.name) for a, i in zip(definition.axes, load.index, strict=True) if not is_size(i) and any(isinstance(x, CheckIndex) for x in walk(i))}
    if not checked <= _always_read(definition.value):
        return False
    for expr in walk(definition.value):
        match expr:
            case Load(_, index, _):
                if any(is_size(i) and as_symbol(i) is None and gathered & sizes.symbols(i) for i in index):
                    return False
            case IndexValue(size, _) if gathered & sizes.symbols(size):
                return False
            case Within(conditions, _, _, _) if any(gathered & (sizes.symbols(c.left) | sizes.symbols(c.right)) for c in conditions):
                return False
    return True


def _always_read(value: Expr) -> set[Symbol]:
    """The axes that stand alone in an index whatever the conditions say: a check put there is made for every point."""
    match value:
        case Within():
            return set()
        case Load(_, index, _):
            return {s for i in index if is_size(i) and (s := as_symbol(i)) is not None}
        case _:
            return {s for x in children(value) for s in _always_read(x)}


def _substituted(node: Node, definitions: Mapping[str, Compute]) -> Node:
    ranges = {Symbol(a.name): (0, a.extent - 1 if type(a.extent) is int else None) for a in space_of(node)}
    done: dict[tuple, Expr] = {}

    def on_load(load: Load) -> Expr:
        definition = definitions.get(load.buffer)
        if definition is None:
            return load
        key = (load.buffer, tuple(i if is_size(i) else id(i) for i in load.index))
        if key not in done:
            done[key] = _at(definition, load, ranges)
        return done[key]

    seen: dict[int, Expr] = {}

    def again(value: Expr) -> Expr:
        return rewrite(value, lambda size: size, on_load, seen)

    match node:
        case Compute(value=value) | Scan(value=value):
            return replace(node, value=again(value))
        case Update(index=index, value=value):
            return replace(node, value=again(value), index=tuple(i if is_size(i) else again(i) for i in index))
        case _:
            raise TypeError(f"nothing to substitute into: {node!r}")


def _at(definition: Compute, load: Load, ranges: sizes.Ranges) -> Expr:
    """The definition's value at the coordinates of `load`."""
    plain = {Symbol(a.name): i for a, i in zip(definition.axes, load.index, strict=True) if is_size(i)}
    gathered = {Symbol(a.name): i for a, i in zip(definition.axes, load.index, strict=True) if not is_size(i)}

    def on_load(inner: Load) -> Expr:
        return Load(inner.buffer, tuple(gathered.get(as_symbol(i), i) if is_size(i) else i for i in inner.index), inner.dtype)

    return rewrite(definition.value, substitution(plain, ranges), on_load if gathered else None)


def _checks_where_it_writes(node: Node, buffers: Mapping[str, Buffer]) -> bool:
    return (isinstance(node, Update) and buffers[node.target].device == "cpu"
            and any(isinstance(x, CheckIndex) for i in node.index if not is_size(i) for x in walk(i)))


def drop_dead(nodes: Sequence[Node], buffers: Mapping[str, Buffer], outputs: Sequence[str]) -> list[Node]:
    """Without nodes whose results nobody reads. What writes memory of others stays, and so do pinned calls and, on a CPU, writes that may raise."""
    live = {root(name, buffers) for name in outputs}
    result: list[Node] = []
    for node in reversed(nodes):
        writes = node.outs if isinstance(node, Extern) else () if isinstance(node, Update) else (node.out,)
        changes = {root(c, buffers) for c in changed_buffers(node)}
        stays = is_pinned(node) or any(buffers[c].kind != "temp" for c in changes) or _checks_where_it_writes(node, buffers)
        if stays or changes & live or any(root(w, buffers) in live for w in writes):
            result.append(node)
            live |= {root(b, buffers) for b in read_buffers(node)}
    return result[::-1]
