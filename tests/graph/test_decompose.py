"""Each rule: the graph with the operator and the graph without give the same values, dtypes and strides."""

import pytest
import torch

from graph.build import Build, assert_same, targets
from thruway.graph.decompose import RULES, decompose
from thruway.graph.rewrite import Context

aten = torch.ops.aten
DTYPES = [torch.float32, torch.bfloat16]


def rnd(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes) + len(sizes))).to(dtype)


def check(op, *args, same=True, **kwargs):
    """Decomposes `op` over the given tensors (others stay constants), compares, and sees that no rule is left to apply."""
    b = Build()

    def given(value):
        if isinstance(value, torch.Tensor):
            return b.input(value)
        return [given(one) for one in value] if isinstance(value, list) else value
    node = b(op, *[given(value) for value in args], **{key: given(value) for key, value in kwargs.items()})
    value = node.meta["value"]
    outputs = [b.item(node, i) for i in range(len(value))] if isinstance(value, (tuple, list)) else [node]
    graph = b.done(*outputs)
    result = decompose(graph, Context())
    low = any(t.dtype in (torch.bfloat16, torch.float16) for t in b.tensors)
    assert_same(graph, result, b.tensors, rtol=1.6e-2 if low else 2e-5, atol=1e-2 if low else 1e-5)
    if same:
        assert op not in {n.target for n in result.nodes}
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("a, b", [
    ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)), ((3, 4), (2, 4, 5)),
    ((4,), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((6, 1, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 5, 4, 2)), ((0, 3, 4), (4, 5)), ((2, 3, 0), (0, 5)),
])
def test_matmul(a, b, dtype):
    check(aten.matmul.default, rnd(*a, dtype=dtype), rnd(*b, dtype=dtype))


def test_matmul_of_transposed_views():
    check(aten.matmul.default, rnd(2, 5, 3, 4).transpose(1, 2), rnd(2, 5, 3, 4).transpose(1, 2).transpose(-1, -2))


@pytest.mark.parametrize("op, x, w, args", [
    (aten.conv2d.default, (2, 3, 8, 9), (4, 3, 3, 3), ([2, 1], [1, 1])), (aten.conv2d.default, (3, 8, 9), (4, 3, 3, 3), ()),
    (aten.conv1d.default, (2, 3, 8), (4, 3, 3), ([2], [1])), (aten.conv1d.default, (2, 4, 8), (4, 1, 3), ([1], [0], [1], 4)),
    (aten.conv3d.default, (1, 2, 4, 5, 6), (3, 2, 2, 2, 2), ()), (aten.conv2d.padding, (1, 3, 8, 9), (4, 3, 3, 2), ([1], "same")),
    (aten.conv2d.padding, (1, 3, 8, 9), (4, 3, 3, 2), ([2, 1], "valid")), (aten.conv1d.padding, (1, 3, 9), (4, 3, 4), ([1], "same", [2])),
])
def test_convolution(op, x, w, args):
    check(op, rnd(*x), rnd(*w), rnd(w[0]), *args)
    check(op, rnd(*x), rnd(*w), None, *args)


def test_transposed_convolution():
    check(aten.conv_transpose2d.input, rnd(2, 3, 5, 5), rnd(3, 4, 3, 3), rnd(4), [2, 2], [1, 1], [1, 1])
    check(aten.conv_transpose1d.default, rnd(2, 3, 5), rnd(3, 4, 3), None, [2])


@pytest.mark.parametrize("op, args", [
    (aten.split.Tensor, (2, 1)), (aten.split.sizes, ([1, 4], 1)), (aten.split_with_sizes.default, ([3, 2], -1)), (aten.chunk.default, (3, 1)),
    (aten.unbind.int, (1,)), (aten.unbind.int, (-2,)), (aten.tensor_split.sections, (3, 1)), (aten.tensor_split.indices, ([1, 3], 1)),
])
def test_pieces(op, args):
    check(op, rnd(3, 5), *args)


@pytest.mark.parametrize("op, sizes, args", [
    (aten.pixel_unshuffle.default, (2, 2, 4, 6), (2,)), (aten.reshape.default, (2, 3, 4), ([6, 4],)),
    (aten.flatten.using_ints, (2, 3, 4), (1,)), (aten.unflatten.int, (2, 12), (1, [3, 4])), (aten.outer.default, (3,), (torch.ones(4),)),
])
def test_rearrangement(op, sizes, args):
    check(op, rnd(*sizes), *args)


def test_reshape_of_transposed_copies_and_of_viewable_does_not():
    result = check(aten.reshape.default, rnd(4, 3, 2).transpose(0, 1), [12, 2])
    assert targets(result) == ["clone.default", "view.default"]
    result = check(aten.reshape.default, rnd(4, 3, 6)[:, :, :2], [12, 2])
    assert targets(result) == ["view.default"]
    result = check(aten.reshape.default, rnd(4, 3, 6).transpose(0, 1), [3, 4, 2, 3])
    assert targets(result) == ["view.default"]


def test_one_hot_finds_a_bad_class():
    result = check(aten.one_hot.default, torch.tensor([[0, 2], [1, 1]]), 3)
    assert "scatter.value" in targets(result)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale, shift", [(1, 0), (1e15, 0), (1, 1e3)])
def test_variance(dtype, scale, shift):
    x = (rnd(6, 8) * scale + shift).to(dtype)
    check(aten.var.correction, x, [1], correction=1, keepdim=True)
    check(aten.var.dim, x, [0, 1], False)
    check(aten.std.default, x)
    check(aten.std.correction, x * 1e14 if scale == 1e15 else x, [-1])
    check(aten.var_mean.correction, x, [0], correction=0)
    check(aten.std_mean.correction, x, [0, 1], correction=2, keepdim=True)


def test_variance_of_one_value_is_nan():
    check(aten.var.correction, rnd(1, 3), [0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_norm_of_inference(dtype):
    x = rnd(2, 3, 4, 4, dtype=dtype)
    w, b, m, v = rnd(3, dtype=dtype), rnd(3, dtype=dtype), rnd(3, dtype=dtype), rnd(3, dtype=dtype).abs() + 0.1
    check(aten.batch_norm.default, x, w, b, m, v, False, 0.1, 1e-5, False)
    check(aten.batch_norm.default, x, None, None, m, v, False, 0.1, 1e-5, False)
    check(aten.batch_norm.default, x.contiguous(memory_format=torch.channels_last), w, b, m, v, False, 0.1, 1e-5, False)


def test_pooling_to_one():
    check(aten.adaptive_avg_pool2d.default, rnd(2, 3, 4, 5), [1, 1])
    check(aten.adaptive_avg_pool2d.default, rnd(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), [1, 1])
    check(aten.adaptive_avg_pool2d.default, rnd(2, 3, 4, 5), [2, 1], same=False)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_losses(reduction, dtype):
    x, y = rnd(4, 5, dtype=dtype), rnd(5, 4, dtype=dtype).t()
    for op in (aten.mse_loss.default, aten.l1_loss.default):
        check(op, x, y, reduction)
    check(aten.smooth_l1_loss.default, x, y, reduction, 0.7)
    check(aten.huber_loss.default, x, y, reduction, 0.7)
    target = torch.tensor([1, -100, 0, 4])
    check(aten.cross_entropy_loss.default, x, target, None, reduction)
    check(aten.cross_entropy_loss.default, rnd(2, 5, 3, dtype=dtype), torch.tensor([[0, 1, 2], [4, -100, 3]]), None, reduction)
    check(aten.nll_loss_nd.default, x, target, None, reduction)


def test_dropout_of_inference_is_its_input():
    result = check(aten.dropout.default, rnd(3), 0.5, False)
    assert targets(result) == []
    check(aten.dropout.default, rnd(3), 0.0, True)


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer(gelu, norm_first):
    e, f = 16, 32
    w = [rnd(3 * e, e), rnd(3 * e), rnd(e, e), rnd(e)]
    norms = [rnd(e), rnd(e), rnd(e), rnd(e)]
    result = check(aten._transformer_encoder_layer_fwd.default, rnd(2, 5, e), e, 4, *w, gelu, norm_first, 1e-5, *norms,
                   rnd(f, e), rnd(f), rnd(e, f), rnd(e))
    assert targets(result).count("linear.default") == 4


def test_encoder_layer_stays_whole_where_numerics_are_strict():
    e = 16
    b = Build()
    args = [b.input(t) for t in (rnd(2, 5, e), rnd(3 * e, e), rnd(3 * e), rnd(e, e), rnd(e))]
    node = b(aten._native_multi_head_attention.default, args[0], args[0], args[0], e, 4, *args[1:], None, False)
    graph = b.done(b.item(node, 0))
    assert decompose(graph, Context(numerics="strict")) is graph
    context = Context()
    result = decompose(graph, context)
    assert "softmax.int" in targets(result) and context.notes
    assert_same(graph, result, b.tensors, rtol=1e-4, atol=1e-5)


def test_an_untouched_graph_is_the_same_object():
    b = Build()
    graph = b.done(b(aten.relu.default, b.input(rnd(3))))
    assert decompose(graph, Context()) is graph
    assert aten.relu.default not in RULES
