"""Layout: convolution networks run channels_last.

One copy where data enters the first convolution; from there strides follow the operators' own rules, so everything between
stays channels_last; outputs get eager's strides back. Weights are turned when they are packed.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from thruway.core.errors import Unsupported
from thruway.graph.derived import find_derivable
from thruway.graph.patterns.cpu_convolution import is_packable
from thruway.graph.rewrite import Context, Emitter, aten, copied, is_channels_last, is_op, mark_stale, meta, output_values, refresh, restore_outputs
from thruway.shapes.meta import TensorMeta


def prefer_channels_last(graph: Graph, context: Context) -> Graph:
    derivable = find_derivable(graph)
    names = {node.name for node in graph.nodes if is_op(node, aten.convolution.default) and _gains(node, derivable, context)}
    if not names:
        return graph
    fresh, wanted = copied(graph), output_values(graph)
    try:
        changed = [_turn(node, names) for node in list(fresh.nodes)]
        restore_outputs(fresh, wanted)
    except Unsupported as refused:
        context.notes.append(("layout", str(refused)))
        return graph
    return fresh if any(changed) else graph


def _gains(node: Node, derivable: set[Node], context: Context) -> bool:
    if context.target.kind == "cpu":
        return is_packable(node, derivable, context.target)
    value: TensorMeta = meta(node)
    return len(value.sizes) == 4 and value.dtype in {"bfloat16", "float16"}


def _turn(node: Node, names: set[str]) -> bool:
    """Brings the node up to date, and a convolution's input to channels_last."""
    refresh(node)
    if node.name not in names or is_channels_last(meta(node.args[0])):
        return False
    source, before = node.args[0], meta(node)
    node.replace_input_with(source, Emitter(node)(aten.clone.default, source, memory_format=torch.channels_last))
    node.meta["stale"] = True
    refresh(node)
    mark_stale(node, list(node.users), before)
    return True
