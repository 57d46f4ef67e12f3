"""Reductions, softmax, norms and scans: lowered, evaluated, compared with eager."""

from __future__ import annotations

import pytest
import torch

from loops.against_eager import assert_lowers
from loops.inputs import ALL, FLOATS, NUMBERS, name_of, random, special

aten = torch.ops.aten


def overload(name: str, kind: str):
    return getattr(getattr(aten, name), kind)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_sums_and_products(dtype):
    x = random(dtype, 3, 4, 5)
    assert_lowers(aten.sum.default, x, scale=4)
    for dims in ([0], [1], [2], [-1, 0], [0, 1, 2], []):
        assert_lowers(aten.sum.dim_IntList, x, dims, scale=4)
        assert_lowers(aten.sum.dim_IntList, x, dims, True, scale=4)
    assert_lowers(aten.sum.dim_IntList, x.permute(2, 0, 1), [1], scale=4)
    assert_lowers(aten.sum.dim_IntList, x[:0], [0], scale=4)
    assert_lowers(aten.sum.dim_IntList, x[0, 0, 0], [0])
    assert_lowers(aten.sum.dim_IntList, x, [1], dtype=torch.float32, scale=4)
    small = (x / 2).to(dtype)
    assert_lowers(aten.prod.dim_int, small, 1, scale=8)
    assert_lowers(aten.prod.default, small[0], scale=8)
    assert_lowers(aten.count_nonzero.dim_IntList, x, [1])


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_moments(dtype):
    x = random(dtype, 3, 4, 5)
    for dims in ([0], [-1], [0, 2]):
        for keepdim in (False, True):
            assert_lowers(aten.mean.dim, x, dims, keepdim, scale=2)
            assert_lowers(aten.var.correction, x, dims, correction=1, keepdim=keepdim, scale=2)
            assert_lowers(aten.std.correction, x, dims, correction=0, keepdim=keepdim, scale=2)
            assert_lowers(aten.var_mean.correction, x, dims, correction=1, keepdim=keepdim, scale=2)
    assert_lowers(aten.mean.default, x, scale=4)
    assert_lowers(aten.var.correction, x, scale=2)
    assert_lowers(aten.var.dim, x, [1], False, scale=2)
    assert_lowers(aten.var.correction, x[:, :1], [1], scale=2)       # one element: 0 / 0
    assert_lowers(aten.mean.dim, x[:0], [0])
    assert_lowers(aten.mean.dim, random(torch.int64, 3, 4), [0], dtype=dtype)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_extrema(dtype):
    x = random(dtype, 3, 4, 5)
    x[0, 0, 1] = x[0, 0, 3]
    variants = [x, x.permute(1, 2, 0)]
    if dtype.is_floating_point:
        y = x.clone()
        y[1, 2, 3], y[2, 1, 0], y[2, 1, 4] = torch.nan, torch.inf, torch.nan
        variants.append(y)
    for one in variants:
        for kind in ("max", "min"):
            assert_lowers(overload(kind, "dim"), one, 1, exact=True)
            assert_lowers(overload(kind, "dim"), one, -1, True, exact=True)
            assert_lowers(overload(kind, "default"), one, exact=True)
            assert_lowers(overload(f"a{kind}", "default"), one, [0, 2], exact=True)
            if dtype != torch.bool:
                assert_lowers(overload(f"arg{kind}", "default"), one)
                assert_lowers(overload(f"arg{kind}", "default"), one, 1, True)
                assert_lowers(overload(f"arg{kind}", "default"), one, 2)
        assert_lowers(aten.aminmax.default, one, dim=1, exact=True)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_truth(dtype):
    x = random(dtype, 3, 4)
    for name in ("any", "all"):
        assert_lowers(overload(name, "default"), x)
        assert_lowers(overload(name, "dim"), x, 1, True)
        assert_lowers(overload(name, "dims"), x, [0, 1])
        assert_lowers(overload(name, "dim"), x[:, :0], 1)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_norms_of_vectors(dtype):
    x = random(dtype, 3, 8)
    for order in (2, 1, 0, 3, float("inf"), float("-inf"), 0.5):
        assert_lowers(aten.linalg_vector_norm.default, x, order, [1], scale=4)
    assert_lowers(aten.linalg_vector_norm.default, x, scale=4)
    assert_lowers(aten.norm.ScalarOpt_dim, x, 2, [0], True, scale=4)
    assert_lowers(aten.norm.Scalar, x, 2, scale=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
@pytest.mark.parametrize("name", ("softmax", "log_softmax"))
def test_softmax(name, dtype):
    x = random(dtype, 3, 4, 5)
    atol = 5e-3 if name == "log_softmax" and dtype.itemsize == 2 else 0.0   # eager keeps the logarithm of the sum in 16 bits there
    masked = x.clone()
    masked[0, 1] = float("-inf")
    masked[1, 1, 2] = float("-inf")
    for one in (x, masked, x.permute(2, 0, 1), x[:0], x[0, 0, 0]):
        for dim in (-1, 0):
            assert_lowers(overload(f"_{name}", "default"), one, dim, False, scale=2, atol=atol)
            assert_lowers(overload(name, "int"), one, dim, scale=2, atol=atol)
    assert_lowers(overload(name, "int"), x, -1, torch.float32, scale=2)
    assert_lowers(overload(name, "int"), random(torch.int64, 3, 4), 1, dtype, scale=2, atol=atol)
    for one in (x, masked):
        assert_lowers(aten.logsumexp.default, one, [-1], scale=4)
        assert_lowers(aten.logsumexp.default, one, [0, 1], True, scale=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_layer_and_rms_norm(dtype):
    x, w, b = random(dtype, 3, 4, 16), random(dtype, 16, seed=1), random(dtype, 16, seed=2)
    assert_lowers(aten.layer_norm.default, x, [16], w, b, 1e-5, scale=4)
    assert_lowers(aten.layer_norm.default, x, [16], None, None, 1e-5, scale=4)
    assert_lowers(aten.layer_norm.default, x, [4, 16], random(dtype, 4, 16), None, 1e-5, scale=4)
    assert_lowers(aten.native_layer_norm.default, x, [16], w, b, 1e-5, scale=8)
    assert_lowers(aten.native_layer_norm.default, x.transpose(0, 1), [16], w, None, 1e-5, scale=8)
    assert_lowers(aten.rms_norm.default, x, [16], w, 1e-5, scale=4)
    assert_lowers(aten.rms_norm.default, x, [16], None, None, scale=4)
    assert_lowers(aten.rms_norm.default, x, [16], w, None, scale=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_group_and_batch_norm(dtype):
    x, w, b = random(dtype, 2, 6, 4, 5), random(dtype, 6, seed=1), random(dtype, 6, seed=2)
    mean, var = random(dtype, 6, seed=3), random(dtype, 6, seed=4).abs() + 0.1
    assert_lowers(aten.group_norm.default, x, 3, w, b, 1e-5, scale=8)
    assert_lowers(aten.native_group_norm.default, x, w, b, 2, 6, 20, 2, 1e-5, scale=8)
    assert_lowers(aten.native_group_norm.default, x, None, None, 2, 6, 20, 6, 1e-5, scale=8)
    assert_lowers(aten.batch_norm.default, x, w, b, mean, var, False, 0.1, 1e-5, False, scale=8)
    assert_lowers(aten._native_batch_norm_legit_no_training.default, x, None, None, mean, var, 0.1, 1e-5, scale=8)
    assert_lowers(aten.native_batch_norm.default, x, w, b, mean, var, False, 0.1, 1e-5, scale=8)
    assert_lowers(aten.native_batch_norm.default, x, w, b, mean, var, True, 0.1, 1e-5, extern=True)


@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_running_sums(dtype):
    x = random(dtype, 3, 6)
    for dim in (0, 1):
        assert_lowers(aten.cumsum.default, x, dim, scale=4)
        assert_lowers(aten.cumprod.default, (x / 3).to(dtype), dim, scale=8)
        if dtype.is_floating_point:
            assert_lowers(aten.logcumsumexp.default, x, dim, scale=4)
    assert_lowers(aten.cumsum.default, x[0, 0], 0)
    assert_lowers(aten.cumsum.default, x[:, :0], 1)
    assert_lowers(aten.cumsum.default, x, 1, dtype=torch.float32, scale=4)


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
def test_special_values_reduce_as_in_eager(dtype):
    x = special(dtype).repeat(4)
    for name in ("amax", "amin"):
        assert_lowers(overload(name, "default"), x, [0], exact=True)
    assert_lowers(aten.sum.default, x[:3], scale=2)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_global_average_pooling(dtype):
    for x in (random(dtype, 2, 6, 4, 5), random(dtype, 2, 6, 4, 5).contiguous(memory_format=torch.channels_last)):
        assert_lowers(aten.adaptive_avg_pool2d.default, x, [1, 1], scale=4)
        assert_lowers(aten._adaptive_avg_pool2d.default, x, [1, 1], scale=4)
        if dtype != torch.float16:
            assert_lowers(aten.adaptive_avg_pool2d.default, x, [2, 1], extern=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_max_pooling_of_innermost_channels(dtype):
    x = random(dtype, 2, 16, 9, 10)
    x[0, :, 4, 4], x[1, 0, 0] = float("nan"), -float("inf")
    x[1, :, :, ::2], x[1, :, :, 1::2] = 0.0, -0.0
    inside = x.contiguous(memory_format=torch.channels_last)
    for rest in (([3, 3], [2, 2], [1, 1]), ([2, 2],), ([3, 2], [2, 1], [1, 0]), ([2, 2], [2, 2], [0, 0], [1, 1], True), ([2, 2], [2, 2], [1, 1], [1, 1], True)):
        assert_lowers(aten.max_pool2d.default, inside, *rest, exact=True)
    for y, *rest in ((x, [3, 3]), (inside, [3, 3], [2, 2], [1, 1], [2, 2]), (inside, [5, 5]), (inside[:, :8].contiguous(memory_format=torch.channels_last), [2, 2])):
        assert_lowers(aten.max_pool2d.default, y, *rest, extern=True)
