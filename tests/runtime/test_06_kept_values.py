"""Values kept between calls on a GPU, over tensors of the CPU: made again exactly when a weight changed."""

from __future__ import annotations

from types import SimpleNamespace

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


class PaperStream:
    """`waits`: for which events, in order."""

    def __init__(self):
        self.waits = []

    def wait_event(self, event):
        self.waits.append(event)


class PaperEvent:
    is_done = False

    def record(self, stream):
        self.stream = stream

    def query(self):
        return self.is_done


def test_a_stream_waits_for_values_that_another_one_makes(monkeypatch):
    first, second = PaperStream(), PaperStream()
    current, capturing = [first], [False]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[0])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    monkeypatch.setattr(torch.cuda, "Event", PaperEvent)
    monkeypatch.setattr(derived, "native_core", lambda: None)
    weight = torch.ones(4)
    values = KeptValues(lambda inputs: (SimpleNamespace(is_cuda=True, device="cuda:0"),), (0,), lambda text: None)
    values((weight,)), values((weight,))
    assert not first.waits
    current[0] = second
    values((weight,))
    made = values.unfinished.done
    assert second.waits == [made] and made.stream is first
    capturing[0], made.is_done = True, True
    values((weight,))
    assert values.unfinished is not None and second.waits == [made]
    capturing[0] = False
    values((weight,)), values((weight,))
    assert values.unfinished is None and second.waits == [made]
