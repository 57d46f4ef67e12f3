"""When a step is recorded, recorded again or left as it is: decided without a GPU over a program that only counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from thruway.core.launch import Input, Kernel, TensorSpec
from thruway.runtime.cuda import cudagraph
from thruway.runtime.cuda.cudagraph import RECORDINGS, Replay, predicted_gain

SPEC = TensorSpec("float32", (64,), (1,), "cuda:0")


class CountingProgram:
    """Two inputs, the second a weight; `written` names what each run writes."""

    def __init__(self, written: tuple[int, ...] = (), launches: int = 10):
        self.kernel_launches, self.written, self.runs, self.draws = launches, written, 0, False
        step = Kernel("k", (0, 1))
        self.launch = SimpleNamespace(inputs=(Input(0, SPEC), Input(1, SPEC, True)), steps=(step,), outputs=(2,))
        self.slots = SimpleNamespace(root=(0, 1, 2), kind=("input", "input", "fresh"))

    def __call__(self, inputs):
        self.runs += 1
        return (torch.zeros(64),)


@pytest.fixture
def records(monkeypatch):
    made = []

    class Recording:
        def __init__(self, program, inputs, moving):
            made.append(tuple(moving))

        def replay(self, inputs):
            return ()

    monkeypatch.setattr(cudagraph, "_Recording", Recording)
    monkeypatch.setattr(cudagraph, "refusal", lambda program, inputs: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return made


def blocks(count: int) -> list[torch.Tensor]:
    """Tensors at addresses that are all different and aligned."""
    return list(torch.zeros(count, 64).unbind(0))


def test_inputs_that_stay_are_read_in_place(records):
    notes, (x, w) = [], blocks(2)
    replay = Replay(CountingProgram(), 2, lambda *note: notes.append(note))
    for _ in range(6):
        replay((x, w))
    assert records == [()] and replay.program.runs == 2 and [kind for kind, _ in notes] == ["predicted"]


def test_an_input_that_moves_is_copied_from_then_on(records):
    x, other, third, w = blocks(4)
    replay = Replay(CountingProgram(), 2, lambda *note: None)
    for each in (x, x, x, other, third, x):
        replay((each, w))
    assert records == [(), (0,)]


def test_weights_that_keep_moving_end_recording(records):
    notes, weights = [], blocks(RECORDINGS + 6)
    replay = Replay(CountingProgram(), 2, lambda *note: notes.append(note))
    for w in weights[1:]:
        replay((weights[0], w))
    assert len(records) == RECORDINGS + 1 and any("moved" in text for kind, text in notes if kind == "cuda_graph_refused")


def test_written_inputs_are_never_copied(records):
    x, other, w = blocks(3)
    replay = Replay(CountingProgram(written=(0,)), 2, lambda *note: None)
    for each in (x, other, x, other, x):
        replay((each, w))
    assert records == [(), ()]


def test_copies_that_cost_more_than_launches_are_a_reason(records):
    notes, (x, w) = [], blocks(2)
    replay = Replay(CountingProgram(launches=2), 2, lambda *note: notes.append(note))
    for _ in range(4):
        replay((x, w))
    assert not records and notes[0][0] == "cuda_graph_refused"


def test_a_recording_that_fails_leaves_the_step_to_itself(records, monkeypatch):
    def fail(program, inputs, moving):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(cudagraph, "_Recording", fail)
    notes, (x, w) = [], blocks(2)
    replay = Replay(CountingProgram(), 2, lambda *note: notes.append(note))
    for _ in range(4):
        assert len(replay((x, w))) == 1
    assert replay.program.runs == 4 and "OutOfMemoryError" in notes[-1][1]


def test_a_gain_counts_launches_against_copies():
    assert predicted_gain(100, 0, 0) > predicted_gain(100, 0, 1 << 20) > predicted_gain(100, 1 << 20, 1 << 20)
    assert predicted_gain(2, 1 << 30, 1 << 30) < 0
