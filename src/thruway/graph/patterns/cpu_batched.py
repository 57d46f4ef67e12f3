"""Batches of low-precision matrix products on a CPU: operands in the two layouts that torch hands to oneDNN as they are.

torch copies any other operand first, one call and one pass more; a copy of ours is fused with what computes the operand.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Graph, Node

from thruway.core.dtypes import LOW_FLOATS
from thruway.core.sizes import mul
from thruway.graph.rewrite import Context, Emitter, apply_rules, aten, meta
from thruway.shapes.meta import TensorMeta, contiguous_strides


def settle_batched_products(graph: Graph, context: Context) -> Graph:
    return apply_rules(graph, RULES, context)


def _bmm(emit: Emitter, node: Node, a: SimpleNamespace, context: Context) -> Node | None:
    if meta(node).dtype not in LOW_FLOATS or all(_is_taken(meta(x)) for x in (a.self, a.mat2)):
        return None
    return emit(aten.bmm.default, _settled(emit, a.self), _settled(emit, a.mat2))


def _is_taken(x: TensorMeta) -> bool:
    batch, rows, columns = x.sizes
    return x.strides in (contiguous_strides(x.sizes), (mul(rows, columns), 1, rows))


def _settled(emit: Emitter, x: Node) -> Node:
    if _is_taken(meta(x)):
        return x
    if meta(x).strides[1] == 1:
        turned = emit(aten.transpose.int, x, 1, 2)
        return emit(aten.transpose.int, emit(aten.clone.default, turned, memory_format=torch.contiguous_format), 1, 2)
    return emit(aten.clone.default, x, memory_format=torch.contiguous_format)


RULES: dict[Any, Any] = {aten.bmm.default: _bmm}
