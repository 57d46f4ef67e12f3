"""What cuBLASLt and cuDNN do on the way out of a product or a convolution, and what nearly looks like it. The graphs are run on the CPU."""

import pytest
import torch

from graph.build import Build, run, targets
from thruway.core.target import Target
from thruway.graph.patterns.gpu_convolution import select_gpu_convolutions
from thruway.graph.patterns.gpu_linear import select_gpu_linears
from thruway.graph.rewrite import Context
from thruway.graph.verify import verify

aten = torch.ops.aten
GPU = Target(kind="cuda", library_calls=frozenset({"cudnn"}))
GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
ADDMM, RELU, ADD_RELU = "_addmm_activation.default", "cudnn_convolution_relu.default", "cudnn_convolution_add_relu.default"


def rnd(*sizes, dtype=torch.bfloat16, layout=torch.contiguous_format):
    made = (torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))) * 0.3).to(dtype)
    return made.contiguous(memory_format=layout)


def image(channels=4, layout=torch.channels_last, dtype=torch.bfloat16):
    return rnd(2, channels, 5, 5, dtype=dtype, layout=layout)


def convolution(x, weight, bias, stride, padding, dilation, groups):
    return aten.convolution.default(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)


ON_CPU = {
    aten._addmm_activation.default: lambda bias, x, w, use_gelu: aten.gelu.default(torch.addmm(bias, x, w), approximate="tanh") if use_gelu
    else torch.relu(torch.addmm(bias, x, w)),
    aten.cudnn_convolution_relu.default: lambda x, w, bias, *geometry: torch.relu(convolution(x, w, bias, *geometry)),
    aten.cudnn_convolution_add_relu.default: lambda x, w, z, alpha, bias, *geometry: torch.relu(convolution(x, w, bias, *geometry) + alpha * z),
}


def after(b, select, *outputs, context=None):
    """The operators of the changed graph, which computes the same."""
    graph = b.done(*outputs)
    expected = run(graph, [t.clone() for t in b.tensors])
    result = select(graph, context or Context(GPU))
    verify(result)
    names = targets(result)
    for node in result.nodes:
        node.target = ON_CPU.get(node.target, node.target)
    for got, wanted in zip(run(result, [t.clone() for t in b.tensors], strict=False), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)
    return names


def linear(b, x=None, weight=None, bias=True, dtype=torch.bfloat16):
    return b(aten.linear.default, x or b.input(rnd(3, 5, 4, dtype=dtype)), weight or b.weight(rnd(6, 4, dtype=dtype)),
             b.weight(rnd(6, dtype=dtype)) if bias else None)


@pytest.mark.parametrize("op, more, dtypes", [
    (aten.relu.default, {}, (torch.float32, torch.bfloat16, torch.float16)), (aten.gelu.default, {"approximate": "tanh"}, (torch.float32, torch.bfloat16)),
])
def test_an_activation_joins_its_linear(op, more, dtypes):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        b = Build()
        assert after(b, select_gpu_linears, b(op, linear(b, dtype=dtype), **more)).count(ADDMM) == (dtype in dtypes)


def miss_linear_without_bias(b):
    return [b(aten.relu.default, linear(b, bias=False))]


def miss_linear_in_float64(b):
    return [b(aten.relu.default, linear(b, dtype=torch.float64))]


def miss_linear_read_twice(b):
    y = linear(b)
    return [b(aten.relu.default, y), b(aten.sin.default, y)]


def miss_linear_and_exact_gelu(b):
    return [b(aten.gelu.default, linear(b))]


def miss_linear_and_sigmoid(b):
    return [b(aten.sigmoid.default, linear(b))]


def miss_linear_of_a_transposed_input(b):
    return [b(aten.relu.default, linear(b, b(aten.transpose.int, b.input(rnd(4, 5, 3)), 0, 2)))]


def miss_linear_of_a_transposed_weight(b):
    return [b(aten.relu.default, linear(b, weight=b(aten.t.default, b.weight(rnd(4, 6)))))]


def miss_linear_that_is_written(b):
    y = linear(b)
    z = b(aten.relu.default, y)
    b(aten.add_.Tensor, y, 1)
    return [z]


@pytest.mark.parametrize("miss", [value for name, value in sorted(globals().items()) if name.startswith("miss_linear")])
def test_linear_near_misses(miss):
    b = Build()
    graph = b.done(*miss(b))
    assert select_gpu_linears(graph, Context(GPU)) is graph


def test_strict_numerics_and_other_devices_keep_the_linear():
    for context, op in ((Context(GPU, numerics="strict"), aten.gelu.default), (Context(Target()), aten.relu.default)):
        b = Build()
        graph = b.done(b(op, linear(b), **({"approximate": "tanh"} if op is aten.gelu.default else {})))
        assert select_gpu_linears(graph, context) is graph


def conv(b, x=None, weight=None, bias=True, geometry=GEOMETRY):
    x = x or b.input(image())
    dtype = torch.float32 if x.meta["value"].dtype == "float32" else torch.bfloat16
    weight = weight or b.weight(rnd(4, 4, 3, 3, dtype=dtype, layout=torch.channels_last))
    return b(aten.convolution.default, x, weight, b.weight(rnd(4, dtype=dtype)) if bias else None, *geometry)


def test_a_relu_joins_its_convolution():
    b = Build()
    names = after(b, select_gpu_convolutions, b(aten.relu.default, conv(b)))
    assert names == [RELU]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_residual_and_a_relu_join_their_convolution(swapped):
    b = Build()
    pair = [conv(b), b.input(image())]
    assert after(b, select_gpu_convolutions, b(aten.relu.default, b(aten.add.Tensor, *(pair[::-1] if swapped else pair)))) == [ADD_RELU]


def test_the_bias_of_a_residual_that_is_a_convolution_joins_too():
    b = Build()
    names = after(b, select_gpu_convolutions, b(aten.relu.default, b(aten.add.Tensor, conv(b), conv(b))))
    assert names.count(ADD_RELU) == 1 and names.count("convolution.default") == 1


def test_a_weight_is_kept_in_channels_last():
    b = Build()
    names = after(b, select_gpu_convolutions, b(aten.relu.default, conv(b, weight=b.weight(rnd(4, 4, 3, 3)))))
    assert names == ["clone.default", RELU]


def miss_conv_without_bias(b):
    return [b(aten.relu.default, conv(b, bias=False))]


def miss_conv_in_float32(b):
    return [b(aten.relu.default, conv(b, b.input(image(dtype=torch.float32))))]


def miss_conv_contiguous(b):
    return [b(aten.relu.default, conv(b, b.input(image(layout=torch.contiguous_format)), b.weight(rnd(4, 4, 3, 3))))]


def miss_conv_read_twice(b):
    y = conv(b)
    return [b(aten.relu.default, y), b(aten.sin.default, y)]


def miss_conv_of_a_weight_that_is_an_input(b):
    return [b(aten.relu.default, conv(b, weight=b.input(rnd(4, 4, 3, 3, layout=torch.channels_last))))]


def miss_conv_transposed(b):
    return [b(aten.relu.default, conv(b, geometry=([1, 1], [1, 1], [1, 1], True, [0, 0], 1)))]


def miss_conv_and_sigmoid(b):
    return [b(aten.sigmoid.default, conv(b))]


def miss_conv_and_sum_without_relu(b):
    return [b(aten.sin.default, b(aten.add.Tensor, conv(b), b.input(image())))]


def miss_conv_and_scaled_sum(b):
    return [b(aten.relu.default, b(aten.add.Tensor, conv(b), b.input(image()), alpha=2))]


def miss_conv_and_broadcast_sum(b):
    return [b(aten.relu.default, b(aten.add.Tensor, conv(b), b.input(rnd(1, 4, 1, 1))))]


def miss_conv_added_to_itself(b):
    y = conv(b)
    return [b(aten.relu.default, b(aten.add.Tensor, y, y))]


def miss_conv_and_residual_that_is_written(b):
    z = b.input(image())
    y = b(aten.relu.default, b(aten.add.Tensor, conv(b), z))
    b(aten.add_.Tensor, z, 1)
    return [y]


@pytest.mark.parametrize("miss", [value for name, value in sorted(globals().items()) if name.startswith("miss_conv")])
def test_convolution_near_misses(miss):
    b = Build()
    assert not {RELU, ADD_RELU} & set(after(b, select_gpu_convolutions, *miss(b)))


def test_strict_numerics_keep_the_sum_and_other_devices_all():
    for context in (Context(GPU, numerics="strict"), Context(Target())):
        b = Build()
        names = after(b, select_gpu_convolutions, b(aten.relu.default, b(aten.add.Tensor, conv(b), b.input(image()))), context=context)
        assert names == ["convolution.default", "add.Tensor", "relu.default"]
