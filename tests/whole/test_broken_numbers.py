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
