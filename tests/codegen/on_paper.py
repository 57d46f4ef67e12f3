"""What a GPU would run, without one: graphs traced on the CPU and moved to "cuda:0" on paper."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn as nn
from torch.fx import Graph
from torch.fx.node import map_aggregate

from thruway.capture.capture import capture
from thruway.core.journal import Journal
from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.frame.state import read_state
from thruway.gpu_compiler import print_graph, run_gpu_passes, split_derived
from thruway.graph.retrace import retrace
from thruway.native.fallback import bind_arguments
from thruway.shapes.meta import TensorMeta

TARGET = Target(kind="cuda", library_calls=frozenset({"cudnn", "cublaslt", "sm_90"}))


def on_paper(graph: Graph) -> Graph:
    def moved(value):
        if isinstance(value, TensorMeta):
            return replace(value, device="cuda:0")
        return type(value)(map(moved, value)) if isinstance(value, tuple | list) else value

    def device(value):
        return torch.device("cuda", 0) if isinstance(value, torch.device) else value

    for node in graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, device), map_aggregate(node.kwargs, device)
        if "value" in node.meta:
            node.meta["value"] = moved(node.meta["value"])
    return graph


def traced(module: nn.Module, args: tuple) -> Graph:
    """The retraced graph of a module in bfloat16, on paper."""
    module = module.bfloat16().eval()
    with torch.no_grad():
        captured = capture(type(module).forward, bind_arguments(type(module).forward, (module, *args), {}), read_state(), Settings())
        assert not captured.break_reasons
        return on_paper(retrace(captured.graph, [each.meta for each in captured.inputs], [each.weight for each in captured.inputs]))


def sources_of(module: nn.Module, args: tuple):
    journal = Journal()
    split = split_derived(run_gpu_passes(traced(module, args), TARGET, journal, "golden", Settings(verify=2), None))
    return split, print_graph(split.main, TARGET, "cuda:0", Settings(), "float32", journal, "golden")
