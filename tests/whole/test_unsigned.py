"""uint16, uint32 and uint64: what eager has no kernel for raises eager's error, what it has one for is compiled. Bytes are resampled in integers."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F

import thruway

DTYPES = (torch.uint16, torch.uint32, torch.uint64)
OF_ONE = {
    **{name: getattr(torch, name) for name in "neg abs sign bitwise_not logical_not max min amax argmax sum prod exp sqrt sort clone "
                                              "zeros_like signbit floor any all square relu".split()},
    "clamp": lambda x: x.clamp(0, 3), "plus": lambda x: x + 1, "half": lambda x: x * 1.5, "power": lambda x: x**2, "softmax": lambda x: x.softmax(0, torch.float32),
    "fill": lambda x: x.masked_fill(x == 3, 1), "in_place": lambda x: x.clone().add_(1), "number": lambda x: torch.full_like(x, 7), "roll": lambda x: x.roll(1),
    "to_float": lambda x: x.float() * 2, "to_bytes": lambda x: x.view(torch.uint8), "triangle": lambda x: x.view(1, 3).tril(), "range": lambda x: torch.arange(5, dtype=x.dtype),
    "sums": lambda x: x.cumsum(0), "flip": lambda x: x.flip(0), "rows": lambda x: x[torch.tensor([2, 0])], "padded": lambda x: F.pad(x, (1, 1)), "repeated": lambda x: x.repeat(2), "unused": lambda x: (x + x, x.float())[1],
    "empty": lambda x: x[:0] + x[:0], "many": lambda x: x.repeat(3000) < x.repeat(3000), "many_and": lambda x: x.repeat(3000) & x.repeat(3000),
}
OF_TWO = {
    **{name: getattr(operator, name) for name in "add sub mul eq ne lt ge and_ or_ xor lshift rshift floordiv mod truediv".split()},
    **{name: getattr(torch, name) for name in "minimum fmax bitwise_and logical_or atan2 gcd".split()},
    "joined": lambda x, y: torch.cat([x, y]), "stacked": lambda x, y: torch.stack([x, y]), "chosen": lambda x, y: torch.where(x == y, x, y),
    "added": lambda x, y: x.index_add(0, torch.tensor([0, 0, 1]), y), "scattered": lambda x, y: x.scatter(0, torch.tensor([0, 2, 1]), y),
    "wide": lambda x, y: x.long() + y.long(), "copied": lambda x, y: x.clone().copy_(y), "put": lambda x, y: x.index_put((torch.tensor([0]),), y[:1]),
}


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except (NotImplementedError, RuntimeError) as error:
        return type(error), str(error)


def assert_alike(function, *arguments) -> None:
    thruway.reset()
    expected, compiled = outcome(function, *arguments), thruway.compile(function)
    for _ in range(2):
        found = outcome(compiled, *arguments)
        for one, other in zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]:
            if not isinstance(one, torch.Tensor):
                assert one == other
                continue
            assert isinstance(other, torch.Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
            torch.testing.assert_close(one.to(torch.float64), other.to(torch.float64), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OF_ONE)
def test_of_one(name, dtype):
    assert_alike(OF_ONE[name], torch.tensor([1, 200, 65535]).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OF_TWO)
def test_of_two(name, dtype):
    assert_alike(OF_TWO[name], torch.tensor([3, 7, 65535]).to(dtype), torch.tensor([3, 2, 1]).to(dtype))


def test_a_handler_sees_the_error():
    def f(x, log):
        log.append("before")
        try:
            return x + x
        except NotImplementedError as error:
            log.append(str(error))
            return x.long() + x.long()

    x, logs = torch.tensor([40000]).to(torch.uint16), ([], [])
    assert torch.equal(f(x, logs[0]), thruway.compile(f)(x, logs[1])) and logs[0] == logs[1] and len(logs[0]) == 2


def test_what_eager_has_is_one_graph():
    x = torch.tensor([1, 200, 65535]).to(torch.uint16)
    f = lambda x: ((x.to(torch.int32) & 255) * 2, x & x, x == x, torch.stack([x, x]))
    for one, other in zip(f(x), thruway.compile(f, fullgraph=True)(x), strict=True):
        assert one.dtype == other.dtype and one.tolist() == other.tolist()


@pytest.mark.parametrize("layout", (torch.contiguous_format, torch.channels_last))
@pytest.mark.parametrize("mode", ("bilinear", "bicubic"))
@pytest.mark.parametrize("options", ({}, {"align_corners": True}, {"antialias": True}))
def test_bytes_are_resampled_in_integers(mode, layout, options):
    x = torch.randint(0, 256, (2, 3, 7, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).to(memory_format=layout)
    for size in ({"size": (14, 13)}, {"size": (4, 3)}, {"scale_factor": 1.7}):
        resample = lambda x, size=size: F.interpolate(x, mode=mode, **size, **options)
        expected, found = resample(x), thruway.compile(resample)(x)
        assert torch.equal(expected, found) and expected.stride() == found.stride()
    between = lambda x: F.interpolate(x.float(), size=(14, 13), mode=mode, **options)
    torch.testing.assert_close(thruway.compile(between)(x), between(x), rtol=1e-4, atol=1e-2)


READ = {
    "divided": lambda s: s / 2, "as_float": lambda s: s.float() * 2, "as_double": lambda s: s.double() + 1, "compared": lambda s: s > 0,
    "clamped": lambda s: s.clamp(min=0) + 1, "absolute": lambda s: s.abs() + 1, "chosen": lambda s: torch.where(s < 0, 1.0, 2.0),
    "larger": lambda s: torch.maximum(s, torch.zeros_like(s)) * 3, "shifted": lambda s: (s >> 1) + 1, "whole": lambda s: s // 2 + 1, "rest": lambda s: s % 3 + 1,
    "sign": lambda s: s.sign() + 1, "back": lambda s: s.to(torch.int8) + 1, "again": lambda s: s.float().mean(),
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_sums_and_products_over_any_dimension_keep_their_sign(dtype, read):
    x = torch.randint(-4 if dtype.is_signed else 0, 5, (3, 70, 4)).to(dtype)
    for reduce in (torch.sum, torch.prod):
        for dim in (0, 1, 2):
            for wide in (None, torch.int32):
                function = lambda x: READ[read](reduce(x, dim, dtype=wide))
                torch.testing.assert_close(thruway.compile(function)(x), function(x), equal_nan=True)
