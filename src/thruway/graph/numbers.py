"""Numbers among the inputs of a captured graph, for a compiler whose inputs are tensors.

Arithmetic on numbers alone is done in Python before the graph runs; what tensor arithmetic takes of it comes in as 0-dim tensors, cast so
that the result has eager's dtype and rounding. An integer that the graph needs as a size comes in as the size of an empty-handed tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from thruway.core.sizes import SizeLike
from thruway.native import RegionFailed
from thruway.shapes.floats import FLOAT_FUNCTIONS
from thruway.shapes.meta import TensorMeta

COMPARISONS = frozenset({operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge})
ARITHMETIC = frozenset({operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.isub, operator.imul, operator.itruediv})
PLAIN = frozenset({operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.neg, torch.sym_max, torch.sym_min,
                   operator.pow, abs, *FLOAT_FUNCTIONS})
MAKE_FLOATS = frozenset({operator.truediv, *FLOAT_FUNCTIONS})
HALVES = (torch.bfloat16, torch.float16)
Meta = TensorMeta | SizeLike | type[float]


@dataclass(slots=True)
class Placed:
    """`module` takes tensors of `metas`; `convert` makes them from the inputs of the captured graph."""

    module: GraphModule
    metas: list[TensorMeta]
    weights: list[bool]
    convert: Callable[..., tuple[torch.Tensor, ...]] | None


def place_numbers(module: GraphModule, metas: Sequence[Meta], weights: Sequence[bool]) -> Placed:
    """The graph with tensors for all its inputs."""
    if all(isinstance(meta, TensorMeta) for meta in metas) and not any(map(_makes_number, module.graph.nodes)):
        return Placed(module, list(metas), list(weights), None)
    return _Placing(module, metas, weights).placed()


def _makes_number(node: Node) -> bool:
    """Whether the node reads a number from a tensor, or makes a float of sizes."""
    if node.target == "item":
        return True
    is_of_numbers = node.op == "call_function" and node.target in PLAIN and "example_value" not in node.meta
    return is_of_numbers and (node.target in MAKE_FLOATS or any(isinstance(one, float) for one in node.args))


@dataclass(slots=True)
class _Placing:
    source: GraphModule
    metas: Sequence[Meta]
    weights: Sequence[bool]
    graph: Graph = field(default_factory=Graph)
    kinds: dict[Node, type] = field(default_factory=dict)             # of nodes that are numbers: int or float
    elements: set[Node] = field(default_factory=set)                  # numbers that come from a tensor's elements
    made: list[TensorMeta] = field(default_factory=list)
    made_weights: list[bool] = field(default_factory=list)
    recipes: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    def placed(self) -> Placed:
        nodes = list(self.source.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        self._find_kinds(nodes, dict(zip(inputs, self.metas)))
        copies: dict[Node, Any] = {}
        scalars = [node for node in nodes if node in self.kinds and self._comes_as_scalar(node)]
        for node, meta, weight in zip(inputs, self.metas, self.weights):
            copies[node] = self._input(node, meta, weight)
        places = {node: self._scalar(node) for node in scalars}
        for node in nodes:
            if node in self.elements:
                copies[node] = places[node] = self._element(node, copies)
            elif node not in copies and not (node.op == "call_function" and node in self.kinds and not self._is_size(node)):
                copies[node] = self._copy(node, copies, places)
        for node in reversed(nodes):                        # numbers that Python computes now; writes in place look dead, too
            if node in self.kinds and node.op != "placeholder" and copies.get(node) is not None and not copies[node].users:
                self.graph.erase_node(copies[node])
        made = GraphModule(self.source, self.graph)
        return Placed(made, self.made, self.made_weights, self._converter(inputs))

    def _find_kinds(self, nodes: list[Node], metas: dict[Node, Meta]) -> None:
        for node in nodes:
            if node in metas:
                if not isinstance(metas[node], TensorMeta):
                    self.kinds[node] = float if metas[node] is float else int
            elif node.target is torch.ops.aten.sym_size.int:
                self.kinds[node] = int
            elif node.target == "item":
                self.kinds[node] = float if example_of(node.args[0]).is_floating_point() else int
                self.elements.add(node)
            elif node.target in PLAIN and all(not isinstance(one, Node) or one in self.kinds for one in node.args):
                kinds = {self.kinds[one] if isinstance(one, Node) else type(one) for one in node.args}
                self.kinds[node] = float if float in kinds or node.target in MAKE_FLOATS else int
                self.elements |= {node} if any(one in self.elements for one in node.all_input_nodes) else set()

    def _element(self, node: Node, copies: dict[Node, Any]) -> Node:
        """A number read from a tensor stays one: of its own memory, and as precise as Python's."""
        if node.target == "item":
            wide = torch.float64 if self.kinds[node] is float else torch.int64
            return self.graph.call_method("to", (self.graph.call_method("reshape", (copies[node.args[0]], ())), wide), {"copy": True})
        return self.graph.node_copy(node, copies.__getitem__)

    def _comes_as_scalar(self, node: Node) -> bool:
        """Whether tensor arithmetic takes the number, and it is a float or made of inputs that are numbers."""
        return node not in self.elements and any(takes_number(user, node, self.kinds) for user in node.users) and not self._is_size(node)

    def _is_size(self, node: Node) -> bool:
        """Whether the integer is known to the graph as a size: made of tensors' sizes alone, or used for more than arithmetic."""
        return node not in self.elements and self.kinds[node] is int and (_is_made_of_sizes(node) or any(self._needs_size(user, node) for user in node.users))

    def _needs_size(self, user: Node, node: Node) -> bool:
        if user in self.kinds:
            return self._is_size(user)
        return not takes_number(user, node, self.kinds)

    def _input(self, node: Node, meta: Meta, weight: bool) -> Any:
        if isinstance(meta, TensorMeta):
            return self._add(node.name, meta, node.name, weight)
        if self.kinds[node] is int and self._is_size(node):
            carrying = self._add(node.name, TensorMeta((meta,), (0,), "uint8", "cpu", False), f"carrier({node.name})")
            return self.graph.call_function(torch.ops.aten.sym_size.int, (carrying, 0))
        return None

    def _add(self, name: str, meta: TensorMeta, recipe: str, weight: bool = False) -> Node:
        """A placeholder behind those there are."""
        self.made.append(meta)
        self.made_weights.append(weight)
        self.recipes.append(recipe)
        last = next((node for node in reversed(self.graph.nodes) if node.op == "placeholder"), self.graph._root)
        with self.graph.inserting_after(last):
            return self.graph.placeholder(name)

    def _scalar(self, node: Node) -> Node:
        kind = self.kinds[node]
        meta = TensorMeta((), (), f"{kind.__name__}64", "cpu", False)
        return self._add(f"number_{len(self.made)}", meta, f"scalar({self._text(node)}, {kind.__name__}64)")

    def _text(self, value: Any) -> str:
        """Python for a number."""
        if not isinstance(value, Node):
            return f"({value!r})" if type(value) is int else self._constant(value)
        if value.op == "placeholder":
            return value.name
        if value.target is torch.ops.aten.sym_size.int:
            return f"{value.args[0].name}.size({value.args[1]})"
        return f"{self._constant(value.target)}({', '.join(map(self._text, value.args))})"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _copy(self, node: Node, copies: dict[Node, Any], places: dict[Node, Node]) -> Node:
        if node.target is torch.scalar_tensor and (held := places.get(node.args[0])) is not None:
            return self.graph.call_method("to", (held, node.kwargs["dtype"]))
        taken = [one for one in node.all_input_nodes if one in places and takes_number(node, one, self.kinds)]
        made = self.graph.node_copy(node, lambda one: self._cast(places[one], self.kinds[one], node) if one in taken else copies[one])
        return self._rounded(made, node) if taken and node.target not in COMPARISONS | {operator.setitem} else made

    def _cast(self, scalar: Node, kind: type, user: Node) -> Node:
        """The 0-dim tensor in the dtype in which eager computes with the number."""
        if user.target is operator.setitem:
            return self.graph.call_method("to", (scalar, example_of(user.args[0]).dtype))
        result = example_of(user).dtype
        if user.target in COMPARISONS:
            tensor = next(one for one in user.args if isinstance(one, Node) and one not in self.kinds)
            result = torch.result_type(_plain(example_of(tensor)), 1.0 if kind is float else 1)
        wanted = torch.float32 if result in (*HALVES, torch.complex64) else torch.float64 if result is torch.complex128 else result
        return self.graph.call_method("to", (scalar, wanted))

    def _rounded(self, made: Node, node: Node) -> Node:
        example = example_of(node)
        in_place = node.target.__name__.startswith("i")
        return self.graph.call_method("to", (made, example.dtype)) if example.dtype in HALVES and not example.dim() and not in_place else made

    def _converter(self, inputs: list[Node]) -> Callable[..., tuple[torch.Tensor, ...]]:
        space = self.constants | {"carrier": carrier, "scalar": scalar, "float64": torch.float64, "int64": torch.int64, "int": int}
        text = f"def convert({', '.join(node.name for node in inputs)}):\n    return ({''.join(one + ', ' for one in self.recipes)})\n"
        exec(compile(text, "<thruway numbers>", "exec"), space)
        return space["convert"]


def example_of(node: Node) -> torch.Tensor:
    """The trace of what a node gives; in-place operators give their first argument."""
    while "example_value" not in node.meta:
        node = node.args[0]
    return node.meta["example_value"]


def takes_number(user: Node, node: Node, kinds: dict[Node, type]) -> bool:
    """Whether `user` is arithmetic of a tensor and the number `node`, writes that float into a tensor, or makes a tensor of it."""
    if user.target is operator.setitem:
        return user.args[2] is node and kinds[node] is float
    if user.target is torch.scalar_tensor:
        return True
    if user.target not in ARITHMETIC | COMPARISONS or user in kinds or user.kwargs:
        return False
    left, right = user.args
    other = right if left is node else left
    return isinstance(other, Node) and other not in kinds and not (left is node and user.target.__name__.startswith("i"))


def _is_made_of_sizes(node: Node) -> bool:
    if node.op == "placeholder":
        return False
    return node.target is torch.ops.aten.sym_size.int or all(not isinstance(one, Node) or _is_made_of_sizes(one) for one in node.args)


def _plain(trace: torch.Tensor) -> torch.Tensor:
    """An empty tensor of the same dtype and category (0-dim or not)."""
    return torch.empty((0,) if trace.dim() else (), dtype=trace.dtype)


_ONE = torch.zeros(1, dtype=torch.uint8)


def carrier(size: int) -> torch.Tensor:
    """A tensor of that many elements, all of them the same byte."""
    return _ONE.expand(size)


def tensor_of_size(size: int) -> torch.Tensor:
    """A `carrier`; a number below 0 is no size, and what it would be the size of is not reached."""
    return carrier(max(size, 0))


def scalar(value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=dtype)


def with_numbers(run: Callable[..., Any], convert: Callable[..., tuple[torch.Tensor, ...]] | None) -> Callable[..., Any]:
    """`run` over the inputs of the captured graph."""
    if convert is None:
        return run

    def call(*inputs: Any) -> Any:
        try:
            made = convert(*inputs)
        except Exception as error:
            raise RegionFailed(error) from error
        return run(*made)
    return call
