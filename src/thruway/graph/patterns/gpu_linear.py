"""Linear layers on a GPU: cuBLASLt does bias and activation on the way out (`_addmm_activation`).

ReLU commutes with rounding and is always taken. cuBLASLt's GELU is the tanh form, so only that one is; it skips a rounding,
so float16, where that might overflow, does without.
"""

from __future__ import annotations

from torch.fx import Graph, Node

from thruway.core.sizes import product
from thruway.graph.rewrite import Context, Emitter, Storages, aten, bind, editable, is_contiguous, is_op, meta, output_values, replace, same_layout, settled
from thruway.shapes.meta import TensorMeta, contiguous_strides

DTYPES = frozenset({"bfloat16", "float16", "float32"})


def select_gpu_linears(graph: Graph, context: Context) -> Graph:
    """relu(linear) and gelu_tanh(linear) with a bias, over constant weights, as one call."""
    if context.target.kind != "cuda":
        return graph
    storages = Storages(graph)
    names = [node.name for node in graph.nodes if is_op(node, aten.linear.default) and _activation(node, context) and _is_plain(node, storages)]
    if not names:
        return graph
    fresh, wanted = editable(graph, context), output_values(graph)
    by_name = {node.name: node for node in fresh.nodes}
    for name in names:
        _select(by_name[name], context)
    return settled(fresh, wanted)


def _is_plain(node: Node, storages: Storages) -> bool:
    a = bind(node)
    fits = a.bias is not None and len(meta(a.weight).sizes) == 2 and meta(node).dtype in DTYPES and is_contiguous(meta(a.input))
    return fits and meta(a.weight).strides[-1] == 1 and not storages.is_written(node)


def _activation(node: Node, context: Context) -> Node | None:
    """The only reader, where cuBLASLt has it."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if not is_op(user, aten.relu.default, aten.gelu.default) or not same_layout(meta(user), meta(node)):
        return None
    if user.target is aten.relu.default:
        return user
    return user if bind(user).approximate == "tanh" and context.numerics != "strict" else None


def _select(node: Node, context: Context) -> None:
    activation = _activation(node, context)
    use_gelu = activation.target is aten.gelu.default
    if use_gelu and not context.allows("library epilogue", activation):
        return
    a, emit = bind(node), Emitter(node)
    value = meta(node)
    rows = emit.view(a.input, (product(value.sizes[:-1]), meta(a.input).sizes[-1]))
    weight = emit(aten.t.default, a.weight)
    flat = product(value.sizes[:-1]), value.sizes[-1]
    known = TensorMeta(flat, contiguous_strides(flat), value.dtype, value.device)
    made = emit.known(known, aten._addmm_activation.default, a.bias, rows, weight, use_gelu=use_gelu)
    replace(activation, emit.view(made, value.sizes))
    if not node.users:
        node.graph.erase_node(node)
