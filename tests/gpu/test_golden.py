"""What a GPU would run, shown without one: graphs traced on the CPU, moved to "cuda:0" on paper, taken through passes, plan and Triton."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn as nn
from torch.fx import Graph
from torch.fx.node import map_aggregate

import works
from thruway.capture.capture import capture
from thruway.core.journal import Journal
from thruway.core.launch import Call, Kernel
from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.frame.state import read_state
from thruway.gpu_compiler import print_graph, run_gpu_passes, split_derived
from thruway.graph.retrace import retrace
from thruway.native.fallback import bind_arguments
from thruway.shapes.meta import TensorMeta

TARGET = Target(kind="cuda", library_calls=frozenset({"cudnn", "cublaslt", "sm_90"}))


def bottlenecks() -> tuple[nn.Module, tuple]:
    torchvision = pytest.importorskip("torchvision")
    down = nn.Sequential(nn.Conv2d(64, 256, 1, bias=False), nn.BatchNorm2d(256))
    block = torchvision.models.resnet.Bottleneck
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                        block(64, 64, downsample=down), block(256, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return net, (torch.randn(2, 3, 32, 32, dtype=torch.bfloat16),)


def encoder() -> tuple[nn.Module, tuple]:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.TransformerEncoder(layer, 2), (torch.randn(2, 16, 64, dtype=torch.bfloat16),)


def decoder() -> tuple[nn.Module, tuple]:
    return works.Decoder(64, 4, 2, 128), (torch.randint(0, 128, (1, 16)),)


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


def sources_of(module: nn.Module, args: tuple):
    module = module.bfloat16().eval()
    with torch.no_grad():
        captured = capture(type(module).forward, bind_arguments(type(module).forward, (module, *args), {}), read_state(), Settings())
        assert not captured.break_reasons
        graph = on_paper(retrace(captured.graph, [each.meta for each in captured.inputs], [each.weight for each in captured.inputs]))
    journal = Journal()
    split = split_derived(run_gpu_passes(graph, TARGET, journal, "golden", Settings(verify=2), None))
    return split, print_graph(split.main, TARGET, "cuda:0", Settings(), "float32", journal, "golden")


@pytest.mark.parametrize("make", [bottlenecks, encoder, decoder], ids=lambda make: make.__name__)
def test_steps_on_a_gpu(make, golden):
    split, sources = sources_of(*make())
    shapes = {each.source.symbol: each.source.configs[0] for each in sources.kernels}
    lines = [f"{len(split.derived.output_node().args[0]) if split.derived else 0} values kept between calls"]
    for step in sources.launch.steps:
        match step:
            case Call(op):
                lines.append(op)
            case Kernel(symbol):
                lines.append(f"{symbol}  {shapes[symbol]}")
    golden(f"gpu/{make.__name__}.txt", "\n".join(lines))
