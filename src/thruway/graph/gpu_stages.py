"""The graph's passes for a GPU, behind those that hold for every target."""

from __future__ import annotations

from thruway.core.passes import Pass
from thruway.graph.derived import mark_derived
from thruway.graph.layout import prefer_channels_last
from thruway.graph.patterns.gpu_convolution import select_gpu_convolutions
from thruway.graph.patterns.gpu_linear import select_gpu_linears
from thruway.graph.simplify import simplify

GPU_PASSES = (
    Pass(prefer_channels_last, why="cuDNN's fused convolutions want channels innermost"),
    Pass(select_gpu_convolutions, after=("prefer_channels_last",)),
    Pass(select_gpu_linears),
    Pass(simplify),
    Pass(mark_derived, after=("select_gpu_convolutions", "select_gpu_linears"), why="only what is left is worth keeping"),
)
