"""Where torch is asked for deterministic results, a GPU's kernels write at computed places no more: atomics have no order."""

from __future__ import annotations

import pytest
import torch
from codegen.on_paper import sources_of

from thruway.core.errors import Unsupported


class Sums(torch.nn.Module):
    def forward(self, x, at):
        return torch.zeros(4, 8, dtype=x.dtype, device=x.device).index_add(0, at, x)


class Copies(torch.nn.Module):
    def forward(self, x, at):
        return torch.zeros(4, 8, dtype=x.dtype, device=x.device).index_copy(0, at, x)


class Reads(torch.nn.Module):
    def forward(self, x, at):
        return x[at].sum(0) + 1


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def arguments():
    return torch.randn(6, 8, dtype=torch.bfloat16), torch.tensor([0, 1, 1, 3, 0, 2])


@pytest.mark.parametrize("make", [Sums, Copies])
def test_writes_at_computed_places_are_left_to_torch(make, deterministic):
    with pytest.raises(Unsupported, match="no order on the GPU"):
        sources_of(make(), arguments())


def test_reads_at_computed_places_stay(deterministic):
    assert sources_of(Reads(), arguments())[1].kernels


def test_otherwise_sums_are_atomic():
    assert "tl.atomic_add" in sources_of(Sums(), arguments())[1].text
