"""Outer products, and dropout where nothing is dropped."""

from __future__ import annotations

from types import SimpleNamespace

from torch.fx import Node

from thruway.graph.rewrite import Context, Emitter, aten


def outer(emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node:
    return emit(aten.mul.Tensor, emit(aten.unsqueeze.default, a.self, 1), a.vec2)


def dropout(_emit: Emitter, _node: Node, a: SimpleNamespace, _context: Context) -> Node | None:
    """Where nothing is dropped, eager gives the input itself (in training it draws nothing where p is 0)."""
    return a.input if not a.train or a.p == 0 else None


DROPOUTS = {aten.dropout.default: dropout, aten.feature_dropout.default: dropout, aten.alpha_dropout.default: dropout}
RULES = {**DROPOUTS, aten.outer.default: outer, aten.ger.default: outer}
