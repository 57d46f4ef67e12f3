"""Batch norm of inference behind a convolution: folded into its weight and bias, in float64, then rounded to their dtype."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.fx import Graph, Node

from thruway.core.dtypes import is_float
from thruway.graph.derived import find_derivable
from thruway.graph.rewrite import (
    Context,
    Emitter,
    Storages,
    aten,
    bind,
    bytes_of,
    editable,
    is_op,
    meta,
    output_values,
    replace,
    settled,
)

NORMS = frozenset({
    aten.batch_norm.default, aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default,
    aten.cudnn_batch_norm.default,
})


def fold_batch_norm(graph: Graph, context: Context) -> Graph:
    """conv(x) * s + t = conv with weight * s, bias * s + t, for s = gamma / sqrt(var + eps)."""
    storages = Storages(graph)
    derivable = find_derivable(graph, storages)
    matches = [node.name for node in graph.nodes if _matches(node, derivable, storages)]
    if not matches or context.numerics == "strict":
        return graph
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    for name in matches:
        _fold(by_name[name], context)
    return settled(fresh, wanted)


def _matches(node: Node, derivable: set[Node], storages: Storages) -> bool:
    if not is_op(node, *NORMS):
        return False
    a = bind(node)
    convolution = a.input
    if getattr(a, "training", False) or a.running_mean is None or a.running_var is None:
        return False
    if not is_op(convolution, aten.convolution.default) or len(convolution.users) != 1 or not _only_first_is_used(node):
        return False
    c = bind(convolution)
    weights = [w for w in (c.weight, c.bias, a.weight, a.bias, a.running_mean, a.running_var) if w is not None]
    dtype = meta(convolution).dtype
    fits = is_float(dtype) and dtype != "float16"                    # where eager's convolution overflows, the folded one might not
    return fits and all(w in derivable for w in weights) and not storages.is_written(convolution)


def _only_first_is_used(node: Node) -> bool:
    return not isinstance(meta(node), (tuple, list)) or {user.args[1] for user in node.users} <= {0}


def _fold(node: Node, context: Context) -> None:
    convolution = node.args[0]
    weight = bind(convolution).weight
    if not context.reserve(bytes_of(meta(weight)), weight) or not context.allows("batch norm folded", node):
        return
    result = _folded(Emitter(node), bind(node), bind(convolution))
    if not isinstance(meta(node), (tuple, list)):
        replace(node, result)
        return
    for user in list(node.users):
        replace(user, result)
    node.graph.erase_node(node)


def _folded(emit: Emitter, norm: SimpleNamespace, c: SimpleNamespace) -> Node:
    dtype = meta(c.weight).dtype
    scale = emit(aten.sqrt.default, emit(aten.add.Scalar, emit.cast(norm.running_var, "float64"), norm.eps))
    scale = emit(aten.reciprocal.default, scale)
    if norm.weight is not None:
        scale = emit(aten.mul.Tensor, scale, emit.cast(norm.weight, "float64"))
    shift = emit(aten.neg.default, emit.cast(norm.running_mean, "float64"))
    if c.bias is not None:
        shift = emit(aten.add.Tensor, shift, emit.cast(c.bias, "float64"))
    shift = emit(aten.mul.Tensor, shift, scale)
    if norm.bias is not None:
        shift = emit(aten.add.Tensor, shift, emit.cast(norm.bias, "float64"))
    weight = emit(aten.mul.Tensor, emit.cast(c.weight, "float64"), _along_channels(emit, scale, c))
    return emit(aten.convolution.default, c.input, emit.cast(weight, dtype), emit.cast(shift, dtype), c.stride, c.padding, c.dilation,
                c.transposed, c.output_padding, c.groups)


def _along_channels(emit: Emitter, scale: Node, c: SimpleNamespace) -> Node:
    """`scale` shaped for the weight, whose output channels are dimension 0, or, transposed, dimension 1 within each group."""
    rank = len(meta(c.weight).sizes)
    if not c.transposed:
        return emit.view(scale, [meta(scale).sizes[0]] + [1] * (rank - 1))
    per_group = meta(c.weight).sizes[1]
    inputs = meta(c.weight).sizes[0] // c.groups
    apart = emit.view(scale, (c.groups, 1, per_group))
    wide = emit(aten.clone.default, emit.expand(apart, (c.groups, inputs, per_group)), memory_format=torch.contiguous_format)
    return emit.view(wide, [c.groups * inputs, per_group] + [1] * (rank - 2))
