"""Stacks of equal blocks in a captured graph, of which a few are compiled and stand for all.

`fold_repeats` finds the longest run of nodes that repeats with one period: the same operators with the same constants, reading the same
earlier values, each other, the block before, and inputs of their own of equal metadata. What it leaves out is told to `retrace` as stand-ins
(a node that is left out has the value of its twin in the last block that is kept), and to `codegen.unfold` as a `Fold`. Values that every block gives
to the caller (caches, hidden states) leave from each copy too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch.fx import Graph, Node

from thruway.core.fold import Fold, Gap
from thruway.core.sizes import SizeLike
from thruway.graph.retrace import LeftOut
from thruway.graph.rewrite import bytes_of
from thruway.shapes.meta import TensorMeta
from thruway.shapes.trace_tensor import TraceTensor

UNLIKE = 2                   # blocks at the start that may differ: the first for what comes in, and the next where its first kernel does some of that again
KEPT = UNLIKE + 3            # two that show how it goes on, and the last, where what follows joins in
WORTH = 0.25                 # of the calls of a graph are left out, or it is compiled whole
PRODUCTS = frozenset({"linear", "matmul", "mm", "addmm"})
CANDIDATES = 4               # operators and distances that are tried as a period


@dataclass(frozen=True, slots=True)
class Folded:
    """`limit`: bytes that packed weights of the kept blocks may take, `denied` those for which there is no memory. `copies`: how many blocks are
    left out."""

    fold: Fold
    left_out: LeftOut
    limit: int
    denied: frozenset[str]

    @property
    def copies(self) -> int:
        return sum(gap.missing for gap in self.fold.gaps)


def fold_repeats(graph: Graph, metas: Sequence[TensorMeta | SizeLike], weights: Sequence[bool], limit: int) -> Folded | None:
    """`limit`: bytes that packed weights may take; blocks beyond it are compiled without. None where folding gains nothing."""
    if not all(isinstance(meta, TensorMeta) and meta.device == "cpu" and _is_static(meta) for meta in metas):
        return None
    calls = [node for node in graph.nodes if node.op != "placeholder" and node.op != "output"]
    inputs = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    reads: list[list[Node]] = [[] for _ in calls]
    run = _longest_run([_skeleton((node.op, node.target, node.args, node.kwargs), read) for node, read in zip(calls, reads)])
    if run is None:
        return None
    given = graph.output_node().args[0]
    outputs = given if isinstance(given, tuple | list) else (given,)
    found = _Blocks(calls, reads, *run, inputs, outputs, metas, weights).matched()
    return None if found is None else _folded(calls, run, *found, list(inputs), len(outputs), metas, weights, limit)


def _is_static(meta: TensorMeta) -> bool:
    return all(type(one) is int for one in (*meta.sizes, *meta.strides, meta.offset))


Positions = tuple[tuple[int, ...], ...]              # for each block, in one order
Run = tuple[int, int, int]   # the first node, the length of a block, the number of blocks


def _longest_run(skeletons: Sequence[object]) -> Run | None:
    """The run that saves most, going by operators and constants alone."""
    numbers: dict[object, int] = {}
    ids = [numbers.setdefault(one, len(numbers)) for one in skeletons]
    best, best_saved = None, int(WORTH * len(ids))
    for period in _periods(ids):
        start, length = _longest_match(ids, period)
        count = length // period + 1
        saved = (count - KEPT) * period
        if saved > best_saved:
            best, best_saved = (start, period, count), saved
    return best


def _skeleton(value: object, read: list[Node]) -> object:
    """The value without its nodes, which go to `read` in order. Skeletons are equal where what they print is: 1, 1.0 and True differ, as do 0.0 and -0.0."""
    match value:
        case Node():
            read.append(value)
            return Node
        case str() | None:
            return value
        case tuple() | list():
            return tuple([_skeleton(one, read) for one in value])
        case dict():
            return tuple([(key, _skeleton(one, read)) for key, one in value.items()])
        case slice():
            return slice, _skeleton((value.start, value.stop, value.step), read)
        case bool() | int() | float() | complex():
            return type(value), repr(value)
        case _:
            return type(value), value if type(value).__hash__ is not None else id(value)


def _periods(ids: Sequence[int]) -> list[int]:
    """The most frequent distances between equal nodes, of those that are rare among the repeated ones."""
    places: dict[int, list[int]] = {}
    for i, one in enumerate(ids):
        places.setdefault(one, []).append(i)
    repeated = sorted((where for where in places.values() if len(where) > KEPT), key=len)
    found: dict[int, None] = {}
    for where in repeated[:CANDIDATES]:
        for lag in range(1, CANDIDATES + 1):
            steps = Counter(b - a for a, b in zip(where, where[lag:]))
            found.update(dict.fromkeys([step for step, _ in steps.most_common(1)]))
    return sorted(found)


def _longest_match(ids: Sequence[int], period: int) -> tuple[int, int]:
    """Start and length of the longest stretch that is equal to what stands `period` later."""
    best = (0, 0)
    start = 0
    for i, (a, b) in enumerate(zip(ids, ids[period:])):
        if a != b:
            start = i + 1
        elif i + 1 - start > best[1]:
            best = (start, i + 1 - start)
    return best


@dataclass(slots=True)
class _Blocks:
    """Whether the nodes of the run read alike, and the inputs that each block has of its own."""

    calls: Sequence[Node]
    reads: Sequence[Sequence[Node]]                                  # what each call reads, in the order of its arguments
    start: int
    period: int
    count: int
    inputs: dict[Node, int]
    outputs: Sequence[object]
    metas: Sequence[TensorMeta]
    weights: Sequence[bool]
    place: dict[Node, int] = field(default_factory=dict)
    following: dict[int, int] = field(default_factory=dict)          # an input's counterpart in the next block
    entries: dict[Node, int] = field(default_factory=dict)           # what the first block reads of earlier nodes → where the next ones find it

    def matched(self) -> tuple[Positions, Positions] | None:
        """For each block the positions of its own inputs, and of its outputs where all have some; None where the blocks are not equal."""
        self.place = {node: i for i, node in enumerate(self.calls)}
        end = self.start + self.count * self.period
        for i in range(self.start, end - self.period):
            if not all([self._is_counterpart(a, b, i) for a, b in zip(self.reads[i], self.reads[i + self.period])]):
                return None
        if not self._is_closed(end) or not self._carries_alike() or self._multiplies_what_stays():
            return None
        inputs, outputs = self._own_inputs(), self._own_outputs(end)
        return None if inputs is None or outputs is None else (inputs, outputs)

    def _is_counterpart(self, a: Node, b: Node, reader: int) -> bool:
        """Whether node `reader` reads `a` as the node one block later reads `b`."""
        if a in self.inputs and b in self.inputs:
            i, j = self.inputs[a], self.inputs[b]
            return self.following.setdefault(i, j) == j and (i == j or (self.metas[i] == self.metas[j] and self.weights[i] == self.weights[j]))
        at = self.place.get(b, -1)
        if at < self.start:
            return a is b
        if self.place.get(a, -1) >= self.start:
            near = (reader - self.start) // self.period - (self.place[a] - self.start) // self.period <= 1
            return near and at == self.place[a] + self.period
        return at < self.start + self.period and self.entries.setdefault(a, at) == at and reader < self.start + self.period

    def _is_closed(self, end: int) -> bool:
        """Whether nothing but the next block reads a block, the last one aside, and what follows reads nothing from before the run but what the
        blocks read too."""
        last = end - self.period
        for node in self.calls[self.start:last]:
            if any(self.place.get(user, end) >= end and user.op != "output" for user in node.users):
                return False
        invariant = {used for read in self.reads[last:end] for used in read}
        return all(used in invariant or self.place[used] >= last for read in self.reads[end:] for used in read if used in self.place)

    def _multiplies_what_stays(self) -> bool:
        """Whether a block multiplies what all blocks see by a weight of its own, as attention to an encoder's output does: products that share an input
        are joined, over all blocks."""
        moving: set[Node] = set()
        for i in range(self.start + self.period, self.start + 2 * self.period):
            node, read = self.calls[i], self.reads[i]
            if any(one in moving or self.start <= self.place.get(one, -1) < self.start + self.period for one in read):
                moving.add(node)
            elif getattr(node.target, "__name__", node.target) in PRODUCTS:
                own = [one for one in read if one in self.inputs and self.following.get(self.inputs[one], -1) != self.inputs[one]]
                if 0 < len(own) < len(read):
                    return True
        return False

    def _carries_alike(self) -> bool:
        """Whether what a block hands on has the metadata that it had when it came in."""
        for at in {self.place[used] for i in range(self.start + self.period, self.start + 2 * self.period)
                   for used in self.reads[i] if self.start <= self.place.get(used, -1) < self.start + self.period}:
            found = [self.calls[at + k * self.period].meta.get("example_value") for k in range(self.count)]
            if not all(isinstance(one, TraceTensor) and one.meta == found[0].meta for one in found):
                return False
        return True

    def _own_outputs(self, end: int) -> Positions | None:
        """None where some blocks before the last give the caller what others do not."""
        blocks: list[dict[int, list[int]]] = [{} for _ in range(self.count)]
        for position, one in enumerate(self.outputs):
            if isinstance(one, Node) and self.start <= self.place.get(one, -1) < end:
                k, i = divmod(self.place[one] - self.start, self.period)
                blocks[k].setdefault(i, []).append(position)
        places = list(blocks[0])
        if any(list(block) != places for block in blocks[:-1]) or not blocks[-1].keys() >= set(places):
            return None
        if any(len(block[i]) != 1 for block in blocks for i in places):
            return None
        return tuple(tuple(block[i][0] for i in places) for block in blocks)

    def _own_inputs(self) -> Positions | None:
        """None where a block shares an input with some blocks but not with all."""
        first = dict.fromkeys(self.inputs[used] for read in self.reads[self.start:self.start + self.period] for used in read if used in self.inputs)
        blocks = [tuple(i for i in first if self.following.get(i, i) != i)]
        for _ in range(self.count - 1):
            blocks.append(tuple(self.following[i] for i in blocks[-1]))
        own = [i for block in blocks for i in block]
        shared = set(first) - set(blocks[0])
        around = (*self.reads[:self.start], *self.reads[self.start + self.count * self.period:])
        outside = {self.inputs[used] for read in around for used in read if used in self.inputs}
        outside |= {i for node, i in self.inputs.items() if any(user.op == "output" for user in node.users)}
        is_sound = len(own) == len(set(own)) and not set(own) & (shared | outside)
        return tuple(blocks) if is_sound and blocks[0] else None


def _folded(
    calls: Sequence[Node], run: Run, blocks: Positions, leaving: Positions, inputs: Sequence[Node], outputs: int, metas: Sequence[TensorMeta],
    weights: Sequence[bool], limit: int,
) -> Folded | None:
    start, period, count = run
    weight = max(sum(bytes_of(metas[i]) or 0 for i in block if weights[i] and len(metas[i].sizes) > 1) for block in blocks)
    packed = min(count, limit // weight) if weight else count
    gaps = tuple(gap for gap in (_gap(0, packed, count), _gap(packed, count, count)) if gap.missing > 0)
    missing = {gap.block + k + 1: gap.block for gap in gaps for k in range(gap.missing)}
    if len(missing) * period < WORTH * len(calls):
        return None
    stand_ins = {calls[start + k * period + i]: calls[start + twin * period + i] for k, twin in missing.items() for i in range(period)}
    left_out = LeftOut(stand_ins, frozenset(i for k in missing for i in blocks[k]), frozenset(i for k in missing for i in leaving[k]))
    denied = frozenset(inputs[i].name for block in blocks[packed:] for i in block)
    kept = tuple(i for i in range(len(inputs)) if i not in left_out.inputs)
    given = tuple(i for i in range(outputs) if i not in left_out.outputs)
    left = limit - weight * sum(k < packed for k in missing)
    return Folded(Fold(kept, len(inputs), given, blocks, leaving, gaps), left_out, left, denied)


def _gap(first: int, end: int, count: int) -> Gap:
    """The blocks that can be left out of those from `first` to `end`, which are compiled alike."""
    alike = max(first, UNLIKE) + 1
    return Gap(alike, end - alike - 1 - (end == count))
