"""Torch's fused encoder operators, opened: linears, attention, residual additions and layer norms.

`_transformer_encoder_layer_fwd` and `_native_multi_head_attention` keep everything inside one opaque call, so nothing could be
packed or fused. They round where separate operators round, but for the order of additions inside; an allowed exception.
"""

from __future__ import annotations

from types import SimpleNamespace

from torch.fx import Node

from thruway.graph.rewrite import Context, Emitter, aten, meta


def encoder_layer(emit: Emitter, node: Node, a: SimpleNamespace, context: Context) -> Node | None:
    if a.mask is not None or len(meta(a.src).sizes) != 3 or not context.allows("encoder layer opened", node):
        return None
    x = a.src

    def norm(value: Node, weight: Node, bias: Node) -> Node:
        return emit(aten.layer_norm.default, value, [a.embed_dim], weight, bias, a.eps)

    def attend(value: Node) -> Node:
        heads = _project(emit, value, a.qkv_weight, a.qkv_bias, a.num_heads)
        return _attention(emit, heads, a.proj_weight, a.proj_bias)

    def feed(value: Node) -> Node:
        hidden = emit(aten.linear.default, value, a.ffn_weight_1, a.ffn_bias_1)
        hidden = emit(aten.gelu.default, hidden) if a.use_gelu else emit(aten.relu.default, hidden)
        return emit(aten.linear.default, hidden, a.ffn_weight_2, a.ffn_bias_2)

    if a.norm_first:
        x = emit(aten.add.Tensor, x, attend(norm(x, a.norm_weight_1, a.norm_bias_1)))
        return emit(aten.add.Tensor, x, feed(norm(x, a.norm_weight_2, a.norm_bias_2)))
    x = norm(emit(aten.add.Tensor, x, attend(x)), a.norm_weight_1, a.norm_bias_1)
    return norm(emit(aten.add.Tensor, x, feed(x)), a.norm_weight_2, a.norm_bias_2)


def _project(emit: Emitter, x: Node, weight: Node, bias: Node, heads: int) -> tuple[Node, Node, Node]:
    """q, k and v as [batch, heads, tokens, width], from one linear layer."""
    batch, tokens, width = meta(x).sizes
    joined = emit.view(emit(aten.linear.default, x, weight, bias), (batch, tokens, 3, heads, width // heads))
    apart = emit(aten.permute.default, joined, [2, 0, 3, 1, 4])
    return tuple(emit(aten.select.int, apart, 0, i) for i in range(3))


def _attention(emit: Emitter, heads: tuple[Node, Node, Node], weight: Node, bias: Node) -> Node:
    """Written out, as the fused operator does it: q scaled first, then two products around a softmax."""
    query, key, value = heads
    batch, count, tokens, width = meta(query).sizes
    scores = emit(aten.matmul.default, emit(aten.mul.Scalar, query, width ** -0.5), emit(aten.transpose.int, key, -1, -2))
    out = emit(aten.matmul.default, emit(aten.softmax.int, scores, -1), value)
    merged = emit.view(emit(aten.transpose.int, out, 1, 2), (batch, tokens, count * width))
    return emit(aten.linear.default, merged, weight, bias)


def multi_head_attention(emit: Emitter, node: Node, a: SimpleNamespace, context: Context) -> tuple[Node, None] | None:
    """Self-attention without a mask whose weights nobody reads."""
    same = a.query is a.key and a.key is a.value
    read = {user.args[1] for user in node.users}
    if not same or a.mask is not None or not read <= {0} or not context.allows("attention opened", node):
        return None
    heads = _project(emit, a.query, a.qkv_weight, a.qkv_bias, a.num_head)
    return _attention(emit, heads, a.proj_weight, a.proj_bias), None


RULES = {
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._native_multi_head_attention.default: multi_head_attention,
}
