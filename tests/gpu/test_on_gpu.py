"""Compiled functions on a GPU against eager there: values, effects, kept outputs, replays at random, memory, refusals."""

from __future__ import annotations

import copy
import random
import statistics
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from runtime.gpu_functions import FUNCTIONS, MODES, assert_close, rows

import thruway
from thruway.pipeline import journal

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_what_eager_gives(name):
    function, make = FUNCTIONS[name]
    compiled = thruway.compile(function)
    thruway.reset()
    for _ in range(4):
        args = make()
        with torch.no_grad():
            assert_close(compiled(*args), function(*args))
    left = [f"{event.kind}: {event.detail} {event.reason}" for event in journal.events if event.kind in ("bug", "eager")]
    assert not left, left


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "column_sum", "large_mean_var", "cumsum", "gather", "matmul_chain"])
def test_autotuned_functions_give_what_eager_gives(name, mode):
    function, make = FUNCTIONS[name]
    compiled = thruway.compile(function, mode=mode)
    with torch.no_grad():
        for _ in range(4):
            args = make()
            assert_close(compiled(*args), function(*args))
    left = [f"{event.kind}: {event.detail} {event.reason}" for event in journal.events if event.kind in ("bug", "eager")]
    assert not left, left


@pytest.mark.parametrize("mode", MODES)
def test_outputs_that_are_kept_are_never_overwritten(mode):
    compiled = thruway.compile(lambda x: ((x @ x).relu(), x.sum(-1).exp(), x * 2), mode=mode)
    xs = [torch.full((32, 32), 0.01 * k, device="cuda") for k in range(8)]
    with torch.no_grad():
        kept = [compiled(x) for x in xs]
    for x, outs in zip(xs, kept):
        assert_close(outs, ((x @ x).relu(), x.sum(-1).exp(), x * 2))


@pytest.mark.parametrize("mode", MODES)
def test_written_inputs_are_written_once_per_call(mode):
    def step(state, x):
        state.add_(x.sum(-1, keepdim=True))
        state.mul_(0.5)
        return (state @ state.T).softmax(-1) @ x

    compiled = thruway.compile(step, mode=mode)
    ours, theirs = rows(16, 8), None
    theirs = ours.clone()
    with torch.no_grad():
        for k in range(6):
            x = rows(16, 8) + k
            version = ours._version
            assert_close(compiled(ours, x), step(theirs, x))
            assert_close(ours, theirs)
            assert ours._version > version


def test_random_numbers_are_eagers():
    def draw(x):
        return F.dropout(x @ x, 0.5, True) + torch.rand_like(x)

    compiled, x = thruway.compile(draw, mode="reduce-overhead"), rows(64, 64)
    with torch.no_grad():
        torch.manual_seed(3)
        want = [draw(x) for _ in range(6)]
        torch.manual_seed(3)
        got = [compiled(x) for _ in range(6)]
    for a, b in zip(got, want):
        assert_close(a, b)


def test_a_thousand_random_calls_equal_eager_and_memory_stays_flat():
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 32)).cuda().eval()
    compiled, dice, kept = thruway.compile(net, mode="reduce-overhead"), random.Random(0), []
    held = []
    with torch.no_grad():
        for turn in range(1000):
            x = rows(dice.choice((1, 3, 8, 16)), 32)
            out = compiled(x)
            assert torch.allclose(out, net(x), rtol=1e-4, atol=1e-5), turn
            if dice.random() < 0.2:
                kept.append((out, out.clone()))
            if turn == 250 or turn == 999:
                held.append(torch.cuda.memory_allocated() - sum(a.numel() * 8 for a, _ in kept))
            if len(kept) > 20:
                kept.pop(0)
    assert all(torch.equal(a, b) for a, b in kept)
    assert held[1] - held[0] < 1 << 20, held


def test_streams_share_recordings_safely():
    compiled = thruway.compile(lambda x: (x @ x).softmax(-1) @ x, mode="reduce-overhead")
    x = rows(256, 256)
    want = (x @ x).softmax(-1) @ x
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    with torch.no_grad():
        for _ in range(20):
            for stream in streams:
                with torch.cuda.stream(stream):
                    out = compiled(x)
                stream.synchronize()
                assert torch.allclose(out, want, rtol=1e-4, atol=1e-4)


def test_a_changed_weight_is_folded_again():
    net = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU()).cuda().bfloat16().eval()
    compiled, x = thruway.compile(net), rows(2, 8, 12, 12, dtype=torch.bfloat16)
    with torch.no_grad():
        for k in range(5):
            assert (compiled(x).float() - net(x).float()).abs().max() < 0.1
            net[0].weight.mul_(1.1)
            net[1].running_mean.add_(0.1)


def test_folded_weights_are_waited_for_on_another_stream():
    """The stream that folds them is kept busy, so that the other one would read them too early."""
    net = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU()).cuda().bfloat16().eval()
    compiled, x, streams = thruway.compile(net), rows(2, 8, 12, 12, dtype=torch.bfloat16), [torch.cuda.Stream() for _ in range(2)]
    with torch.no_grad():
        want, found = net(x).float(), []
        torch.cuda.synchronize()
        for stream in streams:
            with torch.cuda.stream(stream):
                if stream is streams[0]:
                    torch.cuda._sleep(1_000_000_000)
                found.append(compiled(x))
        torch.cuda.synchronize()
    assert all((each.float() - want).abs().max() < 0.1 for each in found)


def test_an_index_out_of_range_is_reported_at_a_later_call():
    compiled = thruway.compile(lambda w, i: w[i] * 2)
    w, good, bad = rows(5, 3), torch.tensor([1, -1], device="cuda"), torch.tensor([1, 7], device="cuda")
    with torch.no_grad():
        assert_close(compiled(w, good), w[good] * 2)
        compiled(w, bad)
        torch.cuda.synchronize()
        with pytest.raises(IndexError, match="out of range"):
            compiled(w, good)
        assert_close(compiled(w, good), w[good] * 2)


def test_an_index_out_of_range_writes_nothing():
    """The cache lies inside a larger tensor, so that a write outside of it would show."""
    memory = torch.zeros(3, 8, 4, device="cuda")

    def put(cache, at, x):
        cache.index_copy_(0, at, x)
        return cache.sum()

    compiled = thruway.compile(put)
    with torch.no_grad():
        for place in (2, 7, 12, -3):
            try:
                compiled(memory[1], torch.tensor([place], device="cuda"), torch.ones(1, 4, device="cuda"))
            except IndexError:
                pass
        torch.cuda.synchronize()
    assert memory[0].sum() == 0 and memory[2].sum() == 0 and memory[1].sum() == 8


def test_cpu_scalars_are_read_anew_in_every_call():
    compiled = thruway.compile(lambda x, s: (x * s).softmax(-1) @ x + s, mode="reduce-overhead")
    x = rows(8, 8)
    with torch.no_grad():
        for k in range(5):
            s = torch.tensor(float(k))
            assert_close(compiled(x, s), (x * s).softmax(-1) @ x + s)


@pytest.mark.parametrize("mode", MODES)
def test_threads_that_never_used_the_gpu(mode):
    single, several = thruway.compile(lambda x: x.sin() + 1, mode=mode), thruway.compile(lambda x: (x @ x).softmax(-1) @ x, mode=mode)
    x, found = rows(64, 64), []

    def work():
        with torch.no_grad():
            found.extend((single(x), several(x)) for _ in range(12))
            torch.cuda.current_stream().synchronize()

    with torch.no_grad():
        want = x.sin() + 1, (x @ x).softmax(-1) @ x
        single(x), several(x)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(found) == 48
    for got in found:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_a_call_without_memory_is_answered_and_leaves_the_process_usable():
    def work(x):
        return ((x @ x).relu() @ x).softmax(-1)

    compiled, x = thruway.compile(work, mode="reduce-overhead"), rows(2048, 2048)
    with torch.no_grad():
        want = work(x)
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (40 << 20)) / torch.cuda.get_device_properties(0).total_memory)
        try:
            compiled(x)
        except torch.OutOfMemoryError:           # eager had none either
            pass
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        for _ in range(6):
            torch.testing.assert_close(compiled(x), want, rtol=1e-3, atol=1e-4)
    thruway.reset()


def test_what_is_written_before_memory_runs_out_is_written_once():
    """Whether the call then fails, as eager's does, or finds memory after all."""
    def step(state, x):
        state.add_(1)
        return (x @ x).relu() @ x

    compiled, state, x = thruway.compile(step), torch.zeros(64, device="cuda"), rows(2048, 2048)
    with torch.no_grad():
        for k in range(5):
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (4 << 20)) / torch.cuda.get_device_properties(0).total_memory)
            try:
                compiled(state, x)
            except torch.OutOfMemoryError:
                pass
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
            assert torch.equal(state, torch.full_like(state, k + 1))
    thruway.reset()


def test_recording_without_memory_leaves_the_step_as_it_is():
    compiled, x = thruway.compile(lambda x: ((x @ x).relu() @ x).softmax(-1) * 2, mode="reduce-overhead"), rows(2048, 2048)
    with torch.no_grad():
        want = compiled(x)
        compiled(x)
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (40 << 20)) / torch.cuda.get_device_properties(0).total_memory)
        try:
            for _ in range(3):
                compiled(x)
        except torch.OutOfMemoryError:
            pass
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        torch.testing.assert_close(compiled(x), want, rtol=1e-3, atol=1e-4)
        assert torch.rand(3, device="cuda").numel() == 3
    thruway.reset()


def rms(x: torch.Tensor) -> float:
    return x.double().pow(2).mean().sqrt().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "mean_var", "matmul_chain", "encoder", "convolutions"])
def test_errors_over_eight_seeds_stay_by_eagers(name, dtype):
    ratios, tops = [], []
    for seed in range(8):
        torch.manual_seed(seed)
        function, args = _work(name, dtype)
        wide, wide_args = (copy.deepcopy(function).double() if isinstance(function, torch.nn.Module) else function), [a.double() for a in args]
        with torch.no_grad():
            truth, eager, ours = wide(*wide_args), function(*args), thruway.compile(function)(*args)
        ratios.append(rms(ours - truth) / max(rms(eager - truth), 1e-12))
        tops.append((ours - truth).abs().max().item() / max((eager - truth).abs().max().item(), 1e-12))
        thruway.reset()
    assert statistics.median(ratios) <= 1.35 and statistics.median(tops) <= 1.5, (ratios, tops)


def _work(name: str, dtype: torch.dtype) -> tuple[Callable, list[torch.Tensor]]:
    if name == "encoder":
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        return torch.nn.TransformerEncoder(layer, 2).to("cuda", dtype).eval(), [rows(2, 32, 64, dtype=dtype)]
    if name == "convolutions":
        net = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 1))
        return net.to("cuda", dtype).eval(), [rows(2, 8, 20, 20, dtype=dtype)]
    function, make = FUNCTIONS[name]
    return function, [a.to(dtype) for a in make()]
