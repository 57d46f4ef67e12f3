"""Pointwise operators of three and more inputs, in eager's compute dtype with one rounding at the end."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from torch.fx import Node

from thruway.core.dtypes import compute_dtype, is_float
from thruway.graph.rewrite import Context, Emitter, Rule, aten, meta


def in_compute_dtype(body: Callable[[Emitter, SimpleNamespace], Node]) -> Rule:
    """A rule that runs `body` with floating inputs cast to the result's compute dtype, and rounds once."""
    def rule(emit: Emitter, node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
        dtype = meta(node).dtype
        if not is_float(dtype):
            return None
        wide = {name: _widened(emit, value, compute_dtype(dtype)) for name, value in vars(a).items()}
        return emit.cast(body(emit, SimpleNamespace(**wide)), dtype)
    return rule


def _widened(emit: Emitter, value, dtype: str):
    return emit.cast(value, dtype) if isinstance(value, Node) and is_float(meta(value).dtype) else value


def _scaled(emit: Emitter, node: Node, value: float) -> Node:
    return node if value == 1 else emit(aten.mul.Scalar, node, value)


def addcmul(emit: Emitter, a: SimpleNamespace) -> Node:
    return emit(aten.add.Tensor, a.self, emit(aten.mul.Tensor, _scaled(emit, a.tensor1, a.value), a.tensor2))


def addcdiv(emit: Emitter, a: SimpleNamespace) -> Node:
    return emit(aten.add.Tensor, a.self, emit(aten.div.Tensor, _scaled(emit, a.tensor1, a.value), a.tensor2))


def lerp_scalar(emit: Emitter, a: SimpleNamespace) -> Node:
    """ATen's formula: from the nearer end, so that weight 1 gives `end`."""
    distance = emit(aten.sub.Tensor, a.end, a.self)
    if abs(a.weight) < 0.5:
        return emit(aten.add.Tensor, a.self, _scaled(emit, distance, a.weight))
    return emit(aten.sub.Tensor, a.end, _scaled(emit, distance, 1 - a.weight))


def lerp_tensor(emit: Emitter, a: SimpleNamespace) -> Node:
    distance = emit(aten.sub.Tensor, a.end, a.self)
    near = emit(aten.add.Tensor, a.self, emit(aten.mul.Tensor, a.weight, distance))
    rest = emit(aten.add.Scalar, emit(aten.neg.default, a.weight), 1)
    far = emit(aten.sub.Tensor, a.end, emit(aten.mul.Tensor, distance, rest))
    return emit(aten.where.self, emit(aten.lt.Scalar, emit(aten.abs.default, a.weight), 0.5), near, far)


def outer(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node:
    return emit(aten.mul.Tensor, emit(aten.unsqueeze.default, a.self, 1), getattr(a, "vec2", None) or a.other)


def dropout(_emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Where nothing is dropped, eager gives the input itself (in training it draws nothing where p is 0)."""
    return a.input if not a.train or a.p == 0 else None


DROPOUTS = {aten.dropout.default: dropout, aten.feature_dropout.default: dropout, aten.alpha_dropout.default: dropout}
RULES = {
    **DROPOUTS,
    aten.addcmul.default: in_compute_dtype(addcmul),
    aten.addcdiv.default: in_compute_dtype(addcdiv),
    aten.lerp.Scalar: in_compute_dtype(lerp_scalar),
    aten.lerp.Tensor: in_compute_dtype(lerp_tensor),
    aten.outer.default: outer, aten.ger.default: outer,
}
