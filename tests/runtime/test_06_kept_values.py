"""Values kept between calls on a GPU, over tensors of the CPU: made again exactly when a weight changed."""

from __future__ import annotations

import pytest
import torch

from thruway.runtime.cuda import derived
from thruway.runtime.cuda.derived import KeptValues
from thruway.runtime.load import native_core


@pytest.fixture(params=["python", "native"])
def kept(request, monkeypatch):
    if request.param == "native" and native_core() is None:
        pytest.skip("the native core was not built")
    if request.param == "python":
        monkeypatch.setattr(derived, "native_core", lambda: None)
    made = []

    def make(inputs):
        made.append(1)
        return (inputs[1] * 2,)

    values = KeptValues(make, (1,), lambda text: None)
    values.made = made
    return values


def test_nothing_is_made_twice_for_the_same_weight(kept):
    x, w = torch.randn(2, 4)
    assert all(torch.equal(kept((x + k, w))[0], w * 2) for k in range(3)) and len(kept.made) == 1


def test_a_write_another_tensor_and_new_memory_are_seen(kept):
    x, w = torch.zeros(4), torch.ones(4)
    first = kept((x, w))[0]
    w.add_(1)
    assert torch.equal(kept((x, w))[0], w * 2) and kept((x, w))[0] is first
    other = torch.full((4,), 7.0)
    assert torch.equal(kept((x, other))[0], other * 2)
    other.data = torch.full((4,), 9.0)
    assert torch.equal(kept((x, other))[0], torch.full((4,), 18.0)) and len(kept.made) == 4


def test_inference_tensors_and_optimizer_steps(kept):
    with torch.inference_mode():
        w = torch.ones(4)
    assert torch.equal(kept((w, w))[0], torch.full((4,), 2.0))
    kept((w, w))
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    torch.optim.SGD([weight], lr=0.1).step()
    kept((w, w))
    assert len(kept.made) == 2
