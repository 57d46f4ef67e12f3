"""Rewrites operators to the small set that `loops` lowers and the library calls: each rule a row in a table by family.

What comes out equals eager in sizes, dtype, strides at the outputs, and in where values are rounded: inside one operator the
arithmetic stays in eager's compute dtype, at its end it is rounded once.
"""

from __future__ import annotations

from torch.fx import Graph

from thruway.graph.decompose import attention, losses, matrix, pointwise, reductions, views
from thruway.graph.renew import renew_views
from thruway.graph.rewrite import Context, Rule, apply_rules

RULES: dict[object, Rule] = {
    **attention.RULES, **matrix.RULES, **views.RULES, **pointwise.RULES, **reductions.RULES, **losses.RULES,
}
COMPOSITES: dict[object, Rule] = {**attention.RULES, **matrix.COMPOSITES, **pointwise.DROPOUTS}


def decompose(graph: Graph, context: Context) -> Graph:
    return _opened(graph, RULES, context)


def open_composites(graph: Graph, context: Context) -> Graph:
    """What patterns want to see in one form: convolutions of any rank, torch's fused encoder operators, idle dropout."""
    return _opened(graph, COMPOSITES, context)


def _opened(graph: Graph, rules: dict[object, Rule], context: Context) -> Graph:
    return renew_views(apply_rules(graph, rules, context))
