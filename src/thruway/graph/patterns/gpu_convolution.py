"""Convolutions on a GPU: cuDNN's fused ones do bias, residual addition and ReLU on the way out.

In bfloat16 and float16 on channels_last with a constant weight, which is kept in channels_last too. A bias that would cost a pass of
its own moves into the bias of the fused convolution that adds this result. ReLU commutes with rounding; the addition skips one, so
float16, where that might overflow, does without.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.fx import Graph, Node

from thruway.graph.derived import find_derivable
from thruway.graph.layout import is_channels_last
from thruway.graph.rewrite import Context, Emitter, Storages, aten, bind, bytes_of, editable, is_op, meta, output_values, replace, same_layout, settled

DTYPES = frozenset({"bfloat16", "float16"})


def select_gpu_convolutions(graph: Graph, context: Context) -> Graph:
    derivable = find_derivable(graph)
    storages = Storages(graph)
    names = [node.name for node in graph.nodes if is_op(node, aten.convolution.default) and _is_fusible(node, derivable, storages)]
    if context.target.kind != "cuda" or "cudnn" not in context.target.library_calls or not names:
        return graph
    folded = {node.name for node in derivable if node.op == "call_function"}
    written = {node.name for node in graph.nodes if storages.is_written(node)}
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    ready = set(names)
    for name in names:
        if name in by_name and _is_alive(by_name[name]):
            _select(by_name[name], context, folded, written, ready)
    return settled(fresh, wanted)


def _is_alive(node: Node) -> bool:
    return bool(node.users)


def _is_fusible(node: Node, derivable: set[Node], storages: Storages) -> bool:
    a = bind(node)
    value = meta(node)
    constant = a.weight in derivable and (a.bias is None or a.bias in derivable)
    plain = len(value.sizes) == 4 and not a.transposed and value.dtype in DTYPES and is_channels_last(value)
    return constant and plain and not storages.is_written(node) and not storages.is_written(a.input)


def _select(node: Node, context: Context, folded: set[str], written: set[str], ready: set[str]) -> None:
    a = bind(node)
    summed = _residual(node, context, written)
    end = summed or node
    relu = _relu(end)
    if relu is None or a.bias is None:
        _keep_weight(node, a, context, folded)
        return
    emit = Emitter(relu)
    weight = _channels_last(Emitter(node), a.weight, context, folded)
    geometry = (a.stride, a.padding, a.dilation, a.groups)
    if summed is None:
        made = emit.known(meta(relu), aten.cudnn_convolution_relu.default, a.input, weight, a.bias, *geometry)
    else:
        other, bias = _without_bias(_other(summed, node), a.bias, ready)
        made = emit.known(meta(relu), aten.cudnn_convolution_add_relu.default, a.input, weight, other, 1.0, bias, *geometry)
    replace(relu, made)
    for passed in (summed, node):
        if passed is not None and not passed.users:
            passed.graph.erase_node(passed)


def _keep_weight(node: Node, a: SimpleNamespace, context: Context, folded: set[str]) -> None:
    """Not fused: the weight at least stands in the layout that cuDNN reads."""
    node.replace_input_with(a.weight, _channels_last(Emitter(node), a.weight, context, folded))


def _channels_last(emit: Emitter, weight: Node, context: Context, folded: set[str]) -> Node:
    if is_channels_last(meta(weight)) or not (weight.name in folded or context.reserve(bytes_of(meta(weight)), weight)):
        return weight
    return emit(aten.clone.default, weight, memory_format=torch.channels_last)


def _without_bias(other: Node, bias: Node, ready: set[str]) -> tuple[Node, Node]:
    """A summand that is itself a convolution hands its bias over, where nobody else reads it."""
    if not (is_op(other, aten.convolution.default) and other.name in ready and len(other.users) == 1):
        return other, bias
    own = bind(other).bias
    if own is None:
        return other, bias
    emit = Emitter(other)
    total = emit.cast(emit(aten.add.Tensor, emit.cast(bias, "float32"), emit.cast(own, "float32")), meta(bias).dtype)
    other.args = (*other.args[:2], None, *other.args[3:])
    return other, total


def _residual(node: Node, context: Context, written: set[str]) -> Node | None:
    """The addition that is the convolution's only reader, where a ReLU follows."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    if not is_op(user, aten.add.Tensor) or bind(user).alpha != 1 or _relu(user) is None or bind(node).bias is None:
        return None
    other = _other(user, node)
    if not isinstance(other, Node) or other is node or {other.name, user.name} & written:
        return None
    if not same_layout(meta(other), meta(node)) or not same_layout(meta(user), meta(node)):
        return None
    return user if context.allows("convolution with residual", node) else None


def _other(addition: Node, node: Node) -> Node:
    return addition.args[1] if addition.args[0] is node else addition.args[0]


def _relu(node: Node) -> Node | None:
    """The only reader, where it is a ReLU."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    return user if is_op(user, aten.relu.default) and same_layout(meta(user), meta(node)) else None
