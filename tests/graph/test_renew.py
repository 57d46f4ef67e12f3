"""Results that a pass turns into views and the graph writes: reads stand behind the write."""

from __future__ import annotations

import pytest
import torch

from whole.assert_same import assert_same


def added_to_a_part(q, k, r):
    scores = torch.matmul(q, k.transpose(2, 3))
    scores[:, :, 1:, 1:] += r
    return scores.softmax(-1)


def written_product(q, k, r):
    scores = (q @ k.mT).reshape(2, 4, 7)
    scores[:, 0] = 0
    return scores.exp(), scores


def twice(q, k, r):
    scores = q @ k.mT
    scores[..., 0] *= 2
    scores[:, 1] += scores[:, 0]
    return scores.sum(-1), scores * 1


@pytest.mark.parametrize("check", [1, 2])
@pytest.mark.parametrize("function", [added_to_a_part, written_product, twice])
def test_writes_to_results_that_are_views(function, check):
    torch.manual_seed(0)
    assert_same(function, torch.randn(1, 2, 4, 5), torch.randn(1, 2, 7, 5), torch.randn(1, 2, 3, 6), no_grad=True, graphs=1,
                options={"measure": False, "check": check})
