"""What a step on a GPU does where memory is short, two threads launch at once, or sizes grow past 32 bits: over a GPU of paper, on tensors of the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from types import SimpleNamespace

import pytest
import torch
from runtime.programs import launch_list, vector

from thruway.core.errors import CompilerBug
from thruway.core.launch import FAR, Call, GpuKernel, SlotRef
from thruway.core.sizes import symbol
from thruway.native import RegionFailed
from thruway.runtime.cuda import cudagraph, launch, load
from thruway.runtime.cuda.driver import Driver, Launch
from thruway.runtime.cuda.load import GpuRunnable
from thruway.runtime.cuda.sized import SizedKernels

DEVICE = torch.device("cuda", 0)
ADD = Call("aten::add_.Tensor", (SlotRef(0), 1), writes_input=True)
RELU = Call("aten::relu", (SlotRef(0),), outs=(1,))


@pytest.fixture
def on_paper(monkeypatch):
    """torch's words for devices, over the CPU."""
    monkeypatch.setattr(launch, "current_stream", lambda device: 0)
    monkeypatch.setattr(load, "driver", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "_exchange_device", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "_maybe_exchange_device", lambda device: 0)


def runnable(steps, short_of_memory: int, notes: list):
    """The steps, whose relu finds no memory so many times."""
    left = [torch.OutOfMemoryError("CUDA out of memory")] * short_of_memory

    def relu(x):
        if left:
            raise left.pop()
        return x.relu()

    made = GpuRunnable(launch_list((vector(4),), steps, (1,), 2), SizedKernels({}), DEVICE, False, None, lambda *note: notes.append(note))
    made.operators = {"aten::add_.Tensor": lambda x, n: x.add_(n), "aten::relu": relu}
    return made


def test_a_call_without_memory_is_tried_once_more_before_it_has_written(on_paper):
    notes, x = [], torch.zeros(4)
    (out,) = runnable((RELU, ADD), 1, notes)(x)
    assert torch.equal(out, torch.zeros(4)) and torch.equal(x, torch.ones(4)) and notes[0][0] == "out_of_memory"
    with pytest.raises(RegionFailed):
        runnable((RELU, ADD), 2, notes)(x)
    assert torch.equal(x, torch.ones(4))


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_written_is_never_written_again(on_paper, times):
    """Neither by a second try nor by eager behind it: the error is the user's."""
    notes, x = [], torch.zeros(4)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        runnable((ADD, RELU), times, notes)(x)
    assert torch.equal(x, torch.ones(4)) and not notes


def test_the_drivers_want_of_memory_is_torchs(monkeypatch):
    driver = Driver.__new__(Driver)
    driver.cuda = SimpleNamespace(cuGetErrorString=lambda code, text: 0)
    with pytest.raises(torch.OutOfMemoryError, match="loading k"):
        driver.check(2, "loading k")
    with pytest.raises(RuntimeError) as other:
        driver.check(700, "launching k")
    assert not isinstance(other.value, torch.OutOfMemoryError)


def test_two_threads_that_launch_one_kernel_do_not_mix_their_addresses():
    """The second fills in its addresses only when the driver has read the first's."""
    seen, inside, goes_on = [], threading.Event(), threading.Event()

    def launch_kernel(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
        if stream == 1:
            inside.set()
            goes_on.wait(0.2)
        seen.append((stream, ctypes.c_void_p.from_address(arguments[0]).value))
        return 0

    kernel = GpuKernel("k", b"", "k", 4, 4, 1, 0, False, False, 0)
    one = Launch(SimpleNamespace(launch_kernel=launch_kernel, check=None, attach=None), kernel, None, (), 0, 1)
    threads = [threading.Thread(target=one.run, args=([100 + stream], stream)) for stream in (1, 2)]
    threads[0].start()
    assert inside.wait(5)
    threads[1].start()
    for each in threads:
        each.join()
    assert sorted(seen) == [(1, 101), (2, 102)]


def test_kernels_with_wide_indices_are_made_once_and_only_where_sizes_reach_far():
    n, made = symbol("n"), []

    def widen():
        made.append(1)
        return [SimpleNamespace(symbol="k", wide=True)]

    kernels = SizedKernels({"k": "narrow"}, (n * 3 - 2,), widen)
    assert kernels({"n": FAR // 3}) == {"k": "narrow"} and not made
    assert kernels({"n": FAR})["k"].wide and kernels({"n": FAR + 5})["k"].wide and len(made) == 1
    assert kernels({"n": 7}) == {"k": "narrow"}


def test_wide_kernels_that_cannot_be_made_leave_the_call_to_eager():
    def widen():
        raise CompilerBug("artifact", "Triton refused")

    with pytest.raises(RegionFailed):
        SizedKernels({}, (symbol("n"),), widen)({"n": FAR})


class PaperStream:
    def __init__(self, number: int):
        self.cuda_stream, self.waits = number, []

    def wait_event(self, event):
        self.waits.append(event)


class PaperPool(cudagraph._Pool):
    """Records nothing: a replay runs the step."""

    def __init__(self):
        self.device, self.last_stream, self.lock = DEVICE, None, threading.Lock()
        self.done = SimpleNamespace(record=lambda stream: None)

    def record(self, run, draws=False):
        return SimpleNamespace(replay=run), run()


@pytest.fixture
def streams(monkeypatch):
    """The current stream is the one put in first place."""
    made = [PaperStream(1)]
    monkeypatch.setitem(cudagraph._pools, 0, PaperPool())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: made[0])
    return made


def recording(monkeypatch, x):
    held, program = [], SimpleNamespace(device=DEVICE, draws=False, written=[], launch=SimpleNamespace(outputs=(1,)))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: held.append((self.data_ptr(), stream)))

    class Program(SimpleNamespace):
        def __call__(self, inputs):
            return (inputs[0] * 2,)

    return cudagraph._Recording(Program(**vars(program)), (x,), (0,)), held


def test_the_first_replay_of_another_stream_waits_for_the_copy_made_while_recording(streams, monkeypatch):
    made, held = recording(monkeypatch, torch.ones(4))
    other = streams[0] = PaperStream(2)
    made.replay((torch.ones(4),))
    assert other.waits == [cudagraph._pools[0].done] and held == [(made.static[0].data_ptr(), other)]


def test_replays_of_one_stream_wait_for_nothing(streams, monkeypatch):
    made, held = recording(monkeypatch, torch.ones(4))
    for k in range(3):
        made.replay((torch.full((4,), float(k)),))
    assert not streams[0].waits and not held
