"""Numbers at the edges: signed zeros, NaN, infinities, subnormals; integers that wrap and divide; which dtype a result has."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import thruway
from whole.assert_same import assert_same

SPECIAL = (0.0, -0.0, math.nan, math.inf, -math.inf, 1e-40, -1e-40, 5e-324, 1e-8, -1e-8, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 2.0, 3.0, -3.0, 6.0,
           88.0, -88.0, 100.0, -104.0, 1e10, 3e38, -3e38, 65504.0, 0.1, -0.7, 20.0, 25.0)

UNARY = {
    **{name: getattr(torch, name) for name in (
        "abs neg sign sgn floor ceil round trunc frac sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan atan sinh cosh tanh "
        "asin acos asinh acosh atanh erfc sigmoid isnan isinf isfinite isposinf isneginf signbit square relu nan_to_num positive logical_not "
        "deg2rad rad2deg logit").split()},
    **{name: getattr(F, name) for name in (
        "silu elu selu celu softplus hardswish hardsigmoid hardtanh relu6 leaky_relu logsigmoid softsign tanhshrink hardshrink softshrink "
        "mish").split()},
    "clamp_low": lambda x: x.clamp(min=0.0), "clamp_high": lambda x: x.clamp(max=-0.0), "clamp": lambda x: x.clamp(-1.0, 1.0),
    "clamp_empty": lambda x: x.clamp(1.0, -1.0), "threshold": lambda x: F.threshold(x, 0.0, -2.0), "plus_zero": lambda x: x + 0.0,
    "minus_zero": lambda x: x - 0.0, "zero_minus": lambda x: 0.0 - x, "times_one": lambda x: x * 1.0, "times_zero": lambda x: x * 0.0,
    "times_minus_one": lambda x: x * -1, "divided": lambda x: 1.0 / x, "power_2": lambda x: x**2, "power_3": lambda x: x**3,
    "power_half": lambda x: x**0.5, "power_minus": lambda x: x**-1, "power_minus_half": lambda x: x**-0.5, "power_0": lambda x: x**0, "power_fraction": lambda x: x**1.7,
    "base": lambda x: 2.0**x, "remainder": lambda x: x % 3.0, "remainder_negative": lambda x: x % -2.5, "fmod": lambda x: torch.fmod(x, 2.5), "remainder_rounded": lambda x: x.clamp(-6e4, 6e4) % 0.7, "fmod_rounded": lambda x: torch.fmod(x.clamp(-6e4, 6e4), 0.7),
    "floor_divide": lambda x: x // 0.7, "floor_by_zero": lambda x: x // 0.0, "truncated": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "to_int": lambda x: x.nan_to_num(0, 9, -9).clamp(-6e4, 6e4).to(torch.int32), "to_bool": lambda x: x.bool(), "to_half": lambda x: x.half(),
    "to_bfloat16": lambda x: x.bfloat16(), "where": lambda x: torch.where(x > 0, x, -0.0), "double_negation": lambda x: -(-x),
}
BINARY = {
    **{name: getattr(torch, name) for name in (
        "add sub mul div atan2 fmod remainder floor_divide fmax fmin copysign hypot xlogy eq ne lt le gt ge logical_and logical_or "
        "logical_xor logaddexp heaviside").split()},
    "pow": torch.pow, "lerp": lambda x, y: torch.lerp(x, y, 0.3), "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "isclose": torch.isclose, "rounded": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 2e-3}


def compiled(function):
    thruway.reset()
    return thruway.compile(function)


def assert_bits(function, *args):
    """Equal where exact; else close, with the same signs of zero, the same NaN and infinities."""
    want, got = function(*args), compiled(function)(*args)
    for a, b in zip(*((one if isinstance(one, tuple) else (one,)) for one in (want, got))):
        assert a.dtype == b.dtype and a.shape == b.shape
        if not a.is_floating_point():
            assert torch.equal(a, b)
            continue
        wrong = ~torch.isclose(a.double(), b.double(), rtol=TOLERANCE[a.dtype], atol=0, equal_nan=True) | ((a == 0) & (torch.signbit(a) != torch.signbit(b)))
        wrong &= ~((a.double() - b.double()).abs() <= 2 * torch.finfo(a.dtype).smallest_normal * torch.finfo(a.dtype).eps) | (a == 0) & (b == 0)
        where = wrong.flatten().nonzero().flatten().tolist()[:5]
        sources = [[one.flatten()[i].item() for one in args] for i in where]
        assert not where, f"{sources}: {a.flatten()[where].tolist()} in eager, {b.flatten()[where].tolist()} compiled"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    assert_bits(UNARY[name], torch.tensor(SPECIAL * 2, dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    special = SPECIAL
    if name in ("remainder", "fmod"):              # eager gives nan for subnormal divisors and for very large quotients
        special = [x for x in SPECIAL if x == 0 or 1e-6 < abs(x) < 1e6 or x != x or abs(x) == math.inf]
    if name in ("fmax", "fmin"):                   # which of 0 and -0 eager's vectors give is not laid down
        special = [x for x in SPECIAL if abs(x) > 1e-30 or x != x]
    x = torch.tensor(special, dtype=torch.float64).to(dtype)
    assert_bits(BINARY[name], x.repeat(len(x)), x.repeat_interleave(len(x)))


INTEGERS = {
    "sum of bytes": lambda x: x.to(torch.uint8) + 200, "product": lambda x: x.to(torch.int8) * 100, "negation": lambda x: -x.to(torch.uint8),
    "shift": lambda x: x << 3, "shift right": lambda x: x >> 2, "difference": lambda x: x.to(torch.uint8) - 7, "square": lambda x: (x * 70000) ** 2,
    "int32 product": lambda x: x.to(torch.int32) * 2**30, "floor": lambda x: x // 7, "floor negative": lambda x: x // -7, "remainder": lambda x: x % 7,
    "remainder negative": lambda x: x % -7, "fmod": lambda x: torch.fmod(x, 7), "trunc": lambda x: torch.div(x, 7, rounding_mode="trunc"),
    "true": lambda x: x / 7, "complement": lambda x: ~x, "sum": lambda x: x.to(torch.uint8).sum(), "mean": lambda x: x.float().mean(),
    "cumsum": lambda x: x.to(torch.int8).cumsum(0), "prod": lambda x: x.prod(), "abs of least": lambda x: (x.to(torch.int8) * 0 - 128).abs(),
    "power": lambda x: x.abs() ** 3, "compare": lambda x: (x > 3.5, x == 3.0, x != -1), "bool": lambda x: (x.bool() + x.bool(), x.bool() * 3, ~x.bool()),
    "bool sum": lambda x: (x > 0).sum(), "bitwise": lambda x: (x & 12, x | 3, x ^ -1), "max": lambda x: (x.max(), x.argmin(), x.clamp(-2, 3)),
    "float to int": lambda x: (x * 0.7).to(torch.int64), "to narrow": lambda x: (x * 1000).to(torch.int8), "to unsigned": lambda x: x.to(torch.uint8),
}
PROMOTION = {
    "int and float number": lambda i, f, z: i + 1.5, "int and int number": lambda i, f, z: i + 1, "bool number": lambda i, f, z: i + True,
    "half and number": lambda i, f, z: f.half() * 1.1, "half and zero dim": lambda i, f, z: f.half() * z, "half and double zero dim": lambda i, f, z: f.half() + z.double(),
    "int and zero dim": lambda i, f, z: i * z, "bfloat16 and half": lambda i, f, z: f.bfloat16() + f.half(), "zero dims": lambda i, f, z: z + z.double(),
    "int division": lambda i, f, z: i / 2, "int and double": lambda i, f, z: i + f.double(), "where": lambda i, f, z: torch.where(i > 0, i, 0.5),
    "where half": lambda i, f, z: torch.where(i > 0, f.half(), 1.0), "cat": lambda i, f, z: torch.cat([i, f]), "stack": lambda i, f, z: torch.stack([i, f.half()]),
    "in place": lambda i, f, z: f.clone().add_(i), "bytes": lambda i, f, z: i.to(torch.uint8) + i.to(torch.int8), "sum dtype": lambda i, f, z: i.int().sum(),
    "bool mean": lambda i, f, z: (i > 0).sum() / 3, "power": lambda i, f, z: (i.abs() + 1) ** 0.5, "number first": lambda i, f, z: 2 - i, "max": lambda i, f, z: torch.maximum(i, f),
    "large number": lambda i, f, z: f * 1e300, "half overflow": lambda i, f, z: f.half() * 60000.0, "rounded each": lambda i, f, z: f.bfloat16() * 1.01 * 1.01 * 1.01,
    "clamp": lambda i, f, z: i.clamp(min=0.5), "comparison": lambda i, f, z: f.half() < 0.1, "full": lambda i, f, z: torch.full((2,), 3) + torch.full((2,), 3.0),
    "arange": lambda i, f, z: (torch.arange(3), torch.arange(3.0), torch.arange(0, 1, 0.25)), "lerp": lambda i, f, z: torch.lerp(f.double(), f.double(), 0.1),
}
SHAPES = {
    "zero dim": (), "no elements": (0,), "no rows": (0, 3), "no columns": (3, 0), "one": (1, 1),
}
ON_SHAPES = {
    "pointwise": lambda x: x * 2 + 1, "sum": lambda x: (x.sum(), x.sum(-1) if x.dim() else x), "prod": lambda x: x.prod(), "mean": lambda x: x.mean(),
    "softmax": lambda x: torch.softmax(x, -1), "cumsum": lambda x: x.cumsum(0), "cat": lambda x: torch.cat([x.reshape(-1), x.reshape(-1)]),
    "broadcast": lambda x: x + torch.ones(3, *x.shape), "any": lambda x: (x.any(), x.all()), "flatten": lambda x: x.flatten() + 1, "sort": lambda x: x.sort(),
    "in place": lambda x: x.add_(1), "max": lambda x: x.amax(), "var": lambda x: x.var(), "view": lambda x: x.view(-1), "t": lambda x: x.reshape(1, -1).t() * 2,
    "matmul": lambda x: x.reshape(-1, 1) @ torch.ones(1, 4), "matmul of none": lambda x: x.reshape(1, -1) @ x.reshape(-1, 1), "argmax": lambda x: x.argmax(),
    "several": lambda x: (x.sum(), x.reshape(-1).cumsum(0), torch.stack([x, x * 2]).sum(0), x.reshape(-1, 1).t() @ torch.ones(x.numel(), 2), x.mean()),
    "index": lambda x: x.reshape(-1)[torch.zeros(2, dtype=torch.long)], "norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]) if x.dim() else x,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    assert_same(INTEGERS[name], torch.arange(-20, 21))


@pytest.mark.parametrize("name", PROMOTION)
def test_promotion(name):
    assert_same(PROMOTION[name], torch.arange(-2, 3), torch.linspace(-1, 1, 5), torch.tensor(0.3))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ON_SHAPES)
def test_small_shapes(name, shape):
    assert_same(ON_SHAPES[name], torch.ones(SHAPES[shape]) * 3)


def test_division_by_zero_of_integers():
    for function in (lambda x, y: x // y, lambda x, y: x % y, lambda x, y: torch.div(x, y, rounding_mode="trunc")):
        for divisor in ([1, 2], [1, 0], [2, 2]):
            assert_same(function, torch.tensor([7, -7]), torch.tensor(divisor))
