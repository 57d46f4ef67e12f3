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
