"""Fixtures of this room's tests."""

from __future__ import annotations

import pytest
import torch

import thruway
from thruway.pipeline import journal


@pytest.fixture
def fresh():
    thruway.reset()
    torch.manual_seed(0)
    yield
    assert not journal.of_kind("bug"), journal.of_kind("bug")
    thruway.reset()
