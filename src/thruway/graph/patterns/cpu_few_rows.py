"""Matrix products of one row, and small ones of a few, on a CPU: multiply and sum, which loops fuse with what stands around.

A product of one row reads each weight once, so memory decides: a loop of ours streams at the memory's speed, where library calls reach half
of it (docs/decisions, steady speed on CPUs), and a call is saved. Low precision is multiplied and summed in float32 and rounded once.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch.fx import Graph, Node

from thruway.graph.patterns.cpu_linear import is_open, rows_of
from thruway.graph.rewrite import Context, Emitter, apply_rules, aten, meta, numel

WIDE = {"bfloat16": "float32", "float16": "float32", "float32": "float32", "float64": "float64"}


def open_few_rows(graph: Graph, context: Context) -> Graph:
    return apply_rules(graph, RULES, context)


def _open_linear(emit: Emitter, node: Node, a: SimpleNamespace, context: Context) -> Node | None:
    rows, dtype = rows_of(a.input), meta(node).dtype
    if len(meta(a.weight).sizes) != 2 or not is_open(context.target, dtype, rows, numel(meta(a.weight))):
        return None
    width = meta(a.weight).sizes[1]
    x = emit.view(a.input, (width,) if rows == 1 else (rows, 1, width))
    total = _sum_of_products(emit, a.weight, x, -1)
    if a.bias is not None:
        total = emit(aten.add.Tensor, total, emit.cast(a.bias, WIDE[dtype]))
    return emit.view(emit.cast(total, dtype), meta(node).sizes)


def _open_bmm(emit: Emitter, node: Node, a: SimpleNamespace, context: Context) -> Node | None:
    batch, rows, width = meta(a.self).sizes
    if rows != 1 or not is_open(context.target, meta(node).dtype, 1, width):
        return None
    total = _sum_of_products(emit, a.mat2, emit.view(a.self, (batch, width, 1)), 1)
    return emit.view(emit.cast(total, meta(node).dtype), meta(node).sizes)


def _sum_of_products(emit: Emitter, matrix: Node, x: Node, dim: int) -> Node:
    wide = WIDE[meta(matrix).dtype]
    return emit(aten.sum.dim_IntList, emit(aten.mul.Tensor, emit.cast(x, wide), emit.cast(matrix, wide)), [dim])


RULES: dict[Any, Any] = {aten.linear.default: _open_linear, aten.bmm.default: _open_bmm}
