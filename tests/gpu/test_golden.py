"""What a GPU would run, shown without one: graphs traced on the CPU, moved to "cuda:0" on paper, taken through passes, plan and Triton."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

import works
from codegen.on_paper import sources_of
from thruway.core.launch import Call, Kernel

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
