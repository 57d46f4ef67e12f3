"""The graph's passes in order, for a graph that is run without gradients. `pipeline` runs them with a `rewrite.Context`."""

from __future__ import annotations

from thruway.core.passes import Pass
from thruway.graph.decompose import decompose, open_composites
from thruway.graph.derived import mark_derived
from thruway.graph.layout import prefer_channels_last
from thruway.graph.patterns.attention import recognise_attention
from thruway.graph.patterns.attention_masks import settle_masks
from thruway.graph.patterns.batch_norm import fold_batch_norm
from thruway.graph.patterns.cpu_batched import settle_batched_products
from thruway.graph.patterns.cpu_convolution import select_convolutions
from thruway.graph.patterns.cpu_few_rows import open_few_rows
from thruway.graph.patterns.cpu_linear import select_linears
from thruway.graph.patterns.linear import merge_linears, recognise_linear
from thruway.graph.simplify import simplify

# Hold for every target: what comes out is what a golden shows.
GENERAL_PASSES = (
    Pass(simplify, why="less to look at for all that follow"),
    Pass(open_composites, why="patterns see convolution, linear and attention in one form"),
    Pass(recognise_attention, after=("open_composites",), why="matmul and masks are still whole"),
    Pass(settle_masks, after=("recognise_attention",), why="what masks are made of is still whole"),
    Pass(fold_batch_norm, after=("open_composites",), why="decompose opens the batch norms that are left"),
    Pass(decompose, after=("recognise_attention", "fold_batch_norm")),
    Pass(recognise_linear, after=("decompose",), why="matmul with a weight is mm by now"),
    Pass(merge_linears, after=("recognise_linear",)),
    Pass(simplify),
)
# The choice of library calls on a CPU, and what is kept between calls.
CPU_PASSES = (
    Pass(prefer_channels_last, why="before the weights are packed for a layout"),
    Pass(select_convolutions, after=("prefer_channels_last",)),
    Pass(open_few_rows, why="what it leaves is worth a library call"),
    Pass(select_linears, after=("open_few_rows",)),
    Pass(settle_batched_products, after=("open_few_rows",)),
    Pass(simplify),
    Pass(mark_derived, after=("select_convolutions", "select_linears"), why="only what is left is worth keeping"),
)
