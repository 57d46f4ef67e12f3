"""One compiled function called from many threads while others compile: right results, and one compilation per entry."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import thruway


@pytest.fixture(autouse=True)
def quick_switches():
    """Threads change over a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    thruway.reset()
    yield
    sys.setswitchinterval(before)


def at_once(count, work):
    """Runs `work(i)` in `count` threads that start together; gives what they raised."""
    errors, gate = [], threading.Barrier(count)

    def run(i):
        torch.set_num_threads(1)
        gate.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def scaled(x, way):
    return (x * 2 if way == "up" else x / 2).relu() + len(way)


@pytest.mark.parametrize("backend", ["eager", "thruway"])
def test_one_compilation_per_entry(backend):
    f = thruway.compile(scaled, backend=backend)
    kinds = [(torch.randn(3), "up"), (torch.randn(3), "down"), (torch.randn(3, 4), "up"), (torch.randn(3).double(), "up")]

    def work(i):
        for turn in range(30):
            x, way = kinds[(i + turn) % len(kinds)]
            torch.testing.assert_close(f(x, way), scaled(x, way))

    assert at_once(6, work) == []
    assert thruway.metrics()["captures"] == len(kinds) and thruway.metrics()["bugs"] == 0


def noted(x, history):
    y = x * 2
    history.append(float(y.sum()))
    return y + len(history)


def test_breaks_and_effects_stay_in_their_thread():
    f = thruway.compile(noted, backend="eager")

    def work(i):
        for turn in range(20):
            mine, theirs, x = [], [], torch.full((2,), float(i + turn))
            assert torch.equal(f(x, mine), noted(x, theirs)) and mine == theirs

    assert at_once(6, work) == []
    assert thruway.metrics()["bugs"] == 0


def test_modes_stay_in_their_thread():
    weight = torch.ones(3, requires_grad=True)
    f = thruway.compile(lambda x: x * weight, backend="eager")

    def work(i):
        for _ in range(20):
            with torch.set_grad_enabled(i % 2 == 0):
                assert f(torch.ones(3)).requires_grad == (i % 2 == 0)

    assert at_once(4, work) == []
    assert thruway.metrics()["captures"] == 2


def test_different_functions_compile_at_once():
    functions = [thruway.compile(lambda x, k=k: (x + k).sin() * k, backend="eager") for k in range(6)]

    def work(i):
        x = torch.ones(4)
        assert torch.equal(functions[i](x), (x + i).sin() * i)

    assert at_once(6, work) == []
    assert thruway.metrics()["captures"] == 6
