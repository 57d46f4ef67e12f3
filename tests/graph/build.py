"""Small graphs by hand, and running one operator by operator, for the tests of this folder."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from thruway.graph.evaluate import constant_node
from thruway.graph.rewrite import Emitter, meta
from thruway.graph.verify import verify
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import dtype_name


def meta_of(t: torch.Tensor) -> TensorMeta:
    return TensorMeta(tuple(t.shape), t.stride(), dtype_name(t.dtype), str(t.device), False, t.storage_offset())


class Build:
    """`x = b.input(tensor)`, `y = b(op, x, …)`, `graph = b.done(y)`; `b.tensors` are what the graph is run with."""

    def __init__(self) -> None:
        self.graph, self.tensors = Graph(), []
        self.end = self.graph.output(())
        self.emit = Emitter(self.end)

    def input(self, tensor: torch.Tensor, weight: bool = False) -> Node:
        with self.graph.inserting_before(self.end):
            node = self.graph.placeholder(f"in{len(self.tensors)}")
        node.meta.update(value=meta_of(tensor), weight=weight)
        self.tensors.append(tensor)
        return node

    def weight(self, tensor: torch.Tensor) -> Node:
        return self.input(tensor, weight=True)

    def constant(self, tensor: torch.Tensor) -> Node:
        with self.graph.inserting_before(self.end):
            node = constant_node(self.graph, f"constant{len(self.graph.nodes)}", tensor)
        node.meta.update(value=meta_of(tensor))
        return node

    def __call__(self, op, *args, **kwargs) -> Node:
        return self.emit(op, *args, **kwargs)

    def item(self, node: Node, index: int) -> Node:
        return self.emit.item(node, index)

    def done(self, *outputs: Node) -> Graph:
        self.end.args = (outputs,)
        self.graph.lint()
        return self.graph


def run(graph: Graph, tensors: list[torch.Tensor], strict: bool = True) -> tuple[torch.Tensor, ...]:
    """Each node in turn; with `strict`, every tensor must come out as its metadata says."""
    known: dict[Node, object] = {}
    left = list(tensors)
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "placeholder":
                known[node] = left.pop(0)
            elif node.op == "output":
                return map_arg(node.args[0], known.__getitem__)
            else:
                args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = node.target(*args, **kwargs)
            if strict and isinstance(known[node], torch.Tensor) and known[node].layout == torch.strided:
                check(node, known[node])
    raise AssertionError("a graph without an output")


def check(node: Node, tensor: torch.Tensor) -> None:
    said = meta(node)
    assert tuple(tensor.shape) == said.sizes, (node, node.target, tensor.shape, said)
    assert dtype_name(tensor.dtype) == said.dtype, (node, tensor.dtype, said)
    if tensor.numel() > 1:
        pairs = [(s, t) for n, s, t in zip(said.sizes, tensor.stride(), said.strides, strict=True) if n != 1]
        assert all(s == t for s, t in pairs), (node, node.target, tensor.stride(), said)


def targets(graph: Graph) -> list[str]:
    return [str(node.target).removeprefix("aten.") for node in graph.nodes if node.op == "call_function"]


def _twin(t: torch.Tensor) -> torch.Tensor:
    """The same values in the same layout, in other memory."""
    memory = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage().clone())
    return memory.as_strided(t.shape, t.stride(), t.storage_offset())


def assert_same(before: Graph, after: Graph, tensors: list[torch.Tensor], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Both give the same values, dtypes and strides, and write the same to their inputs."""
    verify(after)
    first, second = [_twin(t) for t in tensors], [_twin(t) for t in tensors]
    for a, b in zip([*run(before, first), *first], [*run(after, second), *second], strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.numel() < 2 or all(s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True) if n != 1), (a.stride(), b.stride())
        torch.testing.assert_close(b, a, rtol=rtol, atol=atol, equal_nan=True)
