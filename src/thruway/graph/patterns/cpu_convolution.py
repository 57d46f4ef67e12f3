"""Convolutions on a CPU: oneDNN's with a packed weight, doing the activation and the residual addition on the way out.

The addition happens in place in the summand where nobody reads that afterwards. An activation that clamps commutes with
rounding and is always taken; the others and the addition skip a rounding, so they are allowed exceptions.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Graph, Node

from thruway.core.sizes import product
from thruway.core.target import OWN_SIDE, PAIRED_PIXELS, Target, fits_pairs
from thruway.graph.derived import find_derivable
from thruway.graph.rewrite import (
    Context,
    Emitter,
    Storages,
    alias_arguments,
    aten,
    bind,
    bytes_of,
    editable,
    is_channels_last,
    is_op,
    meta,
    output_values,
    replace,
    same_layout,
    settled,
)
from thruway.shapes.meta import TensorMeta

mkldnn = torch.ops.mkldnn
IN_PLACE = mkldnn._convolution_pointwise_.binary
DTYPES = {"float32": "onednn", "bfloat16": "onednn_bf16", "float16": "onednn_fp16"}
CLAMPS = frozenset({aten.relu.default, aten.hardtanh.default, aten.relu6.default})


def is_packable(node: Node, derivable: set[Node], target: Target) -> bool:
    """A two-dimensional convolution, not transposed, with constant weight and bias, of a dtype that oneDNN has here."""
    a = bind(node)
    value: TensorMeta = meta(node)
    constant = a.weight in derivable and (a.bias is None or a.bias in derivable)
    return constant and len(value.sizes) == 4 and not a.transposed and DTYPES.get(value.dtype) in target.library_calls


def select_convolutions(graph: Graph, context: Context) -> Graph:
    derivable = find_derivable(graph)
    names = [node.name for node in graph.nodes if is_op(node, aten.convolution.default) and is_packable(node, derivable, context.target)]
    if context.target.kind != "cpu" or not names:
        return graph
    folded = {node.name for node in derivable if node.op == "call_function"}
    storages = Storages(graph)
    written = {node.name for node in graph.nodes if storages.is_written(node)}
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    for name in names:
        _select(by_name[name], context, folded, written)
    return settled(fresh, wanted)


def _select(node: Node, context: Context, folded: set[str], written: set[str]) -> None:
    """Packs the weight (a folded one was paid for already) and takes what follows along, unless a write stands near."""
    a = bind(node)
    own = _is_product(a, context.target)
    if not own and a.weight.name not in folded and not context.reserve(bytes_of(meta(a.weight)), a.weight):
        return
    alone = a.input.name in written or node.name in written
    summed = None if alone else _residual(node, context, written)
    end = summed or node
    activation = None if alone else _activation(end, context, AFTER_A_SUM if summed or own else frozenset(ACTIVATIONS))
    last = next(iter(end.users)) if activation else end
    emit = Emitter(last)
    geometry = (*(list(x)[:1] if own else list(x) * (2 // len(x)) for x in (a.padding, a.stride, a.dilation)), a.groups)
    packed = a.weight if own else emit(mkldnn._reorder_convolution_weight.default, a.weight, *geometry, _sizes(a.input))
    if summed is None:
        attr, scalars, algorithm = activation or ("none", [], "")
        made = emit(mkldnn._convolution_pointwise.default, a.input, packed, a.bias, *geometry, attr, scalars, algorithm)
    else:
        other = _other(summed, node)
        call = _in_place if other is not a.input and _may_overwrite(other, summed) and other.name not in folded else _out_of_place
        made = call(emit, a.input, other, (packed, a.bias, *geometry), activation)
    replace(last, made)
    for passed in (summed, node):
        if passed is not None and passed is not last and not passed.users:
            passed.graph.erase_node(passed)


def _is_product(a: SimpleNamespace, target: Target) -> bool:
    """Whether it is a product of pixels that a kernel of ours makes, by the weight as it lies. Then the call is told padding, stride and dilation by one
    number each: that, which no packed one has, is what `schedule/own_products` knows it by."""
    x, weight = meta(a.input), meta(a.weight)
    if weight.sizes[2:] != (1, 1) or a.groups != 1 or [{*a.padding}, {*a.stride}, {*a.dilation}] != [{0}, {1}, {1}]:
        return False
    rows, columns, inner = product((x.sizes[0], *x.sizes[2:])), *weight.sizes[:2]
    if x.dtype != "bfloat16" or type(rows) is not int or not fits_pairs(columns, inner) or weight.strides[1] != 1 or weight.strides[0] != inner:
        return False
    return is_channels_last(x) and min(columns, inner) >= OWN_SIDE and target.has_own_product(x.dtype, rows, rows * columns * inner, PAIRED_PIXELS)


def _sizes(x: Node) -> list[int] | None:
    """The input's sizes, which choose the packed form; None where they vary."""
    sizes = meta(x).sizes
    return list(sizes) if all(type(size) is int for size in sizes) else None


def _in_place(emit: Emitter, x: Node, other: Node, rest: tuple[Any, ...], activation: tuple[str, list, str] | None) -> Node:
    return emit(IN_PLACE, other, x, *rest, "add", 1.0, *(activation or (None, [], None)))


def _out_of_place(emit: Emitter, x: Node, other: Node, rest: tuple[Any, ...], activation: tuple[str, list, str] | None) -> Node:
    return emit(mkldnn._convolution_pointwise.binary, x, other, *rest, "add", 1.0, *(activation or (None, [], None)))


def _residual(node: Node, context: Context, written: set[str]) -> Node | None:
    """The addition of a tensor of the same layout that is the convolution's only reader."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    if not is_op(user, aten.add.Tensor) or bind(user).alpha != 1:
        return None
    other = _other(user, node)
    if not isinstance(other, Node) or other is node or {other.name, user.name} & written:
        return None
    if not same_layout(meta(other), meta(node)) or not same_layout(meta(user), meta(node)):
        return None
    return user if context.allows("convolution with residual", node) else None


def _other(addition: Node, node: Node) -> Node:
    return addition.args[1] if addition.args[0] is node else addition.args[0]


def _may_overwrite(other: Node, reader: Node) -> bool:
    """A tensor of the graph's own whose other readers are all done and made no view of it."""
    own = other.op == "call_function" and (alias_arguments(other.target) == ((), ()) or other.target is IN_PLACE)
    return own and all(user is reader or (user < reader and not alias_arguments(user.target)[0]) for user in other.users)


def _activation(node: Node, context: Context, known: frozenset[Any]) -> tuple[str, list, str] | None:
    """oneDNN's name, scalars and algorithm for the only reader, where it is an activation of `known` that may be taken."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    row = ACTIVATIONS[user.target] if user.target in known else None
    if row is None or not same_layout(meta(user), meta(node)):
        return None
    found = row(bind(user))
    return found if user.target in CLAMPS or context.allows("library epilogue", user) else None


ACTIVATIONS = {
    aten.relu.default: lambda a: ("relu", [], ""),
    aten.relu6.default: lambda a: ("hardtanh", [0.0, 6.0], ""),
    aten.hardtanh.default: lambda a: ("hardtanh", [float(a.min_val), float(a.max_val)], ""),
    aten.leaky_relu.default: lambda a: ("leaky_relu", [float(a.negative_slope)], ""),
    aten.hardswish.default: lambda a: ("hardswish", [], ""),
    aten.silu.default: lambda a: ("swish", [], ""),
    aten.sigmoid.default: lambda a: ("sigmoid", [], ""),
    aten.gelu.default: lambda a: ("gelu", [], a.approximate),
}
AFTER_A_SUM = frozenset({aten.relu.default})       # what oneDNN's call with a residual takes
