"""`verify` notices each broken convention."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from thruway.core.errors import CompilerBug
from thruway.graph.retrace import retrace_callable
from thruway.graph.verify import verify
from thruway.shapes.trace_tensor import meta_of

aten = torch.ops.aten
X = torch.ones(3, 4)


def graph_of(fn):
    graph = retrace_callable(fn, [meta_of(X)]).graph
    verify(graph)
    return graph


def find(graph, name: str):
    return next(n for n in graph.nodes if isinstance(n.target, torch._ops.OpOverload) and n.target._schema.name == f"aten::{name}")


def broken(graph, match: str) -> None:
    with pytest.raises(CompilerBug, match=match):
        verify(graph)


def test_a_wrong_value():
    graph = graph_of(lambda x: x.exp().sum(0))
    node = find(graph, "exp")
    node.meta["value"] = replace(node.meta["value"], dtype="float64")
    broken(graph, "has the value")


def test_a_missing_value():
    graph = graph_of(lambda x: x.exp())
    del find(graph, "exp").meta["value"]
    broken(graph, "has the value None")


def test_a_target_that_is_no_operator():
    graph = graph_of(lambda x: x.exp())
    find(graph, "exp").target = torch.exp
    broken(graph, "no operator")


def test_a_node_before_its_argument():
    graph = graph_of(lambda x: x.exp().sin())
    find(graph, "exp").prepend(find(graph, "sin"))
    broken(graph, "does not stand before")


def test_a_view_read_after_a_write():
    def f(x):
        v = x[0]
        a = v + 1
        x.mul_(2)
        return a
    graph = graph_of(f)
    find(graph, "mul_").append(find(graph, "add"))
    broken(graph, "before its storage")


def test_a_written_weight():
    graph = graph_of(lambda x: x.mul_(2))
    next(iter(graph.nodes)).meta["weight"] = True
    broken(graph, "marked as a weight")


def test_a_written_constant():
    graph = graph_of(lambda x: x + torch.tensor([1.0, 2, 3, 4]))
    constant = next(n for n in graph.nodes if n.op == "get_attr")
    with graph.inserting_after(constant):
        node = graph.call_function(aten.neg_.default, (constant,))
    node.meta.update(value=constant.meta["value"], line=None)
    broken(graph, "writes the constant")


def test_refused_arguments():
    graph = graph_of(lambda x: x.sum(0))
    find(graph, "sum").args = (find(graph, "sum").args[0], [5])
    broken(graph, "refused")


def test_no_output():
    graph = graph_of(lambda x: x.exp())
    graph.erase_node(graph.output_node())
    broken(graph, "one output")
