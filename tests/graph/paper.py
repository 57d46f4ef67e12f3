"""ATen graphs over several devices, built without any: values have devices on paper, and their elements in CPU memory."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from thruway.graph.evaluate import evaluate
from thruway.graph.parts import Parts, devices_of, split_by_device, writes_inputs
from thruway.graph.rewrite import copied
from thruway.graph.verify import verify
from thruway.runtime.parts import PartsRunnable, Step
from thruway.shapes.trace_tensor import meta_of

aten = torch.ops.aten
CPU, ONE, TWO = "cpu", "cuda:0", "cuda:1"


class Paper:
    """A graph under construction. `tensors` are the values of its nodes, all of them in CPU memory."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.tensors: dict[Node, torch.Tensor] = {}
        self.inputs: list[torch.Tensor] = []

    def input(self, value: torch.Tensor, device: str) -> Node:
        self.inputs.append(value.clone())
        return self._finish(self.graph.placeholder(f"x{len(self.inputs)}"), value, device)

    def __call__(self, op, *args, device: str | None = None, **kwargs) -> Node:
        value = op(*map_arg(args, self.tensors.__getitem__), **kwargs)
        found = device or next(one.meta["value"].device for one in args if isinstance(one, Node))
        more = {"device": torch.device(device)} if device else {}
        return self._finish(self.graph.call_function(op, args, {**kwargs, **more}), value, found)

    def move(self, one: Node, device: str) -> Node:
        return self(aten._to_copy.default, one, device=device)

    def _finish(self, node: Node, value: torch.Tensor, device: str) -> Node:
        self.tensors[node] = value
        node.meta.update(value=replace(meta_of(value), device=device), line=None, weight=False)
        return node

    def parts(self, *outputs: Node) -> Parts:
        self.graph.output(tuple(outputs))
        self.whole = on_cpu(copied(self.graph))
        parts = split_by_device(self.graph)
        for part in parts.steps:
            verify(part.graph)
            assert part.device is None or {one for one in devices_of(part.graph)} <= {part.device}
        return parts

    def compare(self, parts: Parts) -> None:
        """The parts and the whole: equal results, and equal tensors among the arguments afterwards."""
        mine, theirs = ([each.clone() for each in self.inputs] for _ in range(2))
        steps = [Step(runner(part.graph), part.inputs, part.outputs, writes_inputs(part.graph)) for part in parts.steps]
        got, want = PartsRunnable(steps, parts.inputs, parts.outputs, False)(*mine), evaluate(self.whole, theirs)
        for a, b in zip((*got, *mine), (*want, *theirs), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            assert a.stride() == b.stride()


def on_cpu(graph: Graph) -> Graph:
    for node in graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = node.kwargs | {"device": torch.device("cpu")}
    return graph


def runner(graph: Graph):
    graph = on_cpu(copied(graph))
    return lambda *inputs: evaluate(graph, inputs)
