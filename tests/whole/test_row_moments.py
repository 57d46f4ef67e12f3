"""Layer and group norm give eager's bits: the order in which rows add up, the dtype of the root, products fused with sums."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway

pytestmark = pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"}, reason="eager's kernels are others here")
OFFSETS = {torch.float32: (0.0, 10.0, 1e5), torch.bfloat16: (0.0, 10.0, 1e5), torch.float16: (0.0, 10.0, 1e3)}
INTEGERS = {2: torch.int16, 4: torch.int32}


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(INTEGERS[x.element_size()])


def assert_bits(function, *arguments, **options) -> None:
    with torch.no_grad():
        expected, found = function(*arguments), thruway.compile(function, fullgraph=True, **options)(*arguments)
    for k, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert one.dtype == other.dtype and one.stride() == other.stride()
        assert torch.equal(bits(one), bits(other)), f"result {k} of {function.__name__}, {one.shape}, {one.dtype}"


def rows(count: int, length: int, dtype: torch.dtype, offset: float) -> torch.Tensor:
    return (torch.randn(count, length, generator=torch.Generator().manual_seed(length)) + offset).to(dtype)


@pytest.mark.parametrize("dtype", OFFSETS)
@pytest.mark.parametrize("lengths", [(1, 2, 7, 8, 9, 15, 16, 17, 33), (64, 127, 129, 300, 520), (768, 1000, 4097, 20000)], ids=str)
def test_mean_and_deviation_of_many_lengths(dtype, lengths):
    def statistics(rows):
        return [one for x in rows for one in torch.native_layer_norm(x, (x.shape[1],), torch.ones(x.shape[1]), torch.zeros(x.shape[1]), 1e-5)]
    for offset in OFFSETS[dtype]:
        assert_bits(statistics, [rows(9, n, dtype, offset) for n in lengths])


@pytest.mark.parametrize("dtype", OFFSETS)
@pytest.mark.parametrize("affine", ["", "w", "b", "wb"])
def test_affine_part_rounds_as_eager(dtype, affine):
    def normalized(xs, weights, biases):
        return [F.layer_norm(x, x.shape[1:], weights[k] if "w" in affine else None, biases[k] if "b" in affine else None) for k, x in enumerate(xs)]
    lengths = (1, 7, 33, 768)
    weights, biases = ([rows(1, n, dtype, shift)[0] for n in lengths] for shift in (0.0, 1.0))
    for offset in OFFSETS[dtype]:
        assert_bits(normalized, [rows(6, n, dtype, offset) for n in lengths], weights, biases)


def test_half_rows_with_float_weights():
    def mixed(x, w, b):
        return F.layer_norm(x, x.shape[1:], w, b), *torch.native_layer_norm(x, x.shape[1:], w, b, 1e-3)
    for dtype in (torch.bfloat16, torch.float16):
        assert_bits(mixed, rows(8, 45, dtype, 3.0), torch.rand(45), torch.rand(45))


def channels_last(x):
    return [F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],))]


def behind_other_work(x):
    y = x * 1.5 - x.roll(1, 0)
    return F.layer_norm(y, y.shape[-1:]), y, y.argmax(-1)[..., None].float()


def two_dimensions(x):
    return [F.layer_norm(x, x.shape[-2:])]


def two_dimensions_across(x):
    return [F.layer_norm(x.transpose(-1, -2), (x.shape[-1], x.shape[-2]))]


def everything(x):
    return [F.layer_norm(x, x.shape)]


def written_between(x):
    x = x.clone()
    first = F.layer_norm(x, x.shape[-1:])
    x.add_(1)
    return F.layer_norm(x, x.shape[-1:]), first


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [channels_last, behind_other_work, two_dimensions, two_dimensions_across, everything, written_between])
def test_rows_that_do_not_stand_in_memory(function, dynamic):
    for dtype, shape in ((torch.float32, (2, 70, 9, 9)), (torch.bfloat16, (2, 96, 5, 7)), (torch.float32, (1, 300, 3, 33))):
        x = rows(1, torch.Size(shape).numel(), dtype, 10.0).reshape(shape)
        assert_bits(function, x, dynamic=dynamic)


@pytest.mark.parametrize("dtype", OFFSETS)
@pytest.mark.parametrize("affine", [False, True])
def test_group_norm(dtype, affine):
    def grouped(x, groups, w, b):
        y = F.group_norm(x, groups, w if affine else None, b if affine else None)
        return y, *torch.native_group_norm(x, None, None, x.shape[0], x.shape[1], x[0, 0].numel(), groups, 1e-5)[1:]
    for shape, groups in (((3, 8), 4), ((2, 6, 7), 3), ((2, 32, 16, 16), 32), ((1, 12, 3, 40), 1)):
        for offset in OFFSETS[dtype]:
            x = rows(1, torch.Size(shape).numel(), dtype, offset).reshape(shape)
            assert_bits(grouped, x, groups, rows(1, shape[1], dtype, 0.0)[0], rows(1, shape[1], dtype, 1.0)[0])


def test_infinities_and_overflow():
    x = rows(6, 40, torch.float32, 0.0)
    x[0, 3], x[1, 39], x[2, 0] = float("inf"), float("nan"), -float("inf")
    x[3] *= 1e38
    x[4] *= 1e30
    with torch.no_grad():
        expected, found = F.layer_norm(x, (40,)), thruway.compile(lambda x: F.layer_norm(x, (40,)))(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
