"""What `thruway doctor` says of a GPU without Triton, and of one with it."""

from __future__ import annotations

import pytest
import torch

from thruway.command import doctor


@pytest.mark.parametrize("has_triton", [True, False])
def test_triton_is_told_where_there_is_a_gpu(monkeypatch, has_triton):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU of paper")
    monkeypatch.setattr(doctor, "has_triton", lambda: has_triton)
    found = {name: (text, is_fine) for name, text, is_fine in doctor.examine()}
    assert found["GPU"] == ("a GPU of paper", True)
    assert found["Triton"][1] == has_triton and ("pip install triton" in found["Triton"][0]) != has_triton


def test_without_a_gpu_nothing_is_said_of_triton(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "Triton" not in {name for name, *_ in doctor.examine()}
