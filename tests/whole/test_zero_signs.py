"""Signs of zero where eager's vector loops and its loops over single elements disagree: maxima, bounds that are tensors, softshrink."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway

pytestmark = pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"}, reason="eager's kernels are others here")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def zeros(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """0, -0, and now and then another number."""
    choice = torch.randint(0, 5, sizes, generator=torch.Generator().manual_seed(seed))
    return torch.tensor([0.0, -0.0, 0.0, -0.0, -0.25])[choice].to(dtype)


def assert_signs(function, *arguments, **options) -> None:
    expected, found = function(*arguments), thruway.compile(function, fullgraph=True, **options)(*arguments)
    for k, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert torch.equal(one, other) and torch.equal(one.signbit(), other.signbit()), f"result {k} of {function.__name__}"


def extremes(x, y):
    return (torch.maximum(x, y), torch.minimum(x, y), torch.maximum(y, x), torch.fmax(x, y), torch.fmin(x, y), x.clamp(min=y), x.clamp(max=y),
            x.clamp(y, y + 1), x.clamp(y - 1, y), torch.max(x, y), torch.min(y, x))


def of_one(x):
    return (x.clamp(min=0.0), x.clamp(max=-0.0), x.clamp(-0.0, 1.0), F.relu(x), F.relu6(x), F.softshrink(x), F.softshrink(x, 0.0), F.hardshrink(x),
            F.hardtanh(x, 0.0, 1.0), torch.clamp_min(x, 0.0), torch.maximum(x, torch.zeros((), dtype=x.dtype)), F.threshold(x, 0.0, 0.0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 7, 16, 39, 200])
def test_ends_of_rows(dtype, count):
    assert_signs(extremes, zeros(count, dtype=dtype), zeros(count, dtype=dtype, seed=1))
    assert_signs(of_one, zeros(count, dtype=dtype))


LAYOUTS = {
    "two_dimensions": lambda: (zeros(5, 7), zeros(5, 7, seed=1)),
    "repeated_row": lambda: (zeros(3, 39), zeros(39, seed=1)),
    "repeated_column": lambda: (zeros(3, 39), zeros(3, 1, seed=1)),
    "column_and_row": lambda: (zeros(37, 1), zeros(1, 39, seed=1)),
    "number": lambda: (zeros(3, 13), zeros(seed=3)),
    "both_transposed": lambda: (zeros(9, 23).t(), zeros(9, 23, seed=1).t()),
    "one_transposed": lambda: (zeros(23, 23).t(), zeros(23, 23, seed=1)),
    "every_second": lambda: (zeros(4, 78)[:, ::2], zeros(4, 78, seed=1)[:, ::2]),
    "rows_apart": lambda: (zeros(4, 45)[:, :39], zeros(4, 45, seed=1)[:, :39]),
    "one_apart": lambda: (zeros(4, 45)[:, :39], zeros(4, 39, seed=1)),
    "channels_last": lambda: (zeros(2, 3, 5, 5).to(memory_format=torch.channels_last), zeros(2, 3, 5, 5, seed=1).to(memory_format=torch.channels_last)),
    "mixed_formats": lambda: (zeros(2, 3, 5, 5).to(memory_format=torch.channels_last), zeros(2, 3, 5, 5, seed=1)),
    "flipped_storage": lambda: (zeros(6, 11).permute(1, 0), zeros(11, 6, seed=1)),
    "three_dimensions": lambda: (zeros(3, 4, 10), zeros(4, 1, seed=1)),
    "middle_apart": lambda: (zeros(3, 8, 10)[:, :5], zeros(3, 5, 10, seed=1)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    assert_signs(extremes, *LAYOUTS[layout]())
    assert_signs(of_one, LAYOUTS[layout]()[0])


def between(x, y):
    z = torch.ceil(x)
    return torch.maximum(z, -z) + 0.0, 1.0 / torch.maximum(z * 1.0, -z), torch.minimum(y, z).sum(-1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_fused_with_others(dynamic):
    assert_signs(between, zeros(7, 6), zeros(7, 6, seed=1), dynamic=dynamic)


def test_symbolic_sizes():
    compiled = thruway.compile(extremes, dynamic=True, fullgraph=True)
    for count in (5, 16, 21, 40, 100):
        x, y = zeros(3, count), zeros(3, count, seed=1)
        for one, other in zip(extremes(x, y), compiled(x, y), strict=True):
            assert torch.equal(one.signbit(), other.signbit())
