"""Calls that eager refuses or answers oddly, where metadata alone would let them pass or answer better."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thruway


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


def assert_same_outcome(function, *arguments) -> None:
    expected = outcome(function, *arguments)
    found = outcome(thruway.compile(function), *arguments)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert torch.equal(found.isnan(), expected.isnan())
    else:
        assert found == expected


@pytest.mark.parametrize("number", [-1, 255, 256, 300, float("inf"), 1e10])
@pytest.mark.parametrize("places", [(), (1, 2)])
def test_scattered_numbers_that_do_not_fit(number, places):
    index = torch.tensor(places, dtype=torch.int64)
    for dtype in (torch.uint8, torch.int8, torch.float16):
        assert_same_outcome(lambda x, i: x.scatter(0, i, number), torch.zeros(4, dtype=dtype), index)
        assert_same_outcome(lambda x, i: x.clone().scatter_(0, i, number, reduce="add"), torch.zeros(4, dtype=dtype), index)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("classes", [0, 1, 4])
def test_one_hot_of_few(count, classes):
    assert_same_outcome(lambda x: F.one_hot(x, classes), torch.zeros(count, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_infinities(dtype, approximate):
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1.0, -30.0, 3e4] * 5, dtype=dtype)
    assert_same_outcome(lambda x: F.gelu(x, approximate=approximate), x)
    signs = [outcome(f, x).signbit()[3:8] for f in (lambda x: F.gelu(x, approximate=approximate), thruway.compile(lambda x: F.gelu(x, approximate=approximate)))]
    assert torch.equal(*signs)


@pytest.mark.parametrize("aligned", [False, True])
def test_padded_rows_of_an_encoder(aligned):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        model = nn.TransformerEncoder(layer, 2).eval()
        mask = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1 if aligned else 0]], dtype=torch.bool)
        mask = mask if aligned else mask.flip(1)
        compiled = thruway.compile(model)
        for _ in range(2):
            x = torch.randn(2, 5, 16)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x, src_key_padding_mask=mask), model(x, src_key_padding_mask=mask), rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [
    lambda x: F.celu(x, alpha=0), lambda x: F.celu(x, alpha=0.0, inplace=True), lambda x: x[0].index_fill(0, torch.tensor([0]), 2.0),
    lambda x: x[0].index_fill(0, torch.tensor([1]), 2.0),
])
def test_arguments_that_only_eagers_kernel_refuses(function):
    before = thruway.metrics()["bugs"]
    assert_same_outcome(function, torch.randn(4))
    assert thruway.metrics()["bugs"] == before


X, FLAGS = torch.randn(5, 4), torch.zeros(5, 4, dtype=torch.int64)
SMALL = torch.arange(20.0).reshape(5, 4) % 3
REFUSED_NUMBERS = {
    "huber": lambda n: lambda x: F.huber_loss(x, x * 2, delta=n),
    "smooth l1": lambda n: lambda x: F.smooth_l1_loss(x, x * 2, beta=n),
    "softshrink": lambda n: lambda x: F.softshrink(x, n),
    "hardshrink": lambda n: lambda x: F.hardshrink(x, n),
    "celu": lambda n: lambda x: F.celu(x, n),
    "threshold": lambda n: lambda x: F.threshold(x, n, n),
}


@pytest.mark.parametrize("number", [-1, -0.0, 0, 0.5])
@pytest.mark.parametrize("name", REFUSED_NUMBERS)
def test_numbers_that_an_operator_refuses(name, number):
    assert_same_outcome(REFUSED_NUMBERS[name](number), X)


@pytest.mark.parametrize("approximate", ["none", "tanh", "other", ""])
def test_words_that_an_operator_refuses(approximate):
    assert_same_outcome(lambda x: F.gelu(x, approximate=approximate), X)


@pytest.mark.parametrize("mode", [None, "trunc", "floor", "round", ""])
def test_roundings_that_a_division_refuses(mode):
    assert_same_outcome(lambda x: torch.div(x, 2, rounding_mode=mode), X)
    assert_same_outcome(lambda x: torch.div(x, x + 3, rounding_mode=mode), X)


@pytest.mark.parametrize("source", [torch.float16, torch.float32, torch.complex64])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_dtypes_that_a_reduction_refuses(dtype, source):
    for reduce in (torch.norm, torch.linalg.vector_norm):
        assert_same_outcome(lambda x: reduce(x, 1, 0, dtype=dtype), SMALL.to(source))
    for reduce in (torch.cumsum, torch.cumprod, torch.sum, torch.prod):
        assert_same_outcome(lambda x: reduce(x, 0, dtype=dtype), SMALL.to(source))


@pytest.mark.parametrize("rank", [64, 65])
@pytest.mark.parametrize("reduce", [torch.amax, torch.sum, torch.argmax, torch.logsumexp, torch.std, torch.any, torch.amin])
def test_more_dimensions_than_a_reduction_takes(reduce, rank):
    assert_same_outcome(lambda x: reduce(x, -1), torch.ones([1] * (rank - 1) + [2]))


WRITTEN = {
    "gather": lambda out: lambda x: torch.gather(x, 1, FLAGS, out=out.clone()),
    "complex": lambda out: lambda x: torch.complex(x, x, out=out.clone()),
    "add": lambda out: lambda x: torch.add(x, 1, out=out.clone()),
    "sum": lambda out: lambda x: torch.sum(x, 1, keepdim=True, out=out[:, :1].clone()),
    "index_select": lambda out: lambda x: torch.index_select(x, 0, torch.arange(5), out=out.clone()),
    "cat": lambda out: lambda x: torch.cat([x[:2], x[2:]], out=out.clone()),
    "mm": lambda out: lambda x: torch.mm(x, x.T[:, :4], out=out.clone()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64])
@pytest.mark.parametrize("name", WRITTEN)
def test_out_of_another_dtype(name, dtype):
    assert_same_outcome(WRITTEN[name](torch.zeros(5, 4, dtype=dtype)), X)


POOLED = {
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool1d and its indices": lambda x: F.max_pool1d(x, 2, return_indices=True)[0],
    "torch.max_pool1d": lambda x: torch.max_pool1d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, (1, 2)),
    "avg_pool1d": lambda x: F.avg_pool1d(x, 2),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 2),
    **{f"{mode} of {rank}": lambda x, mode=mode, rank=rank: F.interpolate(x.reshape(1, 2, *[1] * (rank - 1), 6), scale_factor=2.0, mode=mode)
       for mode in ("nearest", "nearest-exact") for rank in (1, 2, 3)},
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", POOLED)
def test_dtypes_that_a_kernel_lacks(name, dtype):
    assert_same_outcome(POOLED[name], torch.arange(12).reshape(1, 2, 6).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (1, 4), (4, 1), (1, 1, 3), (3,), (2, 3)])
def test_signs_of_zero_that_sums_leave(shape, dtype):
    def program(x):
        return [one for dim in ((), (0,), (-1,)) for one in (x.sum(*dim), x.mean(*dim), x.prod(*dim), x.sum(*dim).sum(), x.prod(*dim).sum(), x.amax(*dim or (0,)))]

    x = torch.full(shape, -0.0, dtype=dtype)
    assert [one.signbit().tolist() for one in thruway.compile(program)(x)] == [one.signbit().tolist() for one in program(x)]
