"""Roundings to bfloat16 that a kernel leaves out or does in fewer instructions: the same numbers and NaNs as eager, for every bit pattern."""

import numpy as np
import pytest

import thruway
from codegen.test_01_math import run

torch = pytest.importorskip("torch")
EVERY = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)


def same(function, *args):
    with torch.no_grad():
        found, wanted = thruway.compile(function, fullgraph=True)(*args), function(*args)
    assert found.dtype == wanted.dtype
    assert torch.equal(found.isnan(), wanted.isnan())
    numbers = ~wanted.isnan()
    assert torch.equal(found[numbers].view(torch.int16), wanted[numbers].view(torch.int16))


@pytest.mark.parametrize("function", [
    lambda x: -x, lambda x: -x * 3, lambda x: x.abs() + 1, lambda x: torch.relu(x) * 1.7, lambda x: torch.where(x > 0, x, float("-inf")) / 3,
    lambda x: torch.where(x > 0, x, 0.1) * 3, lambda x: x.floor() - x, lambda x: x.clamp(-0.3, 0.7) * 1.1, lambda x: x.masked_fill(x < 0, 1e-3) * 3,
    lambda x: torch.maximum(-x, x * 1.01), lambda x: x.flip(0) - x * 0.1, lambda x: (x * 1.7).reciprocal(), lambda x: x - x,
])
def test_every_bfloat16(function):
    same(function, EVERY)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_whole_numbers_have_no_negative_zero(dtype):
    x = EVERY[EVERY.abs() < 1e9]
    same(lambda x: x.to(dtype).to(torch.bfloat16), x)
    same(lambda x: x.to(dtype).to(torch.bfloat16) * 1.5, x)


def test_nans_of_float32_with_all_their_bits_stay_nans():
    bits = torch.tensor([-1, 0x7FFFFFFF, 0x7F800001, 0x7FC00000, 0x7F808000, -0x7FFFFF], dtype=torch.int32).view(torch.float32).repeat(40)
    same(lambda x: (x * 2).bfloat16(), bits)
    same(lambda x: x.bfloat16(), bits)
    same(lambda x, y: x.bfloat16() + y, bits, EVERY[: bits.numel()])
    same(lambda n: n.view(torch.float32).bfloat16() * 2, bits.view(torch.int32))


def test_every_float16_as_bfloat16():
    x = EVERY.view(torch.float16)
    same(lambda x: x.bfloat16(), x)
    same(lambda x, y: torch.where(y > 0, x.bfloat16(), y), x, EVERY)
    same(lambda x: x.bfloat16() * 1.5, x)


def test_short_roundings_of_numbers_and_short_nans():
    x = np.arange(0, 2**32, 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    wanted = torch.from_numpy(x).bfloat16()
    assert (run("f2b_short", x, np.uint16, ("float", "unsigned short")) == wanted.view(torch.int16).numpy().view(np.uint16)).all()
    assert (run("round_b_short", x).view(np.uint32) == wanted.float().numpy().view(np.uint32)).all()
    every = EVERY.float().numpy()
    assert (np.isnan(run("round_b_short", every)) == np.isnan(every)).all()
    assert (run("f2b_held", every, np.uint16, ("float", "unsigned short")) == EVERY.view(torch.int16).numpy().view(np.uint16)).all()
