"""Branches on a value that only the run knows: both sides are captured, up to where they join or to the frame's return.

What the sides leave is merged. Where the work of either side may be done for nothing (it is cheap, raises nothing, draws nothing, and no
gradient is wanted), `torch.where` selects; else the graph gets a `Conditional`, which runs one side when the condition is known. A side that
raises becomes an expectation: where it is not met, the function itself runs. What neither can express breaks at the jump, as if nothing
had been tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, Node

from thruway.bytecode.flow import comes_back, joins, live_locals, only_raises
from thruway.capture.breaks import OF_SIDES, unsupported
from thruway.capture.caught import writes_inputs
from thruway.capture.conditional import Conditional, expect
from thruway.capture.effects import Build, Choose, ExposeFirst, Step, Write
from thruway.capture.links import Link
from thruway.capture.locals import LazyLocals
from thruway.capture.selectable import is_cheap
from thruway.capture.state import Frame, Inline, Return, State, UserRaise, Yield
from thruway.capture.tensors import call_torch, result_value, tensor_node
from thruway.capture.values.base import (
    CellValue, Constant, DictValue, InstanceDict, ListValue, MethodValue, PartialValue, SizeValue, SliceValue, TensorValue, TextValue, TupleValue,
    Unknown, UnknownValue, Value, ViewValue, new_age,
)
from thruway.capture.values.constants import from_python
from thruway.capture.values.effect import children, expose
from thruway.capture.values.merge import UNSET, Merge, Pair, is_same, refused
from thruway.capture.values.mapping import read_key
from thruway.capture.values.numbers import (
    WIDE, choose_number, is_element, joined_number, kind_of_any, learn, number_tensor, truth_value,
)
from thruway.capture.values.namespace import read_global
from thruway.capture.values.older import GlobalSlot, Kept, Target, age_to_change, keep, note_global, put_back
from thruway.core.errors import Unsupported
from thruway.frame.modes import present
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import dtype_name
from thruway.shapes.nodes import make_node
from thruway.shapes.trace_tensor import from_meta

SELECT, CHOOSE, BREAK = range(3)        # how far to go with a branch
DEEPEST = 12                            # branches within sides of branches
MOST_TURNS = 1000                       # of loops within a side, which the run may never take
Place = tuple[int, list[Value]]         # an instruction, and the stack before it
JOINED = Constant("the sides join here")


@dataclass(slots=True)
class Side:
    """One side as it was tried. `oldest`: the age from which on values are its own; `fresh`: storages that it made; `changed`: older objects
    that it changed, and what they held before; `left`: what it left in them; `written`: older storages that it wrote (None: it may not); `unselectable`: why it
    must not run for nothing."""

    oldest: int
    frame: Frame
    changed: dict[Target, Kept] = field(default_factory=dict)
    left: dict[Target, Kept] = field(default_factory=dict)
    fresh: dict[int, torch.Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    written: dict[int, torch.Tensor] | None = None
    cost: int = 0
    draws: bool = False
    unselectable: str | None = None
    result: Value = JOINED
    raised: bool = False
    turns: int = 0


def count_turn(state: State) -> None:
    """A turn of a loop. Within a side of a branch, and behind a branch whose other side raises, the run may never come there: it may loop
    without end."""
    if state.sides or state.expects:
        doubtful = state.sides[-1] if state.sides else state
        doubtful.turns += 1
        if doubtful.turns > MOST_TURNS:
            raise unsupported(state, "TW103", "a side of the branch loops long, if it ends")


def branch(state: State, frame: Frame, condition: TensorValue, when_true: Place, when_false: Place) -> Return | None:
    """Goes on behind the branch, or returns from the frame. Nothing has happened where it raises Unsupported."""
    index = frame.pc - 1
    caution = state.caution.get((frame.code, index), SELECT)
    if caution == BREAK or frame.generator is not None or len(state.sides) >= DEEPEST or comes_back(frame.code, index, frame.stops):
        raise unsupported(state, "TW103", "the truth of a tensor")
    start = Start(state)
    try:
        return _tried(state, frame, condition, (when_true, when_false), caution)
    except ExposeFirst:
        start.restore()
        raise
    except Unsupported as error:
        start.restore()
        raise unsupported(state, "TW103", f"the truth of a tensor, and the sides cannot stay in the graph: {error.reason.what}", hint=OF_SIDES) from error


def _tried(state: State, frame: Frame, condition: TensorValue, places: tuple[Place, Place], caution: int) -> Return | None:
    """The branch, once what its sides hand on is built before it."""
    while True:
        start = Start(state)
        try:
            return _Branch(state, frame, condition, places, caution).taken()
        except ExposeFirst as found:
            start.restore()
            expose(state, found.value)


class Start:
    """The state before a branch is tried."""

    def __init__(self, state: State):
        self.state, self.effects, self.node = state, state.effects.mark(), state.graph._root._prev
        self.strict, self.devices, self.links = state.strict.copy(), state.devices.copy(), len(state.links)

    def nodes(self) -> list[Node]:
        """What was added since, but for inputs of the graph."""
        found = []
        node = self.state.graph._root._prev
        while node is not self.node and node.op != "placeholder":
            found.append(node)
            node = node._prev
        return found[::-1]

    def restore(self) -> None:
        self.state.effects.rollback(self.effects)
        self.state.strict[:], self.state.devices[:] = self.strict, self.devices
        del self.state.links[self.links:]
        for node in reversed(self.nodes()):
            self.state.graph.erase_node(node)


class _Branch:
    def __init__(self, state: State, frame: Frame, condition: TensorValue, places: tuple[Place, Place], caution: int):
        self.state, self.frame, self.condition, self.places, self.caution = state, frame, condition, places, caution
        self.index = frame.pc - 1
        join = joins(frame.code)[self.index]
        self.join = None if join in frame.stops else join
        self.age = new_age()
        self.start = Start(state)

    def taken(self) -> Return | None:
        sides: list[Side] = []
        for number, place in enumerate(self.places):
            if only_raises(self.frame.code, place[0]):
                return self._expect(number == 1)
            side = self._run(place, number == 0)
            if side.raised:
                return self._expect(number == 1)
            sides.append(side)
        if (sides[0].result is JOINED) != (sides[1].result is JOINED):       # a handler of the frame led one of them elsewhere
            if self.join is None:
                raise refused("the sides of the branch end in different places")
            self.start.restore()
            self.join = None
            return self.taken()
        return self._merged(sides[0], sides[1])

    def _run(self, place: Place, holds: bool) -> Side:
        side = Side(new_age(), copy_frame(self.frame, place, self.join))
        run_side(self.state, side, lambda: learn(self.state, self.condition, holds))
        return side

    def _expect(self, wanted: bool) -> None:
        """The side that raises is left to the function itself, which can still run from its start."""
        state = self.state
        self.start.restore()
        if writes_inputs(state) or _is_handled(state):
            raise refused("a side of the branch raises")
        node = make_node(state.graph, "call_function", expect, (tensor_node(state, self.condition), wanted))
        node.meta.update(line=state.where(), opaque=True)
        state.expects = True
        if state.sides:
            state.sides[-1].unselectable = "a branch within it raises"
        self.frame.pc, self.frame.stack = self.places[0 if wanted else 1]

    # -- what the sides left ---------------------------------------------------------------------------------------------------------

    def _merged(self, one: Side, other: Side) -> Return | None:
        merge = Merge(self.state, self.age)
        self._walk(merge, one, other)
        merge.build(self._chosen(list(merge.leaves), one, other))
        put = self._walk(merge, one, other)
        if one.steps or other.steps:
            ran = truth_value(self.state, call_torch(self.state, torch.clone, [self.condition], {}))
            self.state.effects.steps.append(Choose(ran, tuple(one.steps), tuple(other.steps), self.age))
        return put(self)

    def _walk(self, merge: Merge, one: Side, other: Side) -> Any:
        """Merges everything that the rest can see; what is given back puts it into the frame."""
        changed = {target: _content(merge, target, *(side.left.get(target) or keep(target) for side in (one, other)))
                   for target in {**one.left, **other.left}}
        if one.result is not JOINED:
            result = merge.merge(one.result, other.result)
            return lambda branch: branch._finish(changed, Return(result))
        a, b = one.frame, other.frame
        if len(a.stack) != len(b.stack) or a.handled != b.handled or a.cells != b.cells:
            raise refused("the sides of the branch end in different states")
        stack = list(map(merge.merge, a.stack, b.stack))
        variables = {name: merge.merge(*found) for name in live_locals(self.frame.code)[self.join] if (found := _variable(a, b, name)) is not None}

        def put(branch: _Branch) -> None:
            frame = branch.frame
            frame.stack, frame.pc, frame.handled = stack, branch.join, a.handled
            _set_locals(frame, variables, a, b)
            branch._finish(changed, None)
        return put

    def _finish(self, changed: dict[Value, Any], outcome: Return | None) -> Return | None:
        for target, content in changed.items():
            set_content(self.state, target, content)
        return outcome

    # -- the graph -------------------------------------------------------------------------------------------------------------------

    def _chosen(self, pairs: list[Pair], one: Side, other: Side) -> dict[Pair, Value]:
        """A Value for each pair of leaves. The work of the sides stays where a selection takes from it."""
        sides = (one, other)
        used: list[Pair] = [(value, UNSET) for value in _used_in_steps(self.state, one)] + [(UNSET, value) for value in _used_in_steps(self.state, other)]
        if not pairs and not used and not any(side.draws or side.unselectable for side in sides):
            self._erase([*one.nodes, *other.nodes])
            return {}
        why = self._why_not_selected(pairs + used, sides)
        if why is None:
            start = Start(self.state)
            chosen = {pair: self._select(pair) for pair in pairs}
            if all(_is_as(_known(pair), made) for pair, made in chosen.items()):
                for node in start.nodes():
                    node.meta["spare"] = True
                self._account(sides, pairs, chosen, True)
                return chosen
            start.restore()
        chosen = self._conditional(pairs + used, sides)
        for pair in used:
            _become(_known(pair), chosen[pair])
        return chosen

    def _why_not_selected(self, pairs: list[Pair], sides: tuple[Side, Side]) -> str | None:
        if self.caution >= CHOOSE:
            return "the results may be older tensors"
        for side in sides:
            if side.unselectable is not None:
                return side.unselectable
        if not is_cheap([side.cost for side in sides], [leaf.trace for pair in pairs if isinstance(leaf := _known(pair), TensorValue)],
                        self.condition.trace.device.type):
            return "a side is large"
        examples = [node.meta.get("example_value") for side in sides for node in side.nodes] + [one.trace for pair in pairs for one in pair
                                                                                                if isinstance(one, TensorValue)]
        return "a gradient is wanted" if any(isinstance(one, torch.Tensor) and one.requires_grad for one in examples) else None

    def _select(self, pair: Pair) -> Value:
        if UNSET in pair:
            return _known(pair)
        if isinstance(pair[0], TensorValue):
            return call_torch(self.state, torch.where, [self.condition, *pair], {})
        return choose_number(self.state, self.condition, *pair)

    def _account(self, sides: tuple[Side, Side], pairs: list[Pair], chosen: dict[Pair, Value], is_copy: bool) -> None:
        """Notes which results may be older tensors, and what an outer side has to know."""
        owners: dict[int, torch.Tensor] = {}
        linked = {id(root) for link in self.state.links for root in (link.first, link.second)}
        for pair in pairs:
            if not isinstance(_known(pair), TensorValue) or chosen[pair] in pair:
                continue
            made = chosen[pair].trace.root
            for side, leaf in zip(sides, pair):
                if leaf is UNSET:
                    continue
                root = leaf.trace.root
                older = root if id(root) not in side.fresh or id(root) in linked else owners.setdefault(id(root), made)
                if older is not made:
                    self.state.links.append(Link((self.frame.code, self.index), older, made, chosen[pair].node, is_copy))
        if self.state.sides:
            outer = self.state.sides[-1]
            for side in sides:
                outer.fresh |= side.fresh
                outer.cost += side.cost
                outer.draws |= side.draws
                outer.unselectable = outer.unselectable or side.unselectable or (None if is_copy else "a branch within it is not selected")

    def _erase(self, nodes: list[Node]) -> None:
        for node in reversed(nodes):
            self.state.graph.erase_node(node)

    def _conditional(self, pairs: list[Pair], sides: tuple[Side, Side]) -> dict[Pair, Value]:
        """A node that holds both sides as graphs of their own."""
        state = self.state
        results = [side_results(state, side, (_filler(state, pair[1 - i]) if pair[i] is UNSET else pair[i] for pair in pairs)) for i, side in enumerate(sides)]
        operands: dict[Node, None] = {}
        for side, nodes in zip(sides, results):
            inside = set(side.nodes)
            operands |= dict.fromkeys(one for node in side.nodes for one in node.all_input_nodes if one not in inside)
            operands |= dict.fromkeys(one for one in nodes if one not in inside)
        graphs = [side_graph(side.nodes, list(operands), nodes) for side, nodes in zip(sides, results)]
        order = {node: i for i, node in enumerate(state.graph.nodes)}
        self._erase(sorted({**dict.fromkeys(sides[0].nodes), **dict.fromkeys(sides[1].nodes)}, key=order.__getitem__))
        node = make_node(state.graph, "call_function", Conditional(*graphs), (tensor_node(state, self.condition), *operands))
        node.meta.update(line=state.where(), opaque=True)
        known = [_known(pair) for pair in pairs]
        given = result_value(state, node, tuple(joined_trace(state, leaf) for leaf in known)).items
        chosen = {pair: made if isinstance(leaf, TensorValue) else joined_number(state, made, pair, kind_of_any(leaf))
                  for pair, leaf, made in zip(pairs, known, given)}
        self._account(sides, pairs, chosen, False)
        return chosen


def run_side(state: State, side: Side, learn_first: Callable[[], None] | None = None) -> None:
    """Runs a side; what it changed that is older is as before."""
    start, modes, ranges = Start(state), present(), state.facts.unbacked.copy()
    before, state.effects.oldest = state.effects.oldest, side.oldest
    state.sides.append(side)
    if learn_first is not None:
        learn_first()
    try:
        side.result = state.finish_inline(Inline(side.frame))
    except UserRaise:
        side.raised = True
        return
    finally:
        state.sides.pop()
        state.effects.oldest = before
        state.facts.unbacked |= ranges          # what its operators check is known on this side alone
    side.steps = state.effects.steps[start.effects[0]:]
    del state.effects.steps[start.effects[0]:]
    if side.steps and side.written is not None:
        raise refused("a round of the loop has effects")
    if present() != modes or state.strict != start.strict or state.devices != start.devices:
        raise refused("a side of the branch changes a mode")
    side.nodes = start.nodes()
    for target, kept in side.changed.items():
        side.left[target] = keep(target)
        put_back(target, kept)
    del state.effects.undo[start.effects[1]:]


def side_results(state: State, side: Side, leaves: Iterable[Value]) -> list[Node]:
    """The nodes of what a side leaves; numbers as tensors, made within it."""
    start = Start(state)
    nodes = [tensor_node(state, leaf if isinstance(leaf, TensorValue) else held_number(state, leaf)) for leaf in leaves]
    side.nodes += start.nodes()
    return nodes


def held_number(state: State, number: Value) -> Value:
    return call_torch(state, torch.Tensor.cpu, [number_tensor(state, number)], {})


def joined_trace(state: State, leaf: Value) -> torch.Tensor:
    """The trace of a tensor that looks like `leaf` and is another one."""
    if not isinstance(leaf, TensorValue):
        return from_meta(TensorMeta((), (), dtype_name(WIDE[kind_of_any(leaf)]), "cpu", False))
    trace = from_meta(replace(leaf.trace.meta, offset=0), facts=state.facts)
    if not trace.requires_grad:
        return trace
    with torch.enable_grad():
        made = trace.clone()                # no leaf: it may be written in place
    return made if made.stride() == trace.stride() else trace


def _known(pair: Pair) -> Value:
    """The leaf that says what kind both are of."""
    return pair[1] if pair[0] is UNSET else pair[0]


def _filler(state: State, leaf: Value) -> Value:
    """Something of the kind of `leaf`, which nobody reads."""
    if not isinstance(leaf, TensorValue):
        return Constant(kind_of_any(leaf)())
    sizes = TupleValue(tuple(from_python(state, size) for size in leaf.trace.shape))
    return call_torch(state, torch.zeros, [sizes], {"dtype": Constant(leaf.trace.dtype), "device": Constant(leaf.trace.device)})


def set_content(state: State, target: Target, content: Any) -> None:
    """Makes an older object hold what it holds behind the branch. No step says so: those of the sides do."""
    kept = keep(target)
    state.effects.remember(lambda: put_back(target, kept), note_global(state, target) if isinstance(target, GlobalSlot) else age_to_change(state, target))
    match target:
        case GlobalSlot():
            target.space.values[target.name] = content
        case CellValue():
            target.content, target.real = content, target.real if content is not None else None
        case _:
            target.items = content


def _used_in_steps(state: State, side: Side) -> list[Value]:
    """Tensors and numbers of the side's own that its steps refer to."""
    found: dict[Value, None] = {}
    waiting: list[Any] = [side.steps]
    while waiting:
        match waiting.pop():
            case Build(value, recipe):
                waiting += [recipe, children(state, value)]
            case Write(_, operands):
                waiting.append(operands)
            case Choose(condition, when_true, when_false):
                waiting += [condition, when_true, when_false]
            case list() | tuple() as several:
                waiting += several
            case TensorValue() | SizeValue() as value if value.age >= side.oldest:
                if isinstance(value, TensorValue) or is_element(value):
                    found[value] = None
            case TupleValue() | SliceValue() | MethodValue() | PartialValue() | ViewValue() as value:
                waiting.append(children(state, value))
            case TextValue() as value:
                waiting.append(_shown(state, value))
            case _:
                pass
    return list(found)


def _shown(state: State, value: Value) -> list[Any]:
    """What a text shows; the lists and dicts in it are its own copies, which no step builds."""
    return [_shown(state, one) if isinstance(one, ListValue | DictValue | TupleValue) else one for one in children(state, value)]


def _become(value: Value, chosen: Value) -> None:
    """A value of a side is found where the conditional gives it."""
    if isinstance(value, TensorValue):
        value.node = chosen.node
    else:
        value.size = chosen.size


def _content(merge: Merge, target: Target, one: Kept, other: Kept) -> Any:
    """What an older object holds behind the branch."""
    if isinstance(target, GlobalSlot):
        return merge.merge(*(kept[0] or read_global(merge.state, target.space, target.name) for kept in (one, other)))
    if isinstance(target, ListValue) and target.exposed:
        return _seen_items(merge, one[1], other[1])
    if isinstance(target, DictValue) and target.real is not None:
        return _seen_pairs(merge, target, one, other)
    if isinstance(target, CellValue):
        a, b = one[0], other[0]
        if a is None or b is None:
            if a is not b:
                raise refused("only one side of the branch binds a variable of a closure")
            return None
        return merge.merge(a, b)
    a, b = one[1], other[1]
    if isinstance(target, ListValue) and target.cls is list and len(a) != len(b):
        raise ExposeFirst(target)
    if len(a) != len(b) or not isinstance(target, ListValue) and list(a) != list(b):
        raise refused("the sides of the branch leave different numbers of items, or different keys, in a container")
    match target:
        case ListValue():
            return list(map(merge.merge, a, b))
        case DictValue():
            return {key: (pair[0], merge.merge(pair[1], b[key][1])) for key, pair in a.items()}
        case _:
            return a


def _seen_items(merge: Merge, one: Any, other: Any) -> Any:
    """Of a list that can be seen outside."""
    if isinstance(one, Unknown) or isinstance(other, Unknown) or len(one) != len(other):
        return Unknown()
    items = [_seen(merge, *pair) for pair in zip(one, other)]
    return Unknown() if any(isinstance(item, UnknownValue) for item in items) else items


def _seen_pairs(merge: Merge, target: DictValue, one: Kept, other: Kept) -> dict:
    """Of a dict found outside, of which each side knows some keys."""
    if one[2] != other[2]:
        raise refused("one side of the branch removes a key")
    found = {}
    for key, (name, _) in {**one[1], **other[1]}.items():
        values = [kept[1][key][1] if key in kept[1] else read_key(merge.state, target, key) for kept in (one, other)]
        if isinstance(target, InstanceDict):
            found[key] = name, UnknownValue() if None in values else _seen(merge, *values)
        elif None in values:
            raise refused("only one side of the branch adds a key to a dict")
        else:
            found[key] = name, merge.merge(*values)
    return found


def _seen(merge: Merge, one: Value, other: Value) -> Value:
    """What somebody may read behind the branch, who then breaks where it is neither the same nor a number."""
    if is_same(one, other) or None is not kind_of_any(one) is kind_of_any(other):
        return merge.merge(one, other)
    return UnknownValue()


def _is_handled(state: State) -> bool:
    """Whether some frame would handle what a side raises."""
    return any(frame.handler() for frame in state.frames)


def side_graph(nodes: list[Node], operands: list[Node], results: list[Node]) -> Graph:
    """What a side does, as a graph of its own."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for operand in operands:
        copies[operand] = graph.placeholder(operand.name)
        copies[operand].meta = operand.meta.copy()
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in results))
    return graph


def _is_as(wanted: Value, made: Value) -> bool:
    """Whether the selected tensor looks like what eager would go on with."""
    if not isinstance(wanted, TensorValue):
        return True
    a, b = wanted.trace.meta, made.trace.meta
    return (a.sizes, a.strides, a.dtype, a.device, a.requires_grad) == (b.sizes, b.strides, b.dtype, b.device, b.requires_grad)


def _stop(state: State, frame: Frame, ins: Any) -> Yield:
    return Yield(JOINED)


def copy_frame(frame: Frame, place: Place, join: int | None) -> Frame:
    """A frame that goes on from `place` and stops where the sides join."""
    program = frame.program if join is None else (*frame.program[:join], (_stop, frame.program[join][1]), *frame.program[join + 1:])
    made = Frame(frame.code, frame.function, (program, frame.exceptions), frame.namespace)
    if isinstance(frame.locals, LazyLocals):
        made.locals = LazyLocals(frame.locals.state, frame.locals.pending.copy())
    dict.update(made.locals, dict.items(frame.locals))
    made.cells, made.handled, made.caller = frame.cells.copy(), frame.handled.copy(), frame.caller
    made.pc, made.stack, made.stops = place[0], place[1].copy(), frame.stops
    return made


def _variable(one: Frame, other: Frame, name: str) -> tuple[Value, Value] | None:
    """What both sides hold in a variable; None where it is an argument that neither read, or bound on neither."""
    if isinstance(one.locals, LazyLocals) and name in one.locals.pending and name in other.locals.pending:
        return None
    found = one.locals.get(name), other.locals.get(name)
    if found == (None, None):
        return None
    if None in found:
        raise refused(f"only one side of the branch binds {name}")
    return found


def _set_locals(frame: Frame, variables: dict[str, Value], one: Frame, other: Frame) -> None:
    """The frame's variables behind the branch: those that are read there, and in a continuation the cells, which it has as arguments."""
    if isinstance(frame.locals, LazyLocals):
        unread = one.locals.pending.keys() & other.locals.pending.keys()
        frame.locals = LazyLocals(frame.locals.state, {name: found for name, found in frame.locals.pending.items() if name in unread})
    else:
        frame.locals = {}
    for side in (other, one):
        dict.update(frame.locals, {name: found for name, found in dict.items(side.locals) if isinstance(found, CellValue)})
    dict.update(frame.locals, variables)
