"""Operands of batched low-precision products: what torch would copy is copied by a node of ours, what it takes stays."""

import pytest
import torch

from graph.build import Build, run, targets
from thruway.core.target import Target
from thruway.graph.patterns.cpu_batched import settle_batched_products
from thruway.graph.rewrite import Context, aten
from thruway.graph.verify import verify

CPU = Context(Target())


def heads_first(b: Build, dtype: torch.dtype, turned: bool):
    """(head, position, width) over memory in the order (position, head, width); `turned`: the last two swapped."""
    x = b(aten.permute.default, b.input(torch.randn(24, 6, 16).to(dtype)), [1, 0, 2])
    return b(aten.transpose.int, x, 1, 2) if turned else x


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_strided_heads_are_copied(dtype):
    b = Build()
    graph = b.done(b(aten.bmm.default, heads_first(b, dtype, False), heads_first(b, dtype, True)))
    settled = settle_batched_products(graph, CPU)
    verify(settled)
    assert targets(settled).count("clone.default") == 2
    assert torch.equal(run(settled, b.tensors)[0], run(graph, b.tensors)[0])


@pytest.mark.parametrize("dtype, left, right", [
    (torch.float32, (6, 24, 16), (6, 16, 24)), (torch.bfloat16, (6, 24, 16), (6, 16, 24)), (torch.bfloat16, (1, 24, 16), (1, 16, 24)),
])
def test_what_is_taken_as_it_is_stays(dtype, left, right):
    b = Build()
    graph = b.done(b(aten.bmm.default, b.input(torch.randn(left).to(dtype)), b.input(torch.randn(right).to(dtype))))
    assert settle_batched_products(graph, CPU) is graph
    turned = Build()
    transposed = turned(aten.transpose.int, turned.input(torch.randn(right[0], right[2], right[1]).to(dtype)), 1, 2)
    graph = turned.done(turned(aten.bmm.default, turned.input(torch.randn(left).to(dtype)), transposed))
    assert settle_batched_products(graph, CPU) is graph


def test_strided_heads_in_float32_stay():
    b = Build()
    graph = b.done(b(aten.bmm.default, heads_first(b, torch.float32, False), heads_first(b, torch.float32, True)))
    assert settle_batched_products(graph, CPU) is graph
