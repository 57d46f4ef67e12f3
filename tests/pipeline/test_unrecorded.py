"""Where a GPU would not replay a step as one CUDA graph because of what the program is, a reason says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import thruway
from thruway import graph_compiler, pipeline
from thruway.core.journal import Journal
from thruway.graph_compiler import note_unrecorded
from thruway.shapes.meta import TensorMeta

HERE = TensorMeta((4,), (1,), "float32")


@pytest.fixture
def told(monkeypatch):
    """The reasons that would be told of inputs on a GPU."""
    thruway.reset()
    heard = []
    for module in (pipeline, graph_compiler):
        monkeypatch.setattr(module, "note_unrecorded", lambda journal, name, metas, why: heard.append(why))
    return heard


def test_only_a_gpu_has_steps_to_record():
    journal = Journal()
    note_unrecorded(journal, "f", [HERE, 3], "why")
    assert not journal.events
    note_unrecorded(journal, "f", [3, replace(HERE, device="cuda:1")], "why")
    (event,) = journal.events
    assert event.kind == "cuda_graph_refused" and (event.reason.code, event.reason.what) == ("TW712", "why")


def test_training_steps_say_why(told):
    net = torch.nn.Linear(4, 4)
    compiled = thruway.compile(net)
    with torch.no_grad():
        compiled(torch.ones(2, 4))
    assert not told
    compiled(torch.ones(2, 4)).sum().backward()
    assert len(told) == 1 and "gradients are wanted" in told[0] and net.weight.grad is not None


def test_sizes_that_only_a_run_knows_say_why(told):
    with torch.no_grad():
        thruway.compile(lambda x: x[x > 0].exp().sum() + x.sum())(torch.randn(50))
    assert told and all("only a run knows" in each for each in told)
    told.clear()
    with torch.no_grad():
        thruway.compile(lambda x: x.exp().sum())(torch.randn(50))
    assert not told
