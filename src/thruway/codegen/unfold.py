"""`unfold`: the launch list of a graph with all its blocks from that of the graph with a few of them (see `core/fold.py`).

A gap stands behind two blocks that were compiled alike. Their steps are held against each other one by one, which says for every slot of the
first what takes its place in the second: a slot made by the block's own steps, an input of the block's own, what the block before left, or the same
slot. Each missing block is a copy of the first in which that replacement goes on; what follows reads the last copy. Memory is planned anew.
None wherever the two blocks differ, so that the caller compiles the whole graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from thruway.core.fold import Fold, Gap
from thruway.core.launch import Allocate, Call, Kernel, LaunchList, Slot, SlotRef, Step, View, defines, uses
from thruway.schedule.memory import Lifetime, byte_size, pack_offsets

Slots = dict[Slot, Slot]
MISSING: Slot = -1


def unfold(launch: LaunchList, fold: Fold) -> LaunchList | None:
    """The launch list of the whole graph; None where some block was compiled unlike its neighbor."""
    if launch.symbols:
        return None
    whole = _with_all_inputs(launch, fold)
    for gap in fold.gaps:
        copied = _Copying(whole, fold.blocks, fold.leaving, gap).launch()
        if copied is None:
            return None
        whole = copied
    return _with_memory(whole)


def _with_all_inputs(launch: LaunchList, fold: Fold) -> LaunchList:
    """The folded list over the inputs of the whole graph. An input of a missing block is like that of the block it will be a copy of, its outputs are
    MISSING."""
    more = fold.total - len(fold.inputs)
    slots = {slot: fold.inputs[slot] if slot < len(fold.inputs) else slot + more for slot in range(launch.slots)}
    found = {fold.inputs[each.slot]: each for each in launch.inputs}
    for gap in fold.gaps:
        for k in range(gap.block + 1, gap.block + gap.missing + 1):
            found.update({own: found[twin] for own, twin in zip(fold.blocks[k], fold.blocks[gap.block])})
    outputs = dict(zip(fold.outputs, launch.outputs))
    given = len(outputs) + sum(gap.missing for gap in fold.gaps) * len(fold.leaving[0])
    return replace(
        launch,
        inputs=tuple([replace(found[slot], slot=slot) for slot in range(fold.total)]),
        constants=tuple([(slots[slot], spec, data) for slot, spec, data in launch.constants]),
        derived=tuple([_renamed(step, slots) for step in launch.derived]),
        derived_slots=tuple([slots[slot] for slot in launch.derived_slots]),
        steps=tuple([_renamed(step, slots) for step in launch.steps]),
        outputs=tuple([slots[outputs[i]] if i in outputs else MISSING for i in range(given)]),
        slots=launch.slots + more,
    )


@dataclass(slots=True)
class _Copying:
    """One gap: `first` and `second` are the blocks before it. `image` maps slots of the first to those of the second."""

    whole: LaunchList
    blocks: Sequence[tuple[Slot, ...]]
    leaving: Sequence[tuple[int, ...]]
    gap: Gap
    own: dict[Slot, tuple[int, int]] = field(default_factory=dict)       # inputs of one block: its number, and which of its inputs
    block_of: dict[Slot, int] = field(default_factory=dict)              # of what blocks own, or derive from what they own: the last such block
    image: Slots = field(default_factory=dict)
    sources: Slots = field(default_factory=dict)                         # the other way
    made: set[Slot] = field(default_factory=set)                         # by the first block
    slots: int = 0

    def launch(self) -> LaunchList | None:
        second = self.gap.block
        first = second - 1
        self.slots = self.whole.slots
        self.own = {slot: (k, j) for k, block in enumerate(self.blocks) for j, slot in enumerate(block)}
        self.block_of = {slot: k for slot, (k, _) in self.own.items()}
        before, derived, after = self._derived_steps(first)
        bounds = self._bounds(first)
        if bounds is None:
            return None
        start, middle, end = bounds
        steps, twins = self.whole.steps[start:middle], self.whole.steps[middle:end]
        self.made.update(slot for step in (*before, *steps) for slot in defines(step))
        same = len(derived) == len(before) and all(map(self._is_twin, before, derived)) and all(map(self._is_twin, steps, twins))
        if not same or not self._is_closed(first, start, end):
            return None
        return self._copied(before, after, steps, end)

    def _derived_steps(self, first: int) -> tuple[list[Step], list[Step], int]:
        """The derived steps of both blocks, and the place behind the second's. Fills `block_of`."""
        owners = _owners(self.whole.derived, self.block_of)
        places = [i for i, owner in enumerate(owners) if owner == first + 1]
        return ([step for step, owner in zip(self.whole.derived, owners) if owner == first],
                [self.whole.derived[i] for i in places], places[-1] + 1 if places else len(self.whole.derived))

    def _bounds(self, first: int) -> tuple[int, int, int] | None:
        """Where the steps of the first block start, those of the second, and as many steps later."""
        starts: dict[int, int] = {}
        for i, step in enumerate(self.whole.steps):
            for slot in _touched(step):
                if slot in self.block_of:
                    starts.setdefault(self.block_of[slot], i)
        if first not in starts or first + 1 not in starts:
            return None
        start, middle = (_with_preparations(self.whole.steps, starts[k]) for k in (first, first + 1))
        end = 2 * middle - start
        later = [at for k, at in starts.items() if k > first + 1]
        if not start < middle < end <= min((_with_preparations(self.whole.steps, at) for at in later), default=len(self.whole.steps)):
            return None
        return start, middle, end

    def _is_twin(self, a: Step, b: Step) -> bool:
        """Whether the steps differ in slots alone, and those as all steps before them say."""
        if type(a) is not type(b):
            return False
        match a:
            case Allocate():
                same = a.spec == b.spec and (a.arena is None) == (b.arena is None)
                return same and self._maps(a.slot, b.slot)
            case View():
                return a.spec == b.spec and self._reads(a.base, b.base) and self._maps(a.slot, b.slot)
            case Kernel():
                same = (a.symbol, a.sizes, a.checks, a.writes_input) == (b.symbol, b.sizes, b.checks, b.writes_input)
                return same and self._all_read((*a.pointers, *a.writes), (*b.pointers, *b.writes)) and len(a.pointers) == len(b.pointers)
            case Call():
                same = (a.op, a.writes_input, a.out_specs, len(a.outs)) == (b.op, b.writes_input, b.out_specs, len(b.outs))
                return same and self._same_arguments((a.args, a.kwargs), (b.args, b.kwargs)) and all(map(self._maps, a.outs, b.outs))
            case _:
                raise TypeError(f"not a step of a launch list: {a!r}")

    def _all_read(self, a: Sequence[Slot], b: Sequence[Slot]) -> bool:
        return len(a) == len(b) and all(map(self._reads, a, b))

    def _reads(self, a: Slot, b: Slot) -> bool:
        """Whether `b` may stand for `a`, which both blocks read: known, the same input one block later, what does not change, or what the first
        block leaves for what it found."""
        if a in self.image:
            return self.image[a] == b
        if a in self.own:
            k, j = self.own[a]
            return self.own.get(b) == (k + 1, j) and self._maps(a, b)
        return (a == b and a not in self.block_of or b in self.made) and self._maps(a, b)

    def _maps(self, a: Slot, b: Slot) -> bool:
        return self.image.setdefault(a, b) == b and self.sources.setdefault(b, a) == a

    def _same_arguments(self, a: object, b: object) -> bool:
        if isinstance(a, tuple | list):
            return type(a) is type(b) and len(a) == len(b) and all(map(self._same_arguments, a, b))
        if isinstance(a, SlotRef):
            return isinstance(b, SlotRef) and self._reads(a.slot, b.slot)
        return type(a) is type(b) and repr(a) == repr(b)

    def _is_closed(self, first: int, start: int, end: int) -> bool:
        """Whether what follows reads, of what is older than the first block, only what does not change from block to block."""
        older = {slot for step in self.whole.steps[:start] for slot in defines(step)} | {slot for slot, k in self.block_of.items() if k < first}
        read = {slot for step in self.whole.steps[end:] for slot in _touched(step)}
        return all(self.image.get(slot) == slot for slot in older & read)

    def _copied(self, before: Sequence[Step], after: int, steps: Sequence[Step], end: int) -> LaunchList | None:
        more_derived: list[Step] = []
        more_steps: list[Step] = []
        kept, more_kept = set(self.whole.derived_slots), list[Slot]()
        maps = [{slot: slot for slot in self.image}, self.image]
        for k in range(2, self.gap.missing + 2):
            maps.append(newer := self._next(maps[-1], k))
            more_derived += [_renamed(step, newer) for step in before]
            more_steps += [_renamed(step, newer) for step in steps]
            more_kept += [newer[slot] for slot in self.made & kept]
        outputs = self._outputs(maps)
        if outputs is None:
            return None
        shift = {slot: maps[-2][slot] for slot in self.made} | {self.image[slot]: maps[-1][slot] for slot in self.made}
        for k in (self.gap.block - 1, self.gap.block):
            shift.update(zip(self.blocks[k], self.blocks[k + self.gap.missing]))
        launch = self.whole
        return replace(
            launch,
            derived=(*launch.derived[:after], *more_derived, *[_renamed(step, shift) for step in launch.derived[after:]]),
            derived_slots=tuple(sorted((*launch.derived_slots, *more_kept))),
            steps=(*launch.steps[:end], *more_steps, *[_renamed(step, shift) for step in launch.steps[end:]]),
            outputs=tuple([outputs[i] if i in outputs else shift.get(slot, slot) for i, slot in enumerate(launch.outputs)]),
            slots=self.slots,
        )

    def _outputs(self, maps: Sequence[Slots]) -> Slots | None:
        """The slot of each output of the blocks, by its position. What a block gives may be made by the first steps of the next block."""
        now = self.whole.outputs
        found = {position: now[position] for block in self.leaving for position in block}
        second = self.gap.block
        for j in range(len(self.leaving[0])):
            maker = next((k for k in (second - 1, second - 2) if now[self.leaving[k][j]] in self.made), None)
            if maker is None or self.image[now[self.leaving[maker][j]]] != now[self.leaving[maker + 1][j]]:
                return None
            made = now[self.leaving[maker][j]]
            found.update({self.leaving[maker + k][j]: slots[made] for k, slots in enumerate(maps)})
            if maker != second - 1:
                found[self.leaving[second + self.gap.missing][j]] = now[self.leaving[second][j]]
        return found

    def _next(self, now: Slots, distance: int) -> Slots:
        """The replacement one block later than `now`, so many blocks behind the first."""
        following: Slots = {}
        for slot, twin in self.image.items():
            if slot in self.own:
                k, j = self.own[slot]
                following[slot] = self.blocks[k + distance][j]
            elif slot in self.made:
                following[slot] = self.slots
                self.slots += 1
            else:
                following[slot] = slot if twin == slot else now[twin]
        return following


def _owners(steps: Sequence[Step], block_of: dict[Slot, int]) -> list[int | None]:
    """The last block from whose own inputs each derived step comes; adds the slots that it makes to `block_of`."""
    owners: list[int | None] = []
    fresh: set[Slot] = set()
    for step in steps:
        found = [block_of[slot] for slot in _touched(step) if slot in block_of]
        owners.append(max(found, default=None))
        if isinstance(step, Allocate):
            fresh.add(step.slot)
            continue
        made = {*defines(step), *fresh.intersection(_touched(step))}
        fresh -= made
        if found:
            block_of.update(dict.fromkeys(made, max(found)))
    for i in reversed(range(len(steps))):                    # memory belongs to the step that it is for
        if isinstance(steps[i], Allocate):
            owners[i] = block_of.get(steps[i].slot)
    return owners


def _with_preparations(steps: Sequence[Step], at: int) -> int:
    """The place of a step, or of the memory and views that stand before it because it needs them."""
    while at and isinstance(steps[at - 1], Allocate | View):
        at -= 1
    return at


def _touched(step: Step) -> tuple[Slot, ...]:
    """Every slot in a step."""
    return (*uses(step), *defines(step))


def _renamed(step: Step, slots: Slots) -> Step:
    match step:
        case Allocate(slot, spec, arena):
            return Allocate(slots.get(slot, slot), spec, arena)
        case View(slot, base, spec):
            return View(slots.get(slot, slot), slots.get(base, base), spec)
        case Kernel(symbol, pointers, sizes, checks, writes_input, writes):
            return Kernel(symbol, tuple([slots.get(p, p) for p in pointers]), sizes, checks, writes_input, tuple([slots.get(p, p) for p in writes]))
        case Call(op, args, kwargs, outs, writes_input, specs):
            return Call(op, _argument(args, slots), _argument(kwargs, slots), tuple([slots.get(out, out) for out in outs]), writes_input, specs)
        case _:
            raise TypeError(f"not a step of a launch list: {step!r}")


def _argument(value: object, slots: Slots) -> object:
    match value:
        case SlotRef(slot):
            return SlotRef(slots.get(slot, slot))
        case tuple() | list():
            return type(value)([_argument(one, slots) for one in value])
        case _:
            return value


def _with_memory(launch: LaunchList) -> LaunchList | None:
    """The list with offsets into the arena for all its blocks."""
    last: dict[Slot, int] = {}
    root: Slots = {}
    for i, step in enumerate(launch.steps):
        if isinstance(step, View):
            root[step.slot] = root.get(step.base, step.base)
        last.update(dict.fromkeys([root.get(slot, slot) for slot in _touched(step)], i))
    lifetimes = [Lifetime(str(step.slot), byte_size(step.spec), i, last[step.slot])
                 for i, step in enumerate(launch.steps) if isinstance(step, Allocate) and step.arena is not None]
    if not all(type(one.bytes) is int for one in lifetimes):
        return None
    offsets, total = pack_offsets(lifetimes)
    steps = [replace(step, arena=offsets[str(step.slot)]) if isinstance(step, Allocate) and step.arena is not None else step for step in launch.steps]
    return replace(launch, steps=tuple(steps), arena_bytes=total)
