"""Powers, roots and paddings of sizes that change between calls: one entry answers them all, with Python's numbers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import thruway
from thruway.surface import lazy

ONE_ENTRY = {
    "root": lambda x: (x * 2, x.shape[0] ** 0.5, math.sqrt(x.shape[0] + 1), x.shape[0] ** -0.5),
    "whole_root": lambda x: (x * 2, int(x.shape[0] ** 0.5), int(math.sqrt(x.shape[0]))),
    "rounded_root": lambda x: (x * 2, round(x.shape[0] ** 0.5), math.ceil(math.sqrt(x.shape[0])), math.floor(x.shape[0] ** 0.25)),
    "scaled": lambda x: (x / x.shape[0] ** 0.5, x * x.shape[0] ** -0.5, x + math.sqrt(x.shape[0])),
    "logarithm": lambda x: (x * math.log(x.shape[0]), math.log2(x.shape[0]), x.sum() / math.log1p(x.shape[0])),
    "power": lambda x: (x * x.shape[0] ** 2, x.shape[0] ** 3 - 1, x.shape[0] ** 0, x.shape[0] ** 1),
    "padded": lambda x: F.pad(x, (0, -x.shape[0] % 8)),
    "padded_both": lambda x: F.pad(x[None].expand(2, -1).contiguous(), (x.shape[0] // 30, 1, 0, x.shape[0] % 2), value=1.5),
    "padded_view": lambda x: F.pad(x, (0, -x.shape[0] % 4)).view(-1, 4).sum(0),
}
OTHERS = {
    "branch": lambda x: x * 2 if int(x.shape[0] ** 0.5) > 4 else x * 3,
    "loop": lambda x: [x * i for i in range(int(x.shape[0] ** 0.5))],
    "position": lambda x: (x * 2, [3, 1, 4, 1, 5, 9, 2][int(x.shape[0] ** 0.5)]),
    "key": lambda x: {"x": x + 1, int(x.shape[0] ** 0.5): 1},
    "text": lambda x: (x + 1, float(f"{x.shape[0] ** 0.5:.3f}"), int(str(int(x.shape[0] ** 0.5)))),
    "tensor": lambda x: (x * int(x.shape[0] ** 0.5), x + round(math.sqrt(x.shape[0]))),
    "as_size": lambda x: x[: int(math.sqrt(x.shape[0])) ** 2].view(int(math.sqrt(x.shape[0])), -1),
    "below_zero": lambda x: (x * 2, (x.shape[0] - 20) ** 0.5 if x.shape[0] > 20 else x.shape[0] ** 2),
    "strided": lambda x: F.pad(x.view(1, -1).expand(3, -1).t(), (0, -x.shape[0] % 8)).stride(),
}
SIZES = (14, 15, 16, 25, 31, 40)


def outcomes(function, compiled):
    for size in SIZES:
        x = torch.arange(float(size))
        yield function(x), compiled(x)


@pytest.mark.parametrize("name", ONE_ENTRY)
def test_one_entry(name):
    compiled = thruway.compile(ONE_ENTRY[name], dynamic=True, fullgraph=True)
    before = thruway.metrics()["recompiles"]
    for expected, found in outcomes(ONE_ENTRY[name], compiled):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    assert thruway.metrics()["recompiles"] == before


@pytest.mark.parametrize("name", OTHERS)
def test_values_that_python_needs(name):
    for expected, found in outcomes(OTHERS[name], thruway.compile(OTHERS[name], dynamic=True)):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_a_root_that_raises():
    def rooted(x):
        try:
            return x * 2, math.sqrt(x.shape[0] - 15)
        except ValueError:
            return x * 3, None
    for expected, found in outcomes(rooted, thruway.compile(rooted, dynamic=True)):
        assert torch.equal(expected[0], found[0]) and expected[1] == found[1]


def test_tensors_of_numbers_that_change():
    def taken(x, i):
        return x[:, torch.tensor(i)], x + torch.tensor(data=i, dtype=torch.float32), torch.tensor(i) * x.shape[0], torch.tensor(i, dtype=torch.int32)
    compiled = thruway.compile(taken, fullgraph=True)
    x = torch.arange(30.0).reshape(3, 10)
    before = thruway.metrics()["recompiles"]
    for i in (4, 5, 6, 9, 2, 8):
        for found, expected in zip(compiled(x, i), taken(x, i), strict=True):
            assert torch.equal(found, expected) and found.dtype == expected.dtype and found.shape == expected.shape
    assert thruway.metrics()["recompiles"] == before + 1
    for wrong in (10, -11, 2**70):
        with pytest.raises((IndexError, ValueError, RuntimeError)) as expected:
            taken(x, wrong)
        with pytest.raises(expected.type) as found:
            compiled(x, wrong)
        assert str(found.value) == str(expected.value)


def test_tensor_of_a_size():
    def sized(x):
        return x / torch.tensor(x.shape[0]), torch.tensor(x.shape[0], dtype=torch.float64), x[torch.tensor(x.shape[0]) - 1]
    compiled = thruway.compile(sized, dynamic=True, fullgraph=True)
    before = thruway.metrics()["recompiles"]
    for size in SIZES:
        x = torch.arange(float(size))
        for found, expected in zip(compiled(x), sized(x), strict=True):
            assert torch.equal(found, expected) and found.dtype == expected.dtype
    assert thruway.metrics()["recompiles"] == before


@pytest.mark.parametrize("write", [
    lambda x, i, n: x.scatter(1, i[None], n), lambda x, i, n: x.scatter(1, i[None], n, reduce="add"), lambda x, i, n: x.index_fill(1, i, n),
    lambda x, i, n: x.index_add(1, i, x[:, :2], alpha=n), lambda x, i, n: x.clone().fill_(n), lambda x, i, n: torch.nn.functional.pad(x, (1, 0), value=n),
    lambda x, i, n: x.index_put((i,), torch.full((), n, dtype=x.dtype)), lambda x, i, n: torch.full((2, 2), n, dtype=x.dtype),
], ids=["scatter", "scatter add", "index_fill", "index_add", "fill_", "pad", "index_put", "full"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64])
def test_a_number_that_changes_is_written(write, dtype):
    compiled, index = thruway.compile(write), torch.tensor([0, 2])
    for n in (3, 4, -7, 1000):
        x = torch.arange(12).reshape(4, 3).to(dtype)
        assert torch.equal(compiled(x, index, n), write(x, index, n))
    assert not lazy.pipeline().journal.of_kind("bug")


def test_a_reshape_to_anothers_sizes_makes_theirs_equal():
    def attend(q, v):
        return torch.matmul(q, q.mT).softmax(-1) @ v[:, :, None].expand(-1, -1, 4, -1, -1).reshape(q.shape)

    compiled, before = thruway.compile(attend), thruway.metrics()["recompiles"]
    for length in SIZES:
        q, v = torch.randn(2, 8, length, 16), torch.randn(2, 2, length, 16)
        torch.testing.assert_close(compiled(q, v), attend(q, v))
    assert thruway.metrics()["recompiles"] == before + 1
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        compiled(q, v[:, :, 1:])
