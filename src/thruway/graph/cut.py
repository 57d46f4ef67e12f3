"""A captured graph cut into pieces where sizes depend on elements: each piece is a graph whose inputs show every size that it uses.

What capture marked "opaque" (torch's own kernels run it), numbers read from tensors, arithmetic on numbers and changes of modes stay
between the pieces, in the outer graph, in their order. A piece takes tensors and numbers; a size that none of its inputs shows comes in
as the size of an empty-handed tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from thruway.core.sizes import Size, SizeLike, Symbol, add, as_symbol, floordiv, maximum, minimum, mod, mul, substitute, symbol, symbols
from thruway.frame.modes import SETTERS
from thruway.graph.numbers import PLAIN, Meta, tensor_of_size
from thruway.shapes.meta import TensorMeta

SHORTEST = 2               # calls of which a piece is worth its launch
ARITHMETIC = {operator.add: add, operator.mul: mul, operator.floordiv: floordiv, operator.mod: mod, torch.sym_max: maximum, torch.sym_min: minimum}
READS = frozenset({"item", "tolist"})


@dataclass(slots=True)
class Piece:
    """`module` takes inputs of `metas`; `call` is the node of the outer graph that stands for it, whose target is to be set.
    `trusted`: whether each input comes as the guards of the whole promise; the layout of others is a prediction. `overlaps`: whether two
    inputs may share memory."""

    module: GraphModule
    metas: list[Meta]
    weights: list[bool]
    trusted: list[bool]
    overlaps: bool
    call: Node


@dataclass(slots=True)
class Cut:
    """`outer` runs the pieces and what stands between them. It has to be recompiled once the calls have targets."""

    outer: GraphModule
    pieces: list[Piece]


def needs_cut(graph: Graph) -> bool:
    return any(node.meta.get("opaque") for node in graph.nodes)


def cut(module: GraphModule, metas: Sequence[Meta], weights: Sequence[bool], trusted: Sequence[bool] | None = None) -> Cut:
    """`trusted` (all, where not given): whether each input comes as `metas` say, for certain."""
    return _Cutting(module, metas, weights, trusted if trusted is not None else [True] * len(metas)).cut()


@dataclass(slots=True)
class _Cutting:
    source: GraphModule
    metas: Sequence[Meta]
    weights: Sequence[bool]
    trusted: Sequence[bool]
    graph: Graph = field(default_factory=Graph)
    copies: dict[Node, Node] = field(default_factory=dict)         # in the outer graph
    numbers: dict[Node, Any] = field(default_factory=dict)         # nodes that are numbers: an expression, or float
    shown: dict[Symbol, tuple[Node, int | None]] = field(default_factory=dict)     # symbol → where the outer graph can read it
    inputs: dict[Node, tuple[Meta, bool, bool]] = field(default_factory=dict)
    waiting: list[Node] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def cut(self) -> Cut:
        given = iter(zip(self.metas, self.weights, self.trusted))
        for node in self.source.graph.nodes:
            if node.op == "placeholder":
                self.inputs[node] = next(given)
            self._place(node)
        return Cut(GraphModule(self.source, self.graph), self.pieces)

    def _place(self, node: Node) -> None:
        self._note_number(node)
        if self._is_stop(node):
            self._close()
        elif not self._stays_outside(node):
            self.waiting.append(node)
            return
        elif any(used in self.waiting for used in node.all_input_nodes):
            self._close()
        self._copy(node)

    def _is_stop(self, node: Node) -> bool:
        return node.op == "output" or bool(node.meta.get("opaque")) or node.target in READS or node.op == "call_function" and node.target in SETTERS

    def _stays_outside(self, node: Node) -> bool:
        if node.op in ("placeholder", "get_attr") or node in self.numbers:
            return True
        return node.target is operator.getitem and node.args[0] not in self.waiting and not isinstance(example(node.args[0]), torch.Tensor)

    def _note_number(self, node: Node) -> None:
        if node.op == "placeholder" and not isinstance(self.inputs[node][0], TensorMeta):
            self.numbers[node] = self.inputs[node][0]
        elif "number" in node.meta:
            self.numbers[node] = node.meta["number"]
        elif node.target is torch.ops.aten.sym_size.int:
            self.numbers[node] = example(node.args[0]).meta.sizes[node.args[1]]
        elif node.op == "call_function" and node.target in PLAIN and all(not isinstance(one, Node) or one in self.numbers for one in node.args):
            operands = [self.numbers[one] if isinstance(one, Node) else one for one in node.args]
            known = node.target in ARITHMETIC and not any(one is float or isinstance(one, float) for one in operands)
            self.numbers[node] = ARITHMETIC[node.target](*operands) if known else float

    def _copy(self, node: Node) -> None:
        made = self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
        if (name := as_symbol(self.numbers.get(node))) is not None:
            self.shown.setdefault(name, (made, None))
        if node not in self.numbers and isinstance(trace := example(node), torch.Tensor):
            for dim, size in enumerate(trace.meta.sizes):
                if (name := as_symbol(size)) is not None:
                    self.shown.setdefault(name, (made, dim))

    def _close(self) -> None:
        """The nodes that wait become a piece, or stand in the outer graph as they are."""
        nodes, self.waiting = self.waiting, []
        if not self._make_piece(nodes):
            for node in nodes:
                self._copy(node)

    def _make_piece(self, nodes: list[Node]) -> bool:
        inside = set(nodes)
        taken = list(dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside))
        given = [node for node in nodes if any(user not in inside for user in node.users)]
        if len(nodes) < SHORTEST or not given or not all(isinstance(example(node), torch.Tensor) for node in given):
            return False
        metas = [self._meta(node) for node in taken]
        missing = sorted(_used_symbols(metas) - _shown_symbols(metas), key=str)
        if not all(one in self.shown for one in missing) or None in metas:
            return False
        module = _graph_of(self.source, nodes, taken, given, len(missing))
        arguments = [*(self.copies[node] for node in taken), *map(self._carrier, missing)]
        call = self.graph.call_function(_unset, tuple(arguments))
        for i, node in enumerate(given):
            self.copies[node] = self.graph.call_function(operator.getitem, (call, i))
        weights = [self.inputs[node][1] if node in self.inputs else False for node in taken]
        trusted = [node in self.inputs and self.inputs[node][2] for node in taken]
        carriers = [TensorMeta((Size({(one,): 1}),), (0,), "uint8", "cpu", False) for one in missing]
        more = len(missing)
        self.pieces.append(Piece(module, [*map(_unsigned, metas), *map(_unsigned, carriers)], weights + [False] * more, trusted + [True] * more,
                                 _may_overlap(taken), call))
        return True

    def _meta(self, node: Node) -> Meta | None:
        if node in self.inputs:
            return self.inputs[node][0]
        if node in self.numbers:
            return self.numbers[node]
        trace = example(node)
        return replace(trace.meta, requires_grad=False, offset=0) if isinstance(trace, torch.Tensor) else None

    def _carrier(self, one: Symbol) -> Node:
        node, dim = self.shown[one]
        size = node if dim is None else self.graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
        return self.graph.call_function(tensor_of_size, (size,))


@dataclass(slots=True)
class SideInput:
    """What comes in for an input of a side: its meta (None: neither tensor nor known number), whether it is a weight, whether the meta is sure."""

    meta: Meta | None
    weight: bool
    trusted: bool


def side_inputs(node: Node, side: GraphModule, known: dict[Node, tuple[bool, bool]]) -> list[SideInput]:
    """What a side of the conditional, or the body of the loop, at `node` of an outer graph takes. `known`: the graph's inputs → weight, trusted."""
    carried = getattr(node.target, "carried", 0)
    operands = [None] * carried + list(node.args[1 + getattr(node.target, "kept", 0):])
    return [SideInput(_side_meta(taken), *known.get(operand, (False, False))) for taken, operand in zip(side.graph.find_nodes(op="placeholder"), operands)]


def output_places(side: GraphModule) -> list[tuple[bool, int]]:
    """Where what a side gives comes from: the index of an input (True), or of what its piece gives."""
    inputs = {node: i for i, node in enumerate(side.graph.find_nodes(op="placeholder"))}
    outputs = side.graph.output_node().args[0]
    made = {node: i for i, node in enumerate(one for one in dict.fromkeys(outputs) if one not in inputs)}
    return [(one in inputs, inputs[one] if one in inputs else made[one]) for one in outputs]


def _side_meta(taken: Node) -> Meta | None:
    trace = example(taken)
    return replace(trace.meta, requires_grad=False, offset=0) if isinstance(trace, torch.Tensor) else taken.meta.get("number")


def side_piece(node: Node, side: GraphModule, inputs: Sequence[SideInput]) -> Piece | None:
    """The side as a piece of its own, where it is worth it."""
    taken = side.graph.find_nodes(op="placeholder")
    metas = [one.meta for one in inputs]
    calls = [one for one in side.graph.nodes if one.op.startswith("call")]
    if len(calls) < SHORTEST or needs_cut(side.graph) or not all(isinstance(meta, TensorMeta) for meta in metas):
        return None
    given = [one for one in dict.fromkeys(side.graph.output_node().args[0]) if one.op != "placeholder"]
    if _used_symbols(metas) - _shown_symbols(metas) or not given:
        return None
    module = _graph_of(side, [one for one in side.graph.nodes if one.op not in ("placeholder", "output")], taken, given, 0)
    return Piece(module, [*map(_unsigned, metas)], [one.weight for one in inputs], [one.trusted for one in inputs], _may_overlap(taken), node)


def example(node: Node) -> Any:
    """The trace of what a node gives (in-place operators give their first argument); None where it is no tensor."""
    while "example_value" not in node.meta:
        if _is_list(node) or node.target in READS or not node.args or not isinstance(node.args[0], Node):
            return None
        node = node.args[0]
    return node.meta["example_value"]


def _is_list(node: Node) -> bool:
    """Whether the node gives a list of numbers, or a list of such lists."""
    return node.target == "tolist" or node.target is operator.getitem and _is_list(node.args[0])


def _may_overlap(taken: Sequence[Node]) -> bool:
    """Whether two inputs share memory: guards say that of the whole graph's inputs alone."""
    roots = [id(trace.root) for node in taken if isinstance(trace := example(node), torch.Tensor)]
    return len(set(roots)) < len(roots)


def _used_symbols(metas: Sequence[Meta]) -> set[Symbol]:
    """Those that sizes are made of. A number that is just a symbol may be no size."""
    sizes: list[SizeLike] = []
    for meta in metas:
        if isinstance(meta, TensorMeta):
            sizes += [*meta.sizes, *meta.strides]
        elif isinstance(meta, Size) and as_symbol(meta) is None:
            sizes.append(meta)
    return set().union(*map(symbols, sizes))


def _shown_symbols(metas: Sequence[Meta]) -> set[Symbol]:
    return {name for meta in metas if isinstance(meta, TensorMeta) for size in meta.sizes if (name := as_symbol(size)) is not None}


def _unsigned(meta: Meta) -> Meta:
    """The same with symbols that are at least 0, as a piece's inputs have them."""
    if meta is float or isinstance(meta, int):
        return meta
    def one(size: SizeLike) -> SizeLike:
        return substitute(size, {name: symbol(name.name) for name in symbols(size) if name.low is None})
    if not isinstance(meta, TensorMeta):
        return one(meta)
    return replace(meta, sizes=tuple(map(one, meta.sizes)), strides=tuple(map(one, meta.strides)))


def _graph_of(source: GraphModule, nodes: Sequence[Node], taken: Sequence[Node], given: Sequence[Node], more: int) -> GraphModule:
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in taken:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    for i in range(more):
        graph.placeholder(f"size_{i}")
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in given))
    return GraphModule(source, graph)


def _unset(*inputs: Any) -> Any:
    raise AssertionError("a piece that nobody compiled")
