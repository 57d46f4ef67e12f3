"""One rewritten graph with symbolic sizes serves every size: run at several and compared with eager each time."""

import math
from dataclasses import replace

import pytest
import torch
from graph.build import Build, run, targets

from thruway.core.sizes import symbol
from thruway.core.target import Target
from thruway.graph.rewrite import Context, Emitter, meta
from thruway.graph.stages import CPU_PASSES, GENERAL_PASSES
from thruway.shapes.meta import contiguous_strides

aten = torch.ops.aten
CPU = Target(library_calls=frozenset({"onednn", "onednn_bf16"}))


class Symbolic(Build):
    """`sized(tensor, 0, "n")`: an input whose dimension 0 is the symbol n."""

    def sized(self, tensor, dim, name):
        node = self.input(tensor)
        sizes = tuple(symbol(name) if d == dim else n for d, n in enumerate(tensor.shape))
        node.meta["value"] = replace(meta(node), sizes=sizes, strides=contiguous_strides(sizes))
        return node


def check(b, output, inputs):
    """`inputs`: lists of tensors for the symbolic placeholders, in order; weights stay."""
    graph = b.done(output)
    result, context = graph, Context(CPU)
    for one in (*GENERAL_PASSES, *CPU_PASSES):
        result = one.fn(result, context)
        result.lint()
    places = [i for i, n in enumerate(graph.find_nodes(op="placeholder")) if not n.meta["weight"]]
    for tensors in inputs:
        given = list(b.tensors)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        (before,), (after,) = run(graph, given, strict=False), run(result, given, strict=False)
        assert before.stride() == after.stride()
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    return targets(result)


@pytest.mark.parametrize("sizes, other", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)), ((2, 6, 3, 4), (4, 5))])
def test_matmul_with_a_symbolic_batch(sizes, other):
    b = Symbolic()
    x = b.sized(torch.randn(*sizes), 0, "n")
    check(b, b(aten.matmul.default, x, b.input(torch.randn(*other))), [[torch.randn(n, *sizes[1:]), torch.randn(*other)] for n in (2, 5)])


def test_batched_matmul_broadcasts_over_a_symbolic_batch():
    b = Symbolic()
    x, y = b.sized(torch.randn(3, 2, 4, 5), 0, "n"), b.sized(torch.randn(3, 1, 5, 6), 0, "n")
    check(b, b(aten.matmul.default, x, y), [[torch.randn(n, 2, 4, 5), torch.randn(n, 1, 5, 6)] for n in (2, 7)])


def test_convolution_network_with_a_symbolic_batch():
    b = Symbolic()
    x = b.sized(torch.randn(2, 3, 8, 8), 0, "n")
    for i, o in ((3, 4), (4, 4)):
        x = b(aten.convolution.default, x, b.weight(torch.randn(o, i, 3, 3)), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        x = b(aten.relu.default, b(aten.batch_norm.default, x, *(b.weight(torch.rand(o) + 0.5) for _ in range(4)), False, 0.1, 1e-5, False))
    names = check(b, b(aten.mean.dim, x, [2, 3]), [[torch.randn(n, 3, 8, 8)] for n in (2, 3, 9)])
    assert "relu.default" not in names


def attention(b, x, count, width):
    heads = []
    for _ in range(3):
        y = b(aten.linear.default, x, b.weight(torch.randn(count * width, count * width) * 0.2))
        sizes = [Emitter(b.end).size(n) for n in meta(y).sizes]
        heads.append(b(aten.transpose.int, b(aten.view.default, y, [*sizes[:2], count, width]), 1, 2))
    q, k, v = heads
    scores = b(aten.div.Tensor, b(aten.matmul.default, q, b(aten.transpose.int, k, -1, -2)), width ** 0.5)
    tokens = Emitter(b.end).size(meta(x).sizes[1])
    mask = b(aten.bitwise_not.default, b(aten.tril.default, b(aten.ones.default, [tokens, tokens], dtype=torch.bool)))
    out = b(aten.matmul.default, b(aten.softmax.int, b(aten.masked_fill.Scalar, scores, mask, -math.inf), -1), v)
    return b(aten.view.default, b(aten.clone.default, b(aten.transpose.int, out, 1, 2), memory_format=torch.contiguous_format), sizes[:2] + [-1])


@pytest.mark.parametrize("dim", [0, 1])
def test_attention_with_a_symbolic_batch_or_length(dim):
    b = Symbolic()
    x = b.sized(torch.randn(2, 40, 16), dim, "n")
    names = check(b, attention(b, x, 2, 8), [[torch.randn(*((n, 40, 16) if dim == 0 else (2, n, 16)))] for n in (2, 5, 33)])
    assert "scaled_dot_product_attention.default" in names and "tril.default" not in names


def test_a_size_is_found_or_computed():
    b = Symbolic()
    x = b.sized(torch.randn(4, 3), 0, "n")
    n = symbol("n")
    double = Emitter(b.end).size(n * 2 + 6)
    half = Emitter(b.end).size((n * n + 1) // 2)
    assert Emitter(b.end).size(n * 2 + 6) is double and Emitter(b.end).size(7) == 7
    graph = b.done(b(aten.ones.default, [double]), b(aten.ones.default, [half]), b(aten.sin.default, x))
    assert [tuple(t.shape) for t in run(graph, [torch.randn(5, 3)], strict=False)] == [(16,), (13,), (5, 3)]
