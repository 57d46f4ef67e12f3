"""Fused convolutions are cuDNN's: where it is missing, or switched off, a GPU's convolutions stay torch's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from codegen.on_paper import TARGET, traced

from thruway.core.journal import Journal
from thruway.core.settings import Settings
from thruway.gpu_compiler import run_gpu_passes


@pytest.mark.parametrize("has_cudnn", [True, False])
def test_fused_convolutions_are_taken_where_cudnn_is(has_cudnn):
    net = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU())
    target = TARGET if has_cudnn else replace(TARGET, library_calls=TARGET.library_calls - {"cudnn"})
    graph = run_gpu_passes(traced(net, (torch.randn(2, 8, 12, 12, dtype=torch.bfloat16),)), target, Journal(), "f", Settings(verify=2), None)
    called = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    assert ("aten.cudnn_convolution_relu.default" in called) == has_cudnn and ("aten.convolution.default" in called) != has_cudnn
