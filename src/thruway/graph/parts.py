"""A graph over several devices, taken apart: each part lies on one device, and moves between devices stand between the parts.

Parts and moves run one after the other. A part holds what one device can do before it needs another's results, so a model in two halves
gives two parts and a move. Writes stay in order because everything that touches a tensor which is written is in one part; draws from a
device's generator keep their order too. Arithmetic of CPU scalars goes along with the part that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from thruway.core.errors import Unsupported
from thruway.graph.aliases import Place, node_traits, place_nodes, written_arguments
from thruway.graph.rewrite import is_pure, is_random, make_node
from thruway.shapes.meta import TensorMeta

aten = torch.ops.aten
CODE = "TW711"
MOST_STAGES = 64                   # of parts that wait for one another
BEFORE = -1                        # the stage of what is there from the beginning
CONVERSIONS = frozenset({aten._to_copy.default, aten.to.device, aten.to.dtype_layout, aten.to.other})


@dataclass(frozen=True, slots=True)
class Part:
    """`graph` makes the values named `outputs` of those named `inputs`, all on `device`. A move, which torch runs, has no device."""

    graph: Graph
    device: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """`steps` in order. The whole takes the values named `inputs` and gives `outputs`, names or constants."""

    steps: tuple[Part, ...]
    inputs: tuple[str, ...]
    outputs: tuple[object, ...]


def devices_of(graph: Graph) -> set[str]:
    """The devices that compute, or whose memory is read, beside CPU scalars."""
    scalars = _scalars(graph)
    found = set()
    for node in graph.nodes:
        if node not in scalars and node.op != "output" and any(user.target is not aten.sym_size.int for user in node.users):
            found |= {value.device for value in _tensors(node)}
    return found


def split_by_device(graph: Graph) -> Parts:
    """`graph`, which is changed, in parts. Unsupported where sizes are symbolic, or writes cannot stay in order."""
    _refuse_symbols(graph)
    _insert_moves(graph)
    plan = _Stages(graph)
    plan.settle()
    plan.check_writes()
    steps = [_part(graph, plan, nodes, device) for device, nodes in plan.in_order()]
    outputs = tuple(node.name if isinstance(node, Node) else node for node in graph.output_node().args[0])
    return Parts(tuple(steps), tuple(node.name for node in graph.find_nodes(op="placeholder")), outputs)


def _tensors(node: Node) -> list[TensorMeta]:
    value = node.meta.get("value")
    return [one for one in (value if isinstance(value, tuple | list) else (value,)) if isinstance(one, TensorMeta)]


def _device(node: Node) -> str | None:
    """Where the node's values are; Unsupported where that is several places."""
    found = {value.device for value in _tensors(node)} or {value.device for one in node.all_input_nodes for value in _tensors(one)}
    if len(found) > 1:
        raise Unsupported(CODE, f"{node.name} gives tensors on several devices")
    return next(iter(found), None)


def _refuse_symbols(graph: Graph) -> None:
    for node in graph.nodes:
        tensors = _tensors(node)
        is_size = node.op != "output" and not tensors and node.meta.get("value") is not None
        if is_size or any(type(size) is not int for value in tensors for size in (*value.sizes, *value.strides)):
            raise Unsupported(CODE, "a graph over several devices whose sizes change between calls")


def _scalars(graph: Graph) -> set[Node]:
    """CPU scalars among the inputs, and pure arithmetic on them that neither moves nor leaves."""
    found: set[Node] = set()
    for node in graph.nodes:
        value = node.meta.get("value")
        if not isinstance(value, TensorMeta) or value.sizes or value.device != "cpu":
            continue
        if node.op == "placeholder" or is_pure(node) and set(node.all_input_nodes) <= found and not any(_leaves(user) for user in node.users):
            found.add(node)
    return found


def _leaves(user: Node) -> bool:
    return user.op == "output" or _is_conversion(user)


def _is_conversion(node: Node) -> bool:
    """Whether the node copies a tensor to another device."""
    return node.target in CONVERSIONS and _device(node) != _device(node.args[0])


def _insert_moves(graph: Graph) -> None:
    """Operands on another device than the result, which eager moves by itself, are moved by nodes of their own. CPU scalars stay."""
    moves: dict[tuple[Node, str], Node] = {}
    written = _written_roots(graph, places := place_nodes(graph))
    for node in list(graph.nodes):
        if node.op != "call_function" or _is_conversion(node):
            continue
        device, foreign = _device(node), [one for one in node.all_input_nodes if _is_elsewhere(one, node)]
        if foreign and (is_random(node.target) or any(one in foreign for one in written_arguments(node))):
            raise Unsupported(CODE, f"{node.name} draws or writes on one device what it reads on another")
        for one in foreign:
            move = moves.get((one, device))
            if move is None or _root(one, places) in written:
                move = moves[one, device] = _move(graph, node, one, device)
            node.replace_input_with(one, move)


def _is_elsewhere(one: Node, user: Node) -> bool:
    tensors = _tensors(one)
    return bool(tensors) and _device(one) != _device(user) and not (_device(one) == "cpu" and not any(value.sizes for value in tensors))


def _move(graph: Graph, before: Node, one: Node, device: str) -> Node:
    with graph.inserting_before(before):
        made = make_node(graph, "call_function", aten._to_copy.default, (one,), {"device": torch.device(device)}, f"{one.name}_on_{device.replace(':', '_')}")
    value = one.meta["value"]
    if not isinstance(value, TensorMeta):
        raise Unsupported(CODE, f"{before.name} reads several tensors on another device")
    empty = torch.empty_strided(value.sizes, value.strides, dtype=getattr(torch, value.dtype), device="meta")
    made.meta.update(line=before.meta.get("line"), value=replace(value, device=device, strides=torch.empty_like(empty).stride(), offset=0))
    return made


def _root(node: Node, places: dict[Node, Place]) -> Node:
    return places[node].root if node in places else node


def _written_roots(graph: Graph, places: dict[Node, Place]) -> set[Node]:
    return {_root(one, places) for node in graph.nodes for one in written_arguments(node)}


class _Stages:
    """In which stage each node runs: after all parts of earlier ones. `groups`: for each tensor that is written, the latest stage of what touches it."""

    def __init__(self, graph: Graph):
        self.graph, self.places = graph, place_nodes(graph)
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.scalars = _scalars(graph)
        self.calls = [node for node in graph.nodes if node.op == "call_function" and not (node in self.scalars and node.users)]
        self.moves = {node for node in self.calls if _is_conversion(node)}
        self.stages: dict[Node, int] = {}
        self.groups = dict.fromkeys(_written_roots(graph, self.places), BEFORE)
        self.drawn: dict[str | None, int] = {}

    def settle(self) -> None:
        """Stages only grow, and what touches one written tensor waits for the last of its kind."""
        for _ in range(MOST_STAGES):
            self.drawn.clear()
            if not any([self._raise(node) for node in self.calls]):
                return
        raise Unsupported(CODE, "what writes a tensor waits for another device that reads it")

    def _raise(self, node: Node) -> bool:
        stage = max((self._ready(one, node) for one in node.all_input_nodes), default=BEFORE)
        touched = self.touched(node)
        if node not in self.moves:
            stage = max(stage, 0, *(self.groups[root] for root in touched), self.drawn.get(_device(node), 0) if is_random(node.target) else 0)
            self.groups.update(dict.fromkeys(touched, stage))
            if is_random(node.target):
                self.drawn[_device(node)] = stage
        elif touched and self.order[node] > self._first_write(touched):
            stage = max(stage, *(self.groups[root] for root in touched))
        changed = self.stages.get(node) != stage
        self.stages[node] = stage
        return changed

    def _ready(self, one: Node, user: Node) -> int:
        """The first stage in which `user` can read `one`. A move runs behind the parts of its stage."""
        stage = self.stages.get(one, BEFORE)
        if user in self.moves or one not in self.stages:
            return stage
        return stage + (one in self.moves or _device(one) != _device(user))

    def touched(self, node: Node) -> list[Node]:
        """The written tensors whose memory the node reads, writes or looks at."""
        return [root for root in {_root(one, self.places) for one in (node, *node.all_input_nodes)} if root in self.groups]

    def _first_write(self, roots: Iterable[Node]) -> int:
        return min(i for i, _ in self._writes(roots))

    def _writes(self, roots: Iterable[Node]) -> list[tuple[int, Node]]:
        return [(self.order[node], node) for node in self.calls for one in written_arguments(node) if _root(one, self.places) in roots]

    def check_writes(self) -> None:
        """What is written is read on its own device. A move out of it comes before all writes, or behind them."""
        for node in self.calls:
            if node not in self.moves and any(_device(root) != _device(node) for root in self.touched(node)):
                raise Unsupported(CODE, f"{node.name} reads a CPU scalar that is written")
        for move in self.moves:
            for root in self.touched(move):
                writes = [i for i, _ in self._writes([root])]
                early = self.order[move] < min(writes) and self.stages[move] < self.groups[root]
                if not early and self.order[move] < max(writes):
                    raise Unsupported(CODE, f"{move.name} moves a tensor between two writes to it")

    def in_order(self) -> list[tuple[str | None, list[Node]]]:
        """The nodes of each part, and each move by itself, in the order in which they run."""
        found: dict[tuple[int, int, str], list[Node]] = {}
        for node in self.calls:
            key = (self.stages[node], 1, f"{self.order[node]:09}") if node in self.moves else (self.stages[node], 0, str(_device(node)))
            found.setdefault(key, []).append(node)
        return [(None if is_move else device, found[key]) for key in sorted(found) for _, is_move, device in [key]]


@dataclass(slots=True)
class _Copying:
    """The graph of one part under construction; `given` are the values that it takes from outside."""

    inside: set[Node]
    scalars: set[Node]
    graph: Graph = field(default_factory=Graph)
    copies: dict[Node, Node] = field(default_factory=dict)
    given: list[Node] = field(default_factory=list)

    def find_inputs(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            for one in node.all_input_nodes:
                if one in self.scalars and one.op == "call_function":
                    self.find_inputs([one])
                elif one not in self.inside and one.op != "get_attr" and one not in self.copies:
                    self._place(one)

    def _place(self, one: Node) -> None:
        value = one.meta.get("value")
        if not isinstance(value, TensorMeta):
            raise Unsupported(CODE, f"{one.name} is used on another device, or after what happens there")
        made = self.copies[one] = self.graph.placeholder(one.name)
        made.meta.update(one.meta if one.op == "placeholder" else {"value": replace(value, offset=0), "line": one.meta.get("line"), "weight": False})
        self.given.append(one)

    def copy(self, node: Node) -> Node:
        if node not in self.copies:
            args, kwargs = map_arg((node.args, node.kwargs), self.copy)
            self.copies[node] = make_node(self.graph, node.op, node.target, args, kwargs, node.name)
            self.copies[node].meta.update(node.meta)
        return self.copies[node]


def _part(graph: Graph, plan: _Stages, nodes: Sequence[Node], device: str | None) -> Part:
    inside = set(nodes)
    copying = _Copying(inside, plan.scalars)
    copying.find_inputs(nodes)
    for node in nodes:
        copying.copy(node)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    if any(not isinstance(node.meta.get("value"), TensorMeta) for node in outputs):
        raise Unsupported(CODE, "several tensors at once are used on another device, or after what happens there")
    _refuse_absolute_views(nodes, copying.given, plan.places)
    copying.graph.output(tuple(copying.copies[node] for node in outputs))
    if device is None and any(user.op != "output" for user in nodes[0].users):
        _wait_for(copying.copies[nodes[0]])
    return Part(copying.graph, device, tuple(one.name for one in copying.given), tuple(node.name for node in outputs))


def _refuse_absolute_views(nodes: Sequence[Node], given: Sequence[Node], places: dict[Node, Place]) -> None:
    """`as_strided` counts from the beginning of the storage, which a part that made the tensor need not have kept."""
    for node in nodes:
        if node.target is aten.as_strided.default and any(_root(one, places) is _root(node, places) and one.op != "placeholder" for one in given):
            raise Unsupported(CODE, f"{node.name} looks at the whole storage of a tensor of another part")


def _wait_for(move: Node) -> None:
    """Later parts read what is moved to the CPU at once."""
    if _device(move) == "cpu":
        move.kwargs = {name: value for name, value in move.kwargs.items() if name != "non_blocking"}
        move.args = tuple(False if isinstance(one, bool) and name == "non_blocking" else one
                          for one, name in zip(move.args, (argument.name for argument in move.target._schema.arguments)))


def writes_inputs(graph: Graph) -> bool:
    """Whether some operator writes a tensor that the graph was given."""
    places = place_nodes(graph)
    return any(root.op == "placeholder" for root in _written_roots(graph, places))


def draws(graph: Graph) -> bool:
    return any(is_random(node.target) or (traits := node_traits(node)) is not None and traits.random for node in graph.nodes)
