"""Batch norm folded, activation and residual done by the convolution, channels_last between; and what must not match."""

import pytest
import torch

from graph.build import Build, assert_same, targets
from thruway.core.target import Target
from thruway.graph.decompose import decompose, open_composites
from thruway.graph.derived import mark_derived
from thruway.graph.layout import is_channels_last, prefer_channels_last
from thruway.graph.patterns.batch_norm import fold_batch_norm
from thruway.graph.patterns.cpu_convolution import select_convolutions
from thruway.graph.rewrite import Context
from thruway.graph.stages import CPU_PASSES, GENERAL_PASSES

aten = torch.ops.aten
CPU = Target(library_calls=frozenset({"onednn", "onednn_bf16"}))
PLAIN, SUMMED, IN_PLACE = "mkldnn._convolution_pointwise.default", "mkldnn._convolution_pointwise.binary", "mkldnn._convolution_pointwise_.binary"
TOLERANCE = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (5e-2, 2e-1)}


class Net(Build):
    """Convolutions and batch norms with constant weights."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.dtype, self.random = dtype, torch.Generator().manual_seed(0)

    def rnd(self, *sizes):
        return torch.randn(*sizes, generator=self.random).to(self.dtype)

    def conv(self, x, i, o, kernel=3, bias=None, stride=1, groups=1):
        weight = self.weight(self.rnd(o, i // groups, kernel, kernel) * 0.2)
        return self(aten.convolution.default, x, weight, bias, [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], groups)

    def norm(self, x, channels, weight=None):
        parts = [weight or self.weight(self.rnd(channels)), self.weight(self.rnd(channels)), self.weight(self.rnd(channels)),
                 self.weight(self.rnd(channels).abs() + 0.5)]
        return self(aten.batch_norm.default, x, *parts, False, 0.1, 1e-5, False)


def assert_same_after(b: Net, passes, *outputs, context=None):
    graph = b.done(*outputs)
    result, context = graph, context or Context(CPU)
    for one in passes:
        result = one(result, context)
        result.lint()
    rtol, atol = TOLERANCE[b.dtype]
    assert_same(graph, result, b.tensors, rtol=rtol, atol=atol)
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias, groups, stride", [(False, 1, 1), (True, 1, 2), (True, 2, 1)])
def test_batch_norm_folds(dtype, bias, groups, stride):
    b = Net(dtype)
    x = b.input(b.rnd(2, 4, 9, 8))
    result = assert_same_after(b, [fold_batch_norm], b.norm(b.conv(x, 4, 6, bias=b.weight(b.rnd(6)) if bias else None, groups=groups, stride=stride), 6))
    assert "batch_norm.default" not in targets(result)


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_folds_into_a_transposed_convolution(groups):
    b = Net()
    x, weight = b.input(b.rnd(2, 4, 5, 5)), b.weight(b.rnd(4, 3, 3, 3))
    y = b(aten.convolution.default, x, weight, None, [2, 2], [1, 1], [1, 1], True, [1, 1], groups)
    assert "batch_norm.default" not in targets(assert_same_after(b, [fold_batch_norm], b.norm(y, 3 * groups)))


def test_batch_norm_folds_in_its_other_forms():
    b = Net()
    y = b.conv(b.input(b.rnd(2, 4, 5, 5)), 4, 6)
    parts = [b.weight(b.rnd(6)), None, b.weight(b.rnd(6)), b.weight(b.rnd(6).abs() + 1)]
    norm = b(aten._native_batch_norm_legit_no_training.default, y, *parts, 0.1, 1e-5)
    assert targets(assert_same_after(b, [fold_batch_norm], b.item(norm, 0))).count("_native_batch_norm_legit_no_training.default") == 0


def miss_convolution_read_twice(b, x):
    y = b.conv(x, 4, 6)
    return b(aten.add.Tensor, b.norm(y, 6), y)


def miss_weight_is_an_input(b, x):
    return b.norm(b.conv(x, 4, 6), 6, weight=b.input(b.rnd(6)))


def miss_training(b, x):
    y = b.conv(x, 4, 6)
    return b.item(b(aten.native_batch_norm.default, y, None, None, None, None, True, 0.1, 1e-5), 0)


def miss_relu_between(b, x):
    return b.norm(b(aten.relu.default, b.conv(x, 4, 6)), 6)


def miss_weight_written(b, x):
    gamma = b.weight(b.rnd(6))
    b(aten.mul_.Tensor, gamma, 2)
    return b.norm(b.conv(x, 4, 6), 6, weight=gamma)


@pytest.mark.parametrize("miss", [value for name, value in sorted(globals().items()) if name.startswith("miss_")])
def test_batch_norm_near_misses(miss):
    b = Net()
    graph = b.done(miss(b, b.input(b.rnd(2, 4, 5, 5))))
    assert fold_batch_norm(graph, Context(CPU)) is graph


def test_batch_norm_stays_where_numerics_are_strict_or_memory_is_short():
    for context in (Context(CPU, numerics="strict"), Context(CPU, derived_limit=100)):
        b = Net()
        result = assert_same_after(b, [fold_batch_norm], b.norm(b.conv(b.input(b.rnd(2, 4, 5, 5)), 4, 6), 6), context=context)
        assert "batch_norm.default" in targets(result)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("op, args", [
    (aten.relu.default, ()), (aten.hardtanh.default, (-0.5, 0.7)), (aten.relu6.default, ()), (aten.silu.default, ()), (aten.hardswish.default, ()),
    (aten.leaky_relu.default, (0.2,)), (aten.sigmoid.default, ()), (aten.gelu.default, ()),
])
def test_activation_joins_its_convolution(op, args, dtype):
    b = Net(dtype)
    result = assert_same_after(b, [prefer_channels_last, select_convolutions], b(op, b.conv(b.input(b.rnd(2, 4, 9, 8)), 4, 6), *args))
    assert targets(result) == ["clone.default", "mkldnn._reorder_convolution_weight.default", PLAIN, "clone.default"]


def test_an_activation_joins_only_as_the_only_reader():
    b = Net()
    y = b.conv(b.input(b.rnd(2, 4, 9, 8)), 4, 6)
    assert "relu.default" in targets(assert_same_after(b, [select_convolutions], b(aten.relu.default, y), b(aten.sin.default, y)))


def test_in_float16_nothing_joins_that_eager_might_overflow_before():
    low = Context(Target(library_calls=frozenset({"onednn", "onednn_bf16", "onednn_fp16"})))
    b = Net(torch.float16)
    graph = b.done(b.norm(b.conv(b.input(b.rnd(2, 4, 5, 5)), 4, 6), 6))
    assert fold_batch_norm(graph, low) is graph
    for op, joins in ((aten.relu.default, True), (aten.silu.default, False)):
        b = Net(torch.float16)
        result = select_convolutions(b.done(b(op, b.conv(b.input(b.rnd(2, 4, 9, 8)), 4, 6))), low)
        assert (str(op).removeprefix("aten.") not in targets(result)) == joins
    b = Net(torch.float16)
    result = select_convolutions(b.done(block(b, b(aten.relu.default, b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4)))), low)
    assert PLAIN in targets(result) and IN_PLACE not in targets(result)


def test_strict_numerics_take_what_clamps_alone():
    for op, joins in ((aten.relu.default, True), (aten.silu.default, False)):
        b = Net()
        context = Context(CPU, numerics="strict")
        result = assert_same_after(b, [select_convolutions], b(op, b.conv(b.input(b.rnd(2, 4, 9, 8)), 4, 6)), context=context)
        assert (str(op).removeprefix("aten.") not in targets(result)) == joins


def block(b, x, read_again=False):
    y = b(aten.relu.default, b.conv(x, 4, 4))
    y = b(aten.relu.default, b(aten.add.Tensor, b.conv(y, 4, 4), x))
    return b(aten.add.Tensor, y, x) if read_again else y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_residual_is_added_in_place(dtype):
    b = Net(dtype)
    x = b(aten.relu.default, b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4))
    result = assert_same_after(b, [prefer_channels_last, select_convolutions], block(b, block(b, x)))
    assert targets(result).count(IN_PLACE) == 2 and "relu.default" not in targets(result)


@pytest.mark.parametrize("op", [aten.relu.default, aten.silu.default, aten.hardswish.default])
def test_a_block_that_adds_its_own_input(op):
    b = Net()
    x = b.conv(b.input(b.rnd(2, 8, 6, 6)), 8, 8)
    assert_same_after(b, [prefer_channels_last, select_convolutions], b(op, b(aten.add.Tensor, x, b.conv(x, 8, 8))))


def test_residual_that_is_read_again_is_not_overwritten():
    b = Net()
    x = b(aten.relu.default, b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4))
    result = assert_same_after(b, [prefer_channels_last, select_convolutions], block(b, x, read_again=True))
    assert SUMMED in targets(result) and IN_PLACE not in targets(result)


def test_residual_that_is_an_input_or_a_result_is_not_overwritten():
    b = Net()
    x = b.input(b.rnd(2, 4, 8, 8).contiguous(memory_format=torch.channels_last))
    assert IN_PLACE not in targets(assert_same_after(b, [prefer_channels_last, select_convolutions], block(b, x)))
    b = Net()
    x = b(aten.relu.default, b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4))
    assert IN_PLACE not in targets(assert_same_after(b, [prefer_channels_last, select_convolutions], block(b, x), x))
    b = Net()
    x = b(aten.relu.default, b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4))
    view = b(aten.permute.default, x, [0, 2, 3, 1])
    assert IN_PLACE not in targets(assert_same_after(b, [prefer_channels_last, select_convolutions], block(b, x), b(aten.sin.default, view)))


@pytest.mark.parametrize("alpha, sizes", [(2, (2, 4, 8, 8)), (1, (1, 4, 1, 1))])
def test_an_addition_that_is_more_stays(alpha, sizes):
    b = Net()
    y = b(aten.add.Tensor, b.conv(b.input(b.rnd(2, 4, 8, 8)), 4, 4), b.input(b.rnd(*sizes)), alpha=alpha)
    assert "add.Tensor" in targets(assert_same_after(b, [prefer_channels_last, select_convolutions], y))


def test_an_input_written_behind_the_convolution_is_read_before():
    b = Net()
    x = b.input(b.rnd(2, 4, 8, 8))
    y = b.conv(x, 4, 4)
    b(aten.add_.Tensor, x, 1)
    assert_same_after(b, [select_convolutions], b(aten.relu.default, y))


def test_channels_last_enters_once_and_leaves_at_outputs():
    b = Net()
    x = b(aten.relu.default, b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4))
    x = b(aten.max_pool2d.default, x, [2, 2])
    y = b(aten.mul.Tensor, b.conv(x, 4, 4), b(aten.sigmoid.default, b(aten.mean.dim, x, [2, 3], True)))
    flat = b(aten.view.default, y, [2, 64])
    result = assert_same_after(b, [prefer_channels_last, decompose], y, flat)
    places = [n for n in result.nodes if n.target is aten.convolution.default]
    assert all(is_channels_last(n.meta["value"]) for n in places)
    assert targets(result).count("clone.default") == 3                  # in at the top; one for each output


def test_strides_read_by_hand_are_kept():
    b = Net()
    y = b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4)
    assert_same_after(b, [prefer_channels_last], b(aten.sin.default, b(aten.as_strided.default, y, [2, 8], [256, 1], 3)))


def test_convolutions_that_cannot_be_packed_keep_their_layout():
    b = Net()
    y = b(aten.convolution.default, b.input(b.rnd(2, 3, 8, 8)), b.input(b.rnd(4, 3, 3, 3)), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    graph = b.done(y)
    assert prefer_channels_last(graph, Context(CPU)) is graph and select_convolutions(graph, Context(CPU)) is graph
    b = Net()
    graph = b.done(b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4))
    assert prefer_channels_last(graph, Context(Target())) is graph


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_whole_network(dtype):
    b = Net(dtype)
    x = b(aten.relu.default, b.norm(b.conv(b.input(b.rnd(2, 3, 8, 8)), 3, 4), 4))
    for _ in range(2):
        y = b(aten.relu.default, b.norm(b.conv(x, 4, 4), 4))
        x = b(aten.relu.default, b(aten.add.Tensor, b.norm(b.conv(y, 4, 4), 4), x))
    pooled = b(aten.view.default, b(aten.adaptive_avg_pool2d.default, x, [1, 1]), [2, 4])
    output = b(aten.linear.default, pooled, b.weight(b.rnd(3, 4)), b.weight(b.rnd(3)))
    result = assert_same_after(b, [one.fn for one in (*GENERAL_PASSES, *CPU_PASSES)], output)
    steps = [str(n.target) for n in result.nodes if n.op == "call_function" and not n.meta.get("derived")]
    assert steps[1:6] == [PLAIN, PLAIN, IN_PLACE, PLAIN, IN_PLACE], steps
    opened = {"aten.mean.dim", "aten.view.default", "aten._to_copy.default", "aten.mul.Tensor", "aten.sum.dim_IntList", "aten.add.Tensor"}
    assert set(steps[6:]) == opened - ({"aten._to_copy.default"} if dtype == torch.float32 else set()), steps       # a product of two rows: loops
    assert [n.target for n in open_composites(result, Context(CPU)).nodes] == [n.target for n in result.nodes]


def test_derived_values_are_the_weights_work_and_never_an_output():
    b = Net()
    weight = b.weight(b.rnd(4, 4))
    doubled = b(aten.mul.Tensor, weight, 2)
    result = assert_same_after(b, [mark_derived], b(aten.mm.default, b.input(b.rnd(3, 4)), b(aten.t.default, doubled)), doubled)
    marked = {str(n.target) for n in result.nodes if n.meta.get("derived")}
    assert marked == {"aten.mul.Tensor", "aten.t.default"}
    assert not any(item.meta.get("derived") for item in result.output_node().args[0])


def test_a_residual_kept_between_calls_is_not_overwritten():
    b = Net()
    kept = b(aten.exp.default, b.weight(b.rnd(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)))
    y = b(aten.add.Tensor, b.conv(b.input(b.rnd(2, 4, 8, 8)), 4, 4), kept)
    result = assert_same_after(b, [prefer_channels_last, select_convolutions, mark_derived], y)
    assert SUMMED in targets(result) and any(n.target is aten.exp.default and n.meta.get("derived") for n in result.nodes)
