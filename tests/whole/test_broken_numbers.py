"""Programs whose numbers once differed from eager's, or that went on where eager raises."""

from __future__ import annotations

import pytest
import torch
from whole.assert_same import assert_same

import thruway


@pytest.mark.parametrize("function", [
    lambda x: x.clamp(max=300), lambda x: torch.where(x > 5, 300, x), lambda x: x.masked_fill(x > 3, 300), lambda x: x.fill_(300),
    lambda x: torch.full_like(x, 300), lambda x: torch.full((2,), 300, dtype=torch.uint8), lambda x: torch.nn.functional.pad(x, (1, 1), value=300),
    lambda x: x.new_full((2,), -300), lambda x: torch.add(x, x, alpha=300), lambda x: x + 300, lambda x: x == 300, lambda x: 300 - x, lambda x: x // 300,
    lambda x: x.float() * 1e30, lambda x: x.half().masked_fill(x > 3, -1e9), lambda x: x.half() * 1e6, lambda x: x.half().clamp(max=1e6),
    lambda x: x.to(torch.bfloat16).fill_(1e39), lambda x: x.half().masked_fill(x > 3, float("-inf")),
])
def test_numbers_that_do_not_fit_the_dtype(function):
    assert_same(function, torch.tensor([0, 1, 5, 200], dtype=torch.uint8))


@pytest.mark.parametrize("function", [
    lambda x: torch.nn.functional.dropout2d(x[None, None], 0.5), lambda x: (x.new_empty(3).bernoulli_(0.5), x.normal_()),
    lambda x: (torch.empty(4).bernoulli_(), torch.nn.functional.feature_dropout(x[None], 0.5, True) if hasattr(torch.nn.functional, "feature_dropout") else 0),
])
def test_draws_whose_argument_is_the_default(function):
    assert_same(function, torch.ones(4, 4))


@pytest.mark.parametrize("function", [lambda x: x.mean().sin(), lambda x: x.sum().cos() + 1, lambda x: x.amax().sin() * x.amin().cos()])
def test_sines_of_what_a_whole_tensor_gave(function):
    for elements in (1000, 40_000, 200_000):
        x = torch.randn(elements)
        torch.testing.assert_close(thruway.compile(function)(x), function(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("x, source", [
    (torch.zeros(3, 3, dtype=torch.bool), torch.tensor([0, 2, 3])), (torch.ones(3, 3, dtype=torch.float16), torch.tensor([1.0, 2.5, -3.0])),
    (torch.ones(3, 3, dtype=torch.bfloat16), torch.tensor([1.0, 2.5, 1e-3], dtype=torch.float64)), (torch.ones(3, 3, dtype=torch.int32), torch.tensor([1.7, -2.5, 3.0])),
])
def test_what_is_scattered_takes_the_dtype_of_its_target(x, source):
    for function in (lambda x, s: torch.select_scatter(x, s, 0, 1).float(), lambda x, s: torch.slice_scatter(x, s[None], 0, 1, 2).float().sum(0),
                     lambda x, s: torch.select_scatter(x, s, 1, 2), lambda x, s: torch.slice_scatter(x, s[:, None], 1, 0, 1)):
        assert_same(function, x, source)


def test_a_slice_that_its_source_does_not_fit_raises():
    assert_same(lambda x: x.slice_scatter(x.narrow(-1, 0, 1), -1, 1, 2), torch.ones(2, 1))
    assert_same(lambda x: x.slice_scatter(x.narrow(-1, 0, 1), -1, 1, 2), torch.ones(2, 3))


@pytest.mark.parametrize("function", [
    lambda x: x.repeat(2, 1).sin(), lambda x: x.repeat(3, 1).exp().sum(1), lambda x: x.expand(4, 0).cos() * 2, lambda x: x.repeat(2, 1).amin() if x.numel() else x.repeat(2, 1),
    lambda x: torch.cat([x.repeat(2, 1).sqrt(), torch.ones(2, 3)], 1),
])
def test_nothing_is_read_of_empty_tensors(function):
    assert_same(function, torch.zeros(0))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 1, 5, 5)])
def test_triangles_in_place(shape):
    for function in (lambda x: x.tril_(), lambda x: x.triu_(1) + 1, lambda x: (x.tril_(-1), x * 2)[1], lambda x: (x + 1).tril_()):
        for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.bool):
            assert_same(function, torch.ones(shape).to(dtype))
