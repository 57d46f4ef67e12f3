"""Pointwise operators and activations: lowered, evaluated, compared with eager over dtypes, layouts and special values."""

from __future__ import annotations

import pytest
import torch

from loops.against_eager import assert_lowers, run_call
from loops.inputs import ALL, FLOATS, INTEGERS, NUMBERS, layouts, name_of, random, special

aten = torch.ops.aten

FLOAT_FUNCTIONS = ("sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
                   "erf erfc sigmoid isnan isinf isposinf isneginf signbit logical_not").split()
SAME_FUNCTIONS = "neg abs sign floor ceil round trunc".split()
ARITHMETIC = "add sub mul div maximum minimum".split()
COMPARISONS = "eq ne lt le gt ge".split()
ACTIVATIONS = ("relu relu6 gelu silu mish hardswish hardsigmoid softplus elu selu celu leaky_relu hardshrink softshrink hardtanh "
               "log_sigmoid_forward").split()


def overload(name: str, kind: str = "default"):
    return getattr(getattr(aten, name), kind)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
@pytest.mark.parametrize("name", FLOAT_FUNCTIONS)
def test_functions_of_one_number(name, dtype):
    assert_lowers(overload(name), torch.cat([special(dtype), random(dtype, 20)]), scale=4)
    assert_lowers(overload(name), random(dtype, 1)[0], scale=4)


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
@pytest.mark.parametrize("name", SAME_FUNCTIONS)
def test_functions_that_keep_the_dtype(name, dtype):
    assert_lowers(overload(name), torch.cat([special(dtype), random(dtype, 20)]), exact=True)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
@pytest.mark.parametrize("name", ("sin", "abs", "relu"))
def test_layouts(name, dtype):
    if dtype == torch.bool and name != "sin":
        return
    for x in layouts(dtype):
        program = assert_lowers(overload(name), x, scale=4)
        assert program.buffers[program.outputs[0]].strides == overload(name)(x).stride()


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name, dtype):
    if name == "sub" and dtype == torch.bool:
        return
    kind = "default" if name in ("maximum", "minimum") else "Tensor"
    x, y = random(dtype, 4, 5), random(dtype, 5, seed=1)
    exact = name != "div" or dtype.is_floating_point
    assert_lowers(overload(name, kind), x, y, exact=exact)
    assert_lowers(overload(name, kind), x[:, :1], y[:1], exact=exact)
    values = special(dtype)
    assert_lowers(overload(name, kind), values[:, None], values, exact=exact)
    assert_lowers(overload(name, kind), x[:0], y, exact=exact)


@pytest.mark.parametrize("other", ALL, ids=name_of)
@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_promotion(dtype, other):
    x, y = random(dtype, 3, 4), random(other, 4, seed=1)
    for target in (aten.add.Tensor, aten.mul.Tensor, aten.lt.Tensor, aten.maximum.default):
        assert_lowers(target, x, y, exact=True)
        assert_lowers(target, x, y[0], exact=True)
        assert_lowers(target, x[0, 0], y, exact=True)


@pytest.mark.parametrize("number", (3, 0, -2, 0.1, 2.5, float("inf"), True), ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_numbers_as_operands(dtype, number):
    x = torch.cat([random(dtype, 20), special(dtype)])
    for name in ("add", "sub", "mul", "div"):
        if name == "sub" and torch.bool in (dtype, torch.tensor(number).dtype):
            continue
        assert_lowers(overload(name, "Tensor"), x, number, exact=True)
    for name in COMPARISONS:
        assert_lowers(overload(name, "Scalar"), x, number)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_zero_dimensional_operands_keep_their_precision_where_eager_does(dtype):
    x = random(dtype, 64)
    for y in (torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64)):
        for name in ("add", "mul", "div"):
            assert_lowers(overload(name, "Tensor"), x, y, exact=True)
            assert_lowers(overload(name, "Tensor"), y, x, exact=True)


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
def test_alpha(dtype):
    x, y = random(dtype, 64), random(dtype, 64, seed=1)
    for alpha in (1, -1, 3, 0) + ((0.3,) if dtype.is_floating_point else ()):
        for name in ("add", "sub", "rsub"):
            assert_lowers(overload(name, "Tensor"), x, y, alpha=alpha)
    assert_lowers(aten.rsub.Scalar, x, 2)
    assert_lowers(aten.add.Tensor, x > 0, y > 0, alpha=True)


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
def test_powers(dtype):
    x = random(dtype, 64)
    for exponent in (0, 1, 2, 3, 4):
        assert_lowers(aten.pow.Tensor_Scalar, x, exponent, exact=exponent < 4)
    if dtype.is_floating_point:
        for exponent in (0.5, -0.5, -1, -2, 2.5, -1.5):
            assert_lowers(aten.pow.Tensor_Scalar, torch.cat([x.abs(), special(dtype).abs()]), exponent, scale=2)
        assert_lowers(aten.pow.Tensor_Tensor, x.abs(), random(dtype, 64, seed=2))
        assert_lowers(aten.pow.Scalar, 2.0, x)
    assert_lowers(aten.pow.Tensor_Tensor, x, x.abs().clamp(0, 3))
    assert_lowers(aten.pow.Scalar, 2, x.abs().clamp(0, 5))


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
def test_divisions_and_remainders(dtype):
    x, y = random(dtype, 200), random(dtype, 200, seed=1)
    y = torch.where(y == 0, torch.ones_like(y), y)
    for mode in ("floor", "trunc"):
        assert_lowers(aten.div.Tensor_mode, x, y, rounding_mode=mode, exact=not dtype.is_floating_point or dtype.itemsize > 2)
        assert_lowers(aten.div.Scalar_mode, x, 3, rounding_mode=mode)
    assert_lowers(aten.floor_divide.default, x, y)
    for name in ("remainder", "fmod"):
        assert_lowers(overload(name, "Tensor"), x, y)
        assert_lowers(overload(name, "Scalar"), x, 3)


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
@pytest.mark.parametrize("name", ("floor_divide", "remainder"))
def test_division_of_integers_by_zero_is_reported(name, dtype):
    from loops.against_eager import TorchExterns, one_node_graph, to_numpy
    from thruway.loops.evaluate import evaluate
    from thruway.loops.lower import lower
    target = overload(name, "default" if name == "floor_divide" else "Tensor")
    x, y = random(dtype, 4), torch.tensor([1, 2, 0, 3], dtype=dtype)
    graph, tensors = one_node_graph(target, (x, y), {}, torch.zeros(4, dtype=dtype))
    assert evaluate(lower(graph), [to_numpy(t) for t in tensors], TorchExterns()).failed


@pytest.mark.parametrize("dtype", INTEGERS + (torch.bool,), ids=name_of)
def test_bits(dtype):
    x, y = random(dtype, 4, 5), random(dtype, 5, seed=1)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        assert_lowers(overload(name, "Tensor"), x, y)
    assert_lowers(aten.bitwise_not.default, x)
    assert_lowers(aten.bitwise_and.Scalar, x, 1)
    if dtype != torch.bool:
        assert_lowers(aten.bitwise_left_shift.Tensor, x, y.abs() % 5)
        assert_lowers(aten.bitwise_right_shift.Tensor_Scalar, x, 2)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_selection(dtype):
    x, y = random(dtype, 4, 5), random(dtype, 5, seed=1)
    mask = random(torch.bool, 4, 5)
    for name in ("logical_and", "logical_or", "logical_xor"):
        assert_lowers(overload(name), x, y)
    assert_lowers(aten.where.self, mask, x, y, exact=True)
    assert_lowers(aten.where.self, mask, x, torch.randn(5), exact=True)
    assert_lowers(aten.where.ScalarOther, mask, x, 0.5, exact=True)
    assert_lowers(aten.where.ScalarSelf, mask, 2, x, exact=True)
    assert_lowers(aten.masked_fill.Scalar, x, mask, 1, exact=True)
    assert_lowers(aten.masked_fill.Tensor, x, mask[:, :1], y[0], exact=True)
    if dtype.is_floating_point:
        assert_lowers(aten.masked_fill.Scalar, special(dtype), special(dtype) > 0, float("-inf"), exact=True)


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
def test_clamp(dtype):
    x = torch.cat([random(dtype, 20), special(dtype)])
    low = 1 if dtype == torch.uint8 else -1
    assert_lowers(aten.clamp.default, x, low, 3)
    assert_lowers(aten.clamp.default, x, None, 3)
    assert_lowers(aten.clamp.default, x, low)
    assert_lowers(aten.clamp.default, x, 0.5, 2.5)
    assert_lowers(aten.clamp_min.default, x, 0)
    assert_lowers(aten.clamp_max.default, x, 1)
    assert_lowers(aten.clamp.Tensor, x, torch.zeros_like(x), torch.ones_like(x))


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, dtype):
    x = random(dtype, 4, 16)
    assert_lowers(overload(name), x, scale=2)
    assert_lowers(overload(name), x.t(), scale=2)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_activations_with_numbers(dtype):
    x = random(dtype, 4, 16)
    assert_lowers(aten.gelu.default, x, approximate="tanh", scale=2)
    assert_lowers(aten.leaky_relu.default, x, 0.3)
    assert_lowers(aten.elu.default, x, 0.7)
    assert_lowers(aten.softplus.default, x, 2, 3)
    assert_lowers(aten.threshold.default, x, 0.5, 2)
    assert_lowers(aten.hardtanh.default, x, -0.5, 0.25)
    assert_lowers(aten.glu.default, x, 1)
    assert_lowers(aten._prelu_kernel.default, x, random(dtype, 1, 16))


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_activations_of_special_values(dtype):
    x = special(dtype)
    x = torch.cat([x] * 4)                                           # long enough for torch's vector kernels
    for name in ("relu", "relu6", "hardtanh", "leaky_relu", "sigmoid"):
        assert_lowers(overload(name), x)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_functions_of_several_numbers(dtype):
    x, y, z = (random(dtype, 64, seed=k) for k in range(3))
    assert_lowers(aten.addcmul.default, x, y, z, value=0.5, scale=2)
    assert_lowers(aten.addcdiv.default, x, y, z, value=0.5, scale=2)
    assert_lowers(aten.lerp.Scalar, x, y, 0.3, scale=2)
    assert_lowers(aten.lerp.Tensor, x, y, z, scale=4)
    assert_lowers(aten.atan2.default, x, y)
    assert_lowers(aten.copysign.Tensor, x, y, exact=True)
    assert_lowers(aten.copysign.Scalar, x, -0.0, exact=True)
    assert_lowers(aten.logaddexp.default, x, y, scale=2)
    assert_lowers(aten.xlogy.Tensor, x, y.abs())
    assert_lowers(aten.nan_to_num.default, special(dtype), exact=True)
    assert_lowers(aten.nan_to_num.default, special(dtype), 1.0, 2.0, -3.0, exact=True)
    assert_lowers(aten.round.decimals, x, decimals=1)
    assert_lowers(aten.fmax.default, special(dtype), special(dtype).flip(0), exact=True)
    assert_lowers(aten.fmin.default, special(dtype), special(dtype).flip(0), exact=True)


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
def test_in_place(dtype):
    x, y = random(dtype, 4, 5), random(dtype, 5, seed=1)
    assert_lowers(aten.add_.Tensor, x, y, exact=True)
    assert_lowers(aten.mul_.Tensor, x, 2, exact=True)
    assert_lowers(aten.neg_.default, x, exact=True)
    assert_lowers(aten.clamp_.default, x, 1, 2, exact=True)
    assert_lowers(aten.masked_fill_.Scalar, x, x > 1, 3, exact=True)
    if dtype.is_floating_point:
        assert_lowers(aten.add_.Tensor, x, torch.randn(5), scale=1)
        assert_lowers(aten.sigmoid_.default, x, scale=2)
        assert_lowers(aten.div_.Tensor, x, random(torch.float64, 5))


def test_complex_arithmetic_stays_a_library_call():
    x = torch.randn(4, dtype=torch.complex64)
    program, ours, eager = run_call(aten.mul.Tensor, x, x)
    assert [node.op for node in program.nodes] == ["aten::mul.Tensor"]
    assert abs(ours[0] - eager[0].numpy()).max() < 1e-5
