"""Loops whose test is a tensor's: one round is captured, from where the loop starts again to there, and the graph gets a `WhileLoop`.

What a round changes is carried: tensors that keep their metadata, numbers as 0-dim tensors. What is left of the round in which the test is
met runs first, once, and says with what the loop starts. A round may write tensors that are not carried. What it must not do is what the
side of a branch must not: leave an effect, draw random numbers, want a gradient; then the loop breaks at its test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from thruway.bytecode.flow import RETURNS, joins, live_locals, loop_at
from thruway.capture import branches
from thruway.capture.breaks import OF_ROUNDS, unsupported
from thruway.capture.branches import (
    DEEPEST, Place, Side, Start, copy_frame, held_number, joined_trace, run_side, set_content, side_graph, side_results,
)
from thruway.capture.conditional import WhileLoop, expect
from thruway.capture.links import Link
from thruway.capture.state import Frame, Inline, Return, State, UserRaise
from thruway.capture.tensors import result_value, tensor_node
from thruway.capture.values.base import FALSE, TRUE, CellValue, Constant, DictValue, ListValue, SizeValue, TensorValue, TupleValue, Value
from thruway.capture.values.iterate import RangeIterator
from thruway.capture.values.merge import UNSET, is_same, refused
from thruway.capture.values.number_calls import NumberCall
from thruway.capture.values.numbers import counted_distance, kind_of_any, number_tensor, number_value
from thruway.capture.values.older import Kept
from thruway.capture.values.types_ import python_type
from thruway.core.errors import Unsupported
from thruway.shapes.nodes import make_node

ROUNDS = 8                              # captures of a round until it is known what it changes
UNBOUND = Constant("an unbound variable")
LEAF = Value()                              # in a pattern: what the loop gives next
Path = tuple[int, ...]                  # to a part of what rounds hand on


LOOP = "loop"          # of a site, where the test at it may also be a branch within a round


class Round(tuple):
    """The class of what a round ends with: whether another follows, what that starts with, what the code behind the loop reads."""


def branch(state: State, frame: Frame, condition: TensorValue, when_true: Place, when_false: Place) -> Return | None:
    """A jump on a tensor's value: the test of a loop, or a branch."""
    index = frame.pc - 1
    found = loop_at(frame.code, index, frame.stops)
    why = None
    if found is not None and (frame.code, index, LOOP) not in state.caution and len(state.sides) < DEEPEST and frame.generator is None:
        start = Start(state)
        try:
            return _Loop(state, frame, index, *found).taken()
        except Unsupported as error:
            start.restore()
            why = error
    try:
        return branches.branch(state, frame, condition, when_true, when_false)
    except Unsupported as error:
        if why is None:
            raise
        raise unsupported(state, "TW103", f"the truth of a tensor, and the loop cannot stay in the graph: {why.reason.what}", hint=OF_ROUNDS) from why


class _Loop:
    """One loop, as it is met at the jump `index`. `inside`: variables that a round reads, `outside`: others that the code behind reads;
    `carried`: paths of what rounds change; `large`: integers among it that are not counted in small steps; `contents`: older objects whose
    content rounds change; `unknown`: storages whose elements are not known any more, once a round wrote them; `fixed`: slots that are written in
    place."""

    def __init__(self, state: State, frame: Frame, index: int, header: int, stored: frozenset[str]):
        self.state, self.frame, self.index, self.header, self.stored = state, frame, index, header, stored
        self.exit = joins(frame.code)[index]
        live = live_locals(frame.code)
        own = set(frame.code.co_varnames) - frame.cells.keys()
        self.inside = sorted(live[header] & own)
        self.read_behind = live[self.exit] & own if self.exit is not None else frozenset()
        self.outside = sorted(self.read_behind - set(self.inside))
        self.start: Frame | None = None
        self.is_for = self.first_step()[1].op == "FOR_ITER"
        self.stack_behind: list[Value] | None = None
        self.iterator: RangeIterator | None = None
        self.carried: set[Path] = set()
        self.large: set[Path] = set()
        self.unknown: set[int] = set()
        self.fixed: set[int] = set()
        self.contents: dict[Value, None] = {}

    def taken(self) -> Return | None:
        for name in self.inside:
            self.frame.locals.get(name)
        flag, begin, behind = self._ended(self._entry())
        if self.start is None or flag is FALSE:
            raise refused("no round of the loop follows")
        slots = list(begin.items)
        self.carried = {path for i, slot in enumerate(slots) if i >= len(self.inside) or self.inside[i] in self.stored for path in _paths(slot, (i,))}
        for _ in range(ROUNDS):
            before = Start(self.state)
            trial = _Trial(self, [*slots, *(_content(target) for target in self.contents)])
            if trial.is_settled():
                return self._built(flag, behind, trial)
            before.restore()
        raise refused("the loop changes ever more")

    # -- running -------------------------------------------------------------------------------------------------------------------------

    def _entry(self) -> Value:
        """Runs what is left of this round, which happens once."""
        self.frame.pc = self.index
        try:
            made = copy_frame(self.frame, (self.index, self.frame.stack), None)
        finally:
            self.frame.pc = self.index + 1
        made.program = self._program(made)
        made.stops = self.frame.stops | {self.header} | ({self.exit} if self.exit is not None else frozenset())
        effects = self.state.effects.mark()
        try:
            ended = self.state.finish_inline(Inline(made))
        except UserRaise:
            raise refused("the loop raises") from None
        if len(self.state.effects.steps) != effects[0]:
            raise refused("the loop has effects")
        return ended

    def _program(self, frame: Frame) -> tuple:
        """The frame's program, which ends at the loop's start and behind the loop."""
        program = list(frame.program)
        if self.exit is None:
            for i, (handler, ins) in enumerate(program):
                if ins.op in RETURNS:
                    program[i] = self._returning(handler), ins
        else:
            program[self.exit] = self._stop_behind, program[self.exit][1]
        program[self.header] = self._stop_at_start, program[self.header][1]
        return tuple(program)

    def first_step(self) -> tuple:
        """The loop's first instruction, which a round starts with."""
        return self.frame.program[self.header]

    def _returning(self, handler: Any) -> Any:
        def returning(state: State, frame: Frame, ins: Any) -> Return:
            return self._end(FALSE, [UNSET] * self._count(), [handler(state, frame, ins).value])
        return returning

    def _count(self) -> int:
        return len(self.inside) + self.is_for

    def _stop_at_start(self, state: State, frame: Frame, ins: Any) -> Return:
        if self.start is None:
            self._note_start(frame)
        stack = frame.stack
        values = [_variable(frame, name) for name in self.inside]
        if self.is_for:
            now = stack[-1]
            if not isinstance(now, RangeIterator) or not is_same(now.stop, self.iterator.stop) or now.step.value != self.iterator.step.value:
                raise refused("the loop changes its iterator")
            stack, values = stack[:-1], [*values, now.current]
        if not _are_one(stack, self.start.stack) or frame.handled != self.start.handled:
            raise refused("the loop changes what stands around it")
        return self._end(TRUE, values, [UNSET] * (len(self.outside) if self.exit is not None else 1))

    def _note_start(self, frame: Frame) -> None:
        self.start = copy_frame(frame, (self.header, frame.stack), None)
        self.start.program = self._program(self.frame)
        if self.is_for:
            self.iterator = self.start.stack.pop()
            if not isinstance(self.iterator, RangeIterator):
                raise refused("the loop is over something else than a range")

    def _stop_behind(self, state: State, frame: Frame, ins: Any) -> Return:
        if self.stack_behind is None:
            self.stack_behind = frame.stack.copy()
        if not _are_one(frame.stack, self.stack_behind) or frame.handled != self.frame.handled:
            raise refused("the loop ends with different values on the stack")
        values = [_variable(frame, name) if name in self.read_behind else UNSET for name in self.inside]
        return self._end(FALSE, values + [UNSET] * (self._count() - len(values)), [_variable(frame, name) for name in self.outside])

    def _end(self, flag: Constant, values: list[Value], behind: list[Value]) -> Return:
        return Return(TupleValue((flag, TupleValue(tuple(values)), TupleValue(tuple(behind))), cls=Round))

    def _ended(self, value: Value) -> tuple[Value, TupleValue, TupleValue]:
        if not isinstance(value, TupleValue) or value.cls is not Round:
            raise refused("the loop ends elsewhere")
        flag, begin, behind = value.items
        return flag, begin, behind

    # -- the graph -----------------------------------------------------------------------------------------------------------------------

    def _built(self, flag: Value, behind: TupleValue, trial: _Trial) -> Return | None:
        state = self.state
        carried, given = trial.changed, _Given()
        pattern = [given.pair(one, other) for one, other in zip(behind.items, trial.behind.items)]
        results = [after for _, _, after in carried] + [after for _, after in given.leaves]
        nodes = side_results(state, trial.side, [trial.flag, *results])
        trial.side.nodes = self._needed(trial.side.nodes, nodes)
        inside = set(trial.side.nodes)
        holders = [tensor_node(state, holder) for holder in trial.held]
        operands = dict.fromkeys(one for node in trial.side.nodes for one in node.all_input_nodes if one not in inside)
        operands |= dict.fromkeys(one for one in nodes if one not in inside)
        others = [one for one in operands if one not in holders]
        body = side_graph(trial.side.nodes, [*holders, *others], nodes)
        for node in [*reversed(trial.side.nodes), *reversed(holders)]:
            state.graph.erase_node(node)
        begin = [self._first(before) for _, before, _ in carried] + [None if before is UNSET else self._first(before) for before, _ in given.leaves]
        starts = True if flag is TRUE else tensor_node(state, number_tensor(state, flag))
        node = make_node(state.graph, "call_function", WhileLoop(body, len(carried), len(begin)), (starts, *begin, *others))
        node.meta.update(line=state.where(), opaque=True)
        traces = tuple(joined_trace(state, leaf) for leaf in results)
        made = list(result_value(state, node, traces).items)
        state.counted |= {id(one.trace): 0 for (path, _, _), one in zip(carried, made) if path in trial.counting}
        made = [number_value(state, one, kind_of_any(leaf)) if not isinstance(leaf, TensorValue) else one for leaf, one in zip(results, made)]
        copying = {link.site: True for link in state.links[trial.links:] if link.is_copy}
        self._link(carried, given, made, trial, {(self.frame.code, self.index, LOOP): False} | copying)
        if state.sides:
            state.sides[-1].unselectable = "a loop is within it"
        return self._left(trial, dict(zip((path for path, _, _ in carried), made)), pattern, iter(made[len(carried):]))

    def _needed(self, nodes: list[Node], outputs: list[Node]) -> list[Node]:
        """Without numbers that were read and then counted in tensors."""
        unread = [node for node in nodes if node.target == "item" and not node.users and node not in outputs]
        for node in unread:
            self.state.graph.erase_node(node)
        return [node for node in nodes if node not in unread]

    def _first(self, value: Value) -> Node:
        return tensor_node(self.state, value if isinstance(value, TensorValue) else held_number(self.state, value))

    def _link(self, carried: list, given: _Given, made: list[Value], trial: _Trial, sites: dict[Any, bool]) -> None:
        """What the loop gives may be what it started with, or an older tensor. `sites`: the loop, and the branches within that copy it."""
        owners: dict[int, torch.Tensor] = {}
        for (before, after), one in zip([*((b, a) for _, b, a in carried), *given.leaves], made):
            if not isinstance(one, TensorValue):
                continue
            root = after.trace.root
            ends = [before.trace.root] if isinstance(before, TensorValue) else []
            if id(root) in trial.holder_of:
                path = trial.holder_of[id(root)]
                ends += [other.trace.root for (p, b, _), m in zip(carried, made) if p == path for other in (b, m)]
            elif id(root) not in trial.side.fresh:
                ends.append(root)
            else:
                ends.append(owners.setdefault(id(root), one.trace.root))
            for end in ends:
                if end is not one.trace.root:
                    self.state.links += [Link(site, end, one.trace.root, one.node, is_copy) for site, is_copy in sites.items()]

    def _left(self, trial: _Trial, made: dict[Path, Value], pattern: list[Value], rest: Iterator[Value]) -> Return | None:
        """Puts what the loop gives where the code behind it finds it."""
        state, frame = self.state, self.frame
        slots = [_with(slot, (i,), made) for i, slot in enumerate(trial.slots)]
        behind = [_filled(one, rest) for one in pattern]
        for target, content in zip(self.contents, slots[len(slots) - len(self.contents):]):
            set_content(state, target, _as_content(target, content))
        if self.exit is None:
            return Return(behind[0])
        found = {name: slot for name, slot in zip(self.inside, slots) if name in self.read_behind} | dict(zip(self.outside, behind))
        pending = getattr(frame.locals, "pending", {})
        for name, value in found.items():
            pending.pop(name, None)
            if value is UNBOUND:
                dict.pop(frame.locals, name, None)
            else:
                dict.__setitem__(frame.locals, name, value)
        frame.stack, frame.pc = self.stack_behind.copy(), self.exit
        return None


class _Trial:
    """One capture of a round, from fresh tensors in the places of what is carried."""

    def __init__(self, loop: _Loop, slots: list[Value]):
        self.loop, self.state, self.slots, self.links = loop, loop.state, slots, len(loop.state.links)
        self.held: list[TensorValue] = []
        self.holder_of: dict[int, Path] = {}
        self.changed: list[tuple[Path, Value, Value]] = []
        self.more: set[Path] = set()
        self.counting: set[Path] = set()
        begin = [self._fresh(slot, (i,)) for i, slot in enumerate(slots)]
        self.side = Side(branches.new_age(), self._frame(begin), written={})
        run_side(self.state, self.side, lambda: self._fill(begin))
        if self.side.raised:
            raise refused("the loop raises")
        self.flag, self.begin, self.behind = loop._ended(self.side.result)
        self.written_first = {id(root) for root in self.side.written.values() if getattr(root, "elements", None) is not None} - loop.unknown
        self.added = self._compare()

    def is_settled(self) -> bool:
        loop = self.loop
        if self.fixes:
            loop.fixed |= {path[0] for path in self.fixes}
            loop.carried = {path for path in loop.carried if path[0] not in loop.fixed}
            return False
        loop.carried |= self.more
        loop.contents |= dict.fromkeys(self.added)
        large = {path for path, _, after in self.changed if path in self.counting and counted_distance(self.state, after) is None}
        loop.large |= large
        loop.unknown |= self.written_first
        if self.more or self.added or self.written_first or large:
            return False
        self._refuse_what_loops_cannot()
        return True

    def _fresh(self, value: Value, path: Path) -> Value:
        """The value that a round starts with."""
        if isinstance(value, TupleValue):
            return TupleValue(tuple(self._fresh(item, (*path, i)) for i, item in enumerate(value.items)), cls=value.cls)
        if path not in self.loop.carried:
            return value
        node = make_node(self.state.graph, "call_function", _carried, ())
        node.meta["line"] = self.state.where()
        made = result_value(self.state, node, joined_trace(self.state, value))
        if kind_of_any(value) is int and path not in self.loop.large and counted_distance(self.state, value) is not None:
            self.state.counted[id(made.trace)] = 0
            self.counting.add(path)
        self.held.append(made)
        self.holder_of[id(made.trace.root)] = path
        return made if isinstance(value, TensorValue) else _number_later(made, kind_of_any(value))

    def _frame(self, begin: list[Value]) -> Frame:
        loop = self.loop
        made = copy_frame(loop.start, (loop.header, loop.start.stack), None)
        made.locals = {}
        return made

    def _fill(self, begin: list[Value]) -> None:
        """Puts what the round starts with in its places, within the round."""
        loop, state, made = self.loop, self.state, self.side.frame
        values = [_read_numbers(state, one) for one in begin]
        made.locals = {name: value for name, value in zip(loop.inside, values) if value is not UNBOUND}
        if loop.iterator is not None:
            made.stack.append(RangeIterator(values[len(loop.inside)], loop.iterator.stop, loop.iterator.step))
        for target, content in zip(loop.contents, values[len(values) - len(loop.contents):]):
            set_content(state, target, _as_content(target, content))
        handler, ins = loop.first_step()
        stop = made.program[loop.header]
        program = list(made.program)

        def first(state: State, frame: Frame, ins: Any) -> Any:
            frame.program = made_program
            return handler(state, frame, ins)
        made_program = tuple(program)
        program[loop.header] = first, stop[1]
        made.program = tuple(program)

    def _compare(self) -> list[Value]:
        """Finds what the round changed; gives older objects whose content it is."""
        contents = list(self.loop.contents)
        after = [*self.begin.items, *(_kept_content(target, self.side.left[target]) if target in self.side.left else _content(target)
                                      for target in contents)]
        self.fixes = {path for root, path in self.holder_of.items() if root in self.side.written}
        if self.fixes:
            return []
        for i, (one, other) in enumerate(zip(self.slots, after)):
            self._walk(one, other, (i,))
        return [target for target, kept in self.side.left.items()
                if target not in self.loop.contents and not _is_equal(_kept_content(target, self.side.changed[target]), _kept_content(target, kept))]

    def _walk(self, before: Value, after: Value, path: Path) -> None:
        if isinstance(before, TupleValue) and isinstance(after, TupleValue) and before.cls is after.cls and len(before.items) == len(after.items):
            for i, (one, other) in enumerate(zip(before.items, after.items)):
                self._walk(one, other, (*path, i))
        elif path in self.loop.carried:
            if not _fits(before, after):
                raise refused(f"rounds of the loop change what {self._name(path)} is: {_described(before)}, then {_described(after)}")
            self.changed.append((path, before, after))
        elif not is_same(before, after):
            if not _fits(before, after) or path[0] in self.loop.fixed:
                raise refused(f"rounds of the loop change what {self._name(path)} is")
            self.more.add(path)

    def _name(self, path: Path) -> str:
        return self.loop.inside[path[0]] if path[0] < len(self.loop.inside) else "a container or an iterator"

    def _refuse_what_loops_cannot(self) -> None:
        side, state = self.side, self.state
        if self.flag is TRUE or self.flag is FALSE:
            raise refused("the test of the loop is known")
        if side.draws:
            raise refused("the loop draws random numbers")
        own = {id(leaf.trace.root) for _, before, after in self.changed for leaf in (before, after) if isinstance(leaf, TensorValue)}
        linked = {id(root) for link in state.links for root in (link.first, link.second)}
        if (own | linked) & side.written.keys():
            raise refused("the loop writes a tensor that may be one of those that change")
        found = {id(one.value.trace.root) for one in state.inputs if isinstance(one.value, TensorValue)}
        if found & side.written.keys() and any(node.target is expect or isinstance(node.target, NumberCall) for node in _within(side.nodes)):
            raise refused("the loop raises after it wrote")


class _Given:
    """What only the code behind the loop reads, as the entry left it and as a round leaves it: the pairs of `leaves` that differ."""

    def __init__(self) -> None:
        self.leaves: list[tuple[Value, Value]] = []

    def pair(self, before: Value, after: Value) -> Value:
        """The pattern of the value: LEAF stands for the next leaf. What the round of a loop around this one leaves may hold UNSET."""
        if is_same(before, after) and not (isinstance(after, TensorValue)):
            return after
        if isinstance(after, TupleValue) and (before is UNSET or isinstance(before, TupleValue) and before.cls is after.cls
                                              and len(before.items) == len(after.items)):
            earlier = before.items if isinstance(before, TupleValue) else [UNSET] * len(after.items)
            return TupleValue(tuple(map(self.pair, earlier, after.items)), cls=after.cls)
        if before is UNSET and isinstance(after, Constant):
            return after
        if before is not UNSET and not _fits(before, after) or before is UNSET and not _is_leaf(after):
            raise refused(f"the loop leaves {_described(before)}, or {_described(after)}")
        self.leaves.append((before, after))
        return LEAF


def _carried() -> Any:
    raise AssertionError("stands for what rounds of a loop hand on, until the loop is built")


def _number_later(holder: TensorValue, kind: type) -> Value:
    made = SizeValue(None)
    made.size = (holder, kind)
    return made


def _read_numbers(state: State, value: Value) -> Value:
    """The value with numbers read from the tensors that hold them."""
    if isinstance(value, TupleValue):
        return TupleValue(tuple(_read_numbers(state, item) for item in value.items), cls=value.cls)
    if isinstance(value, SizeValue) and type(value.size) is tuple:
        return number_value(state, *value.size)
    return value


def _variable(frame: Frame, name: str) -> Value:
    return frame.locals.get(name) or UNBOUND


def _are_one(left: list[Value], right: list[Value]) -> bool:
    return len(left) == len(right) and all(is_same(one, other) for one, other in zip(left, right))


def _is_leaf(value: Value) -> bool:
    if isinstance(value, TensorValue):
        return python_type(value) is torch.Tensor
    return kind_of_any(value) is not None


def _paths(value: Value, path: Path) -> list[Path]:
    """Of the tensors and numbers in a value."""
    if isinstance(value, TupleValue):
        return [found for i, item in enumerate(value.items) for found in _paths(item, (*path, i))]
    return [path] if _is_leaf(value) else []


def _fits(before: Value, after: Value) -> bool:
    """Whether a round may follow another where that leaves `after` in the place of `before`."""
    if after is UNSET:
        return _is_leaf(before)
    if not _is_leaf(before) or not _is_leaf(after):
        return False
    if not isinstance(before, TensorValue):
        return kind_of_any(before) is kind_of_any(after)
    if not isinstance(after, TensorValue):
        return False
    a, b = before.trace.meta, after.trace.meta
    return (a.sizes, a.strides, a.dtype, a.device, a.requires_grad) == (b.sizes, b.strides, b.dtype, b.device, b.requires_grad)


def _described(value: Value) -> str:
    if isinstance(value, TensorValue):
        meta = value.trace.meta
        return f"a tensor of {meta.dtype} {tuple(meta.sizes)} {tuple(meta.strides)}"
    return f"a {python_type(value).__name__}"


def _is_equal(left: Value, right: Value) -> bool:
    if isinstance(left, TupleValue) and isinstance(right, TupleValue):
        return _are_one(list(left.items), list(right.items))
    return is_same(left, right)


def _content(target: Value) -> Value:
    match target:
        case CellValue():
            return target.content or UNBOUND
        case ListValue():
            return TupleValue(tuple(target.items))
        case DictValue():
            return TupleValue(tuple(value for _, value in target.items.values()))
        case _:
            raise refused("the loop changes a set")


def _kept_content(target: Value, kept: Kept) -> Value:
    match target:
        case CellValue():
            return kept[0] or UNBOUND
        case ListValue():
            return TupleValue(tuple(kept[1]))
        case DictValue():
            if list(kept[1]) != list(target.items):
                raise refused("the loop changes the keys of a dict")
            return TupleValue(tuple(value for _, value in kept[1].values()))
        case _:
            raise refused("the loop changes a set")


def _as_content(target: Value, value: Value) -> Any:
    match target:
        case CellValue():
            return None if value is UNBOUND else value
        case ListValue():
            return list(value.items)
        case _:
            return {key: (pair[0], one) for (key, pair), one in zip(target.items.items(), value.items)}


def _with(value: Value, path: Path, made: dict[Path, Value]) -> Value:
    """The value with what the loop gave in its places."""
    if isinstance(value, TupleValue):
        return TupleValue(tuple(_with(item, (*path, i), made) for i, item in enumerate(value.items)), cls=value.cls)
    return made.get(path, value)


def _filled(pattern: Value, rest: Iterator[Value]) -> Value:
    if isinstance(pattern, TupleValue):
        return TupleValue(tuple(_filled(item, rest) for item in pattern.items), cls=pattern.cls)
    return next(rest) if pattern is LEAF else pattern


def _within(nodes: list[Node]) -> Iterator[Node]:
    """The nodes, and those in their sides."""
    for node in nodes:
        yield node
        for side in getattr(node.target, "sides", ()):
            yield from _within(list(side.graph.nodes))
