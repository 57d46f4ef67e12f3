"""`renew_views`: every read of a written storage stands behind the last write again, whatever passes made of it.

A pass may open an operator whose result is fresh (matmul, reshape) into one that ends in a view. Where the graph writes that result later,
reads through the view would be older than the write. Copies of a view onto itself, which `x[i] += y` leaves, go on the way.
"""

from __future__ import annotations

from torch.fx import Graph, Node

from thruway.graph.aliases import written_arguments
from thruway.graph.functionalize import functionalize
from thruway.graph.rewrite import aten, copied


def renew_views(graph: Graph) -> Graph:
    """`graph` itself where nothing is written in place."""
    if not any(written_arguments(node) for node in graph.nodes):
        return graph
    fresh = copied(graph)
    for node in [each for each in fresh.nodes if _copies_itself(each)]:
        node.replace_all_uses_with(node.args[0])
        fresh.erase_node(node)
    return functionalize(fresh, None)


def _copies_itself(node: Node) -> bool:
    return node.target is aten.copy_.default and node.args[0] is node.args[1]
