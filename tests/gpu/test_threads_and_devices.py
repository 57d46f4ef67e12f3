"""Compiled functions on GPUs beside other threads, on several devices, under attention masks, and after failures."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from runtime.gpu_functions import FUNCTIONS, MODES, assert_close, rows

import thruway
from thruway.native import RegionFailed
from thruway.pipeline import journal
from thruway.runtime.cuda.cudagraph import ONE_LAUNCH, OTHERS_MAY_DRAW, Replay
from thruway.runtime.cuda.launch import CudaProgram
from thruway.runtime.cuda.recording import is_alone

pytestmark = pytest.mark.gpu


def test_other_threads_may_wait_and_draw_while_a_step_is_recorded():
    """What they do is neither refused nor does it spoil a recording."""
    x, errors, done = rows(64, 64), [], threading.Event()

    def disturb(what):
        try:
            while not done.is_set():
                what()
        except Exception as error:
            errors.append(error)

    disturbers = (torch.cuda.synchronize, lambda: torch.rand(3, device="cuda"), lambda: (x.sum() + 1).item(), lambda: torch.empty(1 << 22, device="cuda"))
    threads = [threading.Thread(target=disturb, args=(what,)) for what in disturbers]
    for each in threads:
        each.start()
    try:
        with torch.no_grad():
            for k in range(12):
                compiled = thruway.compile(lambda x, k=k: ((x @ x).softmax(-1) @ x).relu() + k, mode="reduce-overhead")
                for _ in range(5):
                    torch.testing.assert_close(compiled(x), ((x @ x).softmax(-1) @ x).relu() + k, rtol=1e-4, atol=1e-4)
    finally:
        done.set()
        for each in threads:
            each.join()
    assert not errors, errors


def test_a_step_that_draws_is_recorded_when_no_other_thread_may_draw():
    x, errors, done = rows(64, 64), [], threading.Event()
    compiled = thruway.compile(lambda x: (F.dropout(x @ x, 0.5, True) @ x).relu() @ x, mode="reduce-overhead")

    def draw():
        try:
            while not done.is_set():
                torch.rand(3, device="cuda")
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        with torch.no_grad():
            for _ in range(300):
                compiled(x)
    finally:
        done.set()
        thread.join()
    assert not errors, errors
    notes = [event.detail for event in journal.of_kind("cuda_graph_refused")]
    assert notes == [OTHERS_MAY_DRAW]
    with torch.no_grad():
        for seed in range(6):
            torch.manual_seed(seed)
            got = compiled(x)
            torch.manual_seed(seed)
            assert_close(got, (F.dropout(x @ x, 0.5, True) @ x).relu() @ x)
    assert [event.detail for event in journal.of_kind("cuda_graph_refused")] == notes
    assert recordings() > 0 or not is_alone()                # the test runner may have threads of its own


def recordings() -> int:
    """Of all steps that are alive."""
    return sum(len(each.table.recordings) for each in gc.get_objects() if isinstance(each, Replay))


def test_a_thread_that_is_new_to_the_libraries_answers_before_it_records():
    compiled, x, found = thruway.compile(lambda x: (x @ x).softmax(-1) @ x, mode="reduce-overhead"), rows(64, 64), []
    with torch.no_grad():
        want = (x @ x).softmax(-1) @ x
        compiled(x), compiled(x)

    def work():
        with torch.no_grad():
            found.extend(compiled(x) for _ in range(4))
            torch.cuda.current_stream().synchronize()

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(found) == 12
    for got in found:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_random_state_goes_back_where_a_step_fails(monkeypatch):
    """The answer is eager's, from the numbers that eager would have drawn."""
    def work(x):
        return (F.dropout(x, 0.5, True) @ x).relu()

    compiled, x = thruway.compile(work, mode="reduce-overhead"), rows(32, 32)
    with torch.no_grad():
        compiled(x)

        def fail(self, frame, inputs, moved):
            torch.rand(7, device="cuda")
            raise RegionFailed("no memory")

        torch.manual_seed(5)
        want = work(x)
        torch.manual_seed(5)
        with monkeypatch.context() as changed:
            changed.setattr(CudaProgram, "_run", fail)
            assert_close(compiled(x), want)


@pytest.mark.parametrize("name", ["pointwise", "softmax", "layer_norm", "matmul_chain", "embedding", "low_precision"])
@pytest.mark.parametrize("mode", MODES)
def test_tensors_on_another_gpu_than_the_current(name, mode):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    function, make = FUNCTIONS[name]
    compiled = thruway.compile(function, mode=mode)
    with torch.no_grad():
        for device in ("cuda:1", "cuda:0", "cuda:1"):
            for _ in range(5):
                args = [each.to(device) for each in make()]
                assert_close(compiled(*args), function(*args))
        assert torch.cuda.current_device() == 0
    left = [event.detail for event in journal.events if event.kind in ("bug", "eager")]
    assert not left, left


@pytest.mark.parametrize("current", [0, 1])
def test_autotuning_measures_on_the_gpu_of_the_graph(current):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")

    def work(x, w):
        return F.silu(x @ w).softmax(-1)

    with torch.cuda.device(current), torch.no_grad():
        x, w = rows(64, 512 + 16 * current, dtype=torch.bfloat16).to("cuda:1"), rows(512 + 16 * current, 512, dtype=torch.bfloat16).to("cuda:1") / 16
        compiled = thruway.compile(work, mode="max-autotune")
        torch.testing.assert_close(compiled(x, w), work(x, w), rtol=2e-2, atol=1e-2)
        assert torch.cuda.current_device() == current
    measured = [event.detail for event in journal.of_kind("measured")]
    assert any("guessed" in each and "inf" not in each for each in measured), measured


def test_few_launches_on_a_second_gpu_go_from_c_and_leave_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    compiled, found = thruway.compile(lambda x: x.sin() + x.cos()), []

    def work():
        with torch.no_grad():
            for device in ("cuda:1", "cuda:0", "cuda:1"):
                for _ in range(4):
                    x = rows(64).to(device)
                    found.append((compiled(x), x.sin() + x.cos(), torch.cuda.current_device()))
            x, side = rows(64).to("cuda:1"), torch.cuda.Stream("cuda:1")
            side.wait_stream(torch.cuda.current_stream("cuda:1"))
            with torch.cuda.stream(side), torch.cuda.device(0):
                got = compiled(x)
            side.synchronize()
            found.append((got, x.sin() + x.cos(), torch.cuda.current_device()))

    work()
    for current in (0, 1):
        with torch.cuda.device(current):
            compiled(torch.ones(64, device="cuda:1"))
            assert torch.cuda.current_device() == current
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 26 and {current for _, _, current in found} == {0}
    for got, want, _ in found:
        assert_close(got, want)
    assert sum(event.kind == "cuda_graph_refused" and ONE_LAUNCH in event.detail for event in journal.events) >= 2      # said where the launcher is in C


ON_ONE = """
import torch, thruway
x = torch.ones(64, 64, device="cuda:0")
compiled = thruway.compile(lambda x: ((x @ x).softmax(-1) @ x).relu() + 1, mode="reduce-overhead")
with torch.no_grad():
    for _ in range(30):
        compiled(x)
print("started", torch._C._cuda_hasPrimaryContext(0), torch._C._cuda_hasPrimaryContext(1))
"""


def test_a_gpu_that_nobody_uses_is_not_started():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    done = subprocess.run([sys.executable, "-c", ON_ONE], capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[-3:] == ["started", "True", "False"], (done.stdout, done.stderr[-1000:])


def test_one_function_over_two_gpus():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")

    def work(x, y):
        return ((x @ x).relu().to("cuda:1") + y).softmax(-1), x.sum(-1)

    compiled = thruway.compile(work, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(5):
            x, y = rows(16, 16), rows(16, 16).to("cuda:1")
            assert_close(compiled(x, y), work(x, y))


def test_cpu_and_gpu_in_one_function():
    def work(x, table):
        return (x * 2).cpu().sum(-1) + table, x.softmax(-1)

    compiled = thruway.compile(work)
    with torch.no_grad():
        for _ in range(5):
            x, table = rows(16, 16), torch.randn(16)
            assert_close(compiled(x, table), work(x, table))


def test_functions_under_a_default_device():
    compiled = thruway.compile(lambda n: torch.arange(n).float().sin() * torch.ones(n))
    with torch.no_grad(), torch.device("cuda"):
        for _ in range(3):
            assert_close(compiled(16), torch.arange(16).float().sin())
    with torch.no_grad():
        assert compiled(16).device.type == "cpu"


def test_attention_masks_of_every_kind():
    def work(q, mask):
        return F.scaled_dot_product_attention(q, q, q, mask) + F.scaled_dot_product_attention(q * 0.5, q, q, mask)

    triangle = torch.ones(40, 40, dtype=torch.bool, device="cuda").tril()
    masks = (triangle, triangle.expand(2, 1, 40, 40), torch.ones(2, 1, 1, 1, dtype=torch.bool, device="cuda").expand(2, 1, 40, 40), rows(40, 40) > -1,
             torch.zeros(40, 40, device="cuda", dtype=torch.bfloat16).masked_fill(~triangle, float("-inf")))
    compiled = thruway.compile(work)
    with torch.no_grad():
        for mask in masks:
            for _ in range(4):
                q = rows(2, 4, 40, 64, dtype=torch.bfloat16)
                torch.testing.assert_close(compiled(q, mask), work(q, mask), rtol=2e-2, atol=1e-2)      # strides follow the kernel that torch chose
    built = thruway.compile(lambda q: F.scaled_dot_product_attention(q, q, q, torch.ones(40, 40, dtype=torch.bool, device=q.device).tril()))
    with torch.no_grad():
        torch.testing.assert_close(built(q), F.scaled_dot_product_attention(q, q, q, triangle), rtol=2e-2, atol=1e-2)
