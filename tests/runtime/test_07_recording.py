"""Who may wait for a device while another thread records: decided without a GPU, over a wait that only notes itself."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from thruway.artifact.workers import THREADS
from thruway.runtime.cuda.recording import _Waits, is_alone


@pytest.fixture
def waits():
    made = _Waits()
    made.synchronize = lambda: None
    return made


def test_a_wait_begins_when_the_recording_has_ended(waits):
    ended = []
    with waits.held():
        other = threading.Thread(target=lambda: (waits.wait(), ended.append("wait")))
        other.start()
        time.sleep(0.02)
        ended.append("recording")
    other.join(5)
    assert ended == ["recording", "wait"]


def test_a_recording_begins_when_nobody_waits(waits):
    going, go_on, order = threading.Event(), threading.Event(), []

    def slow():
        going.set()
        go_on.wait(5)
        order.append("wait")

    waits.synchronize = slow
    other = threading.Thread(target=waits.wait)
    other.start()
    going.wait(5)
    threading.Timer(0.02, go_on.set).start()
    with waits.held():
        order.append("recording")
    other.join(5)
    assert order == ["wait", "recording"]


def test_who_records_is_not_held_back_by_itself(waits):
    with waits.held():
        waits.wait()
    assert waits.recorder is None and waits.waiting == 0


def test_one_thread_records_at_a_time_and_an_error_lets_the_next_one_in(waits):
    inside, most = [], []

    def record():
        try:
            with waits.held():
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.002)
                inside.pop()
                raise ValueError
        except ValueError:
            pass

    threads = [threading.Thread(target=record) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(5)
    assert most == [1] * 8 and waits.recorder is None


def test_who_is_alone():
    """Threads that compile for us do not count."""
    stop, before = threading.Event(), is_alone()
    with ThreadPoolExecutor(1, thread_name_prefix=THREADS) as pool:
        pool.submit(lambda: None).result()
        assert is_alone() == before
    others = [threading.Thread(target=stop.wait, args=(5,)) for _ in range(2)]
    for each in others:
        each.start()
    try:
        assert not is_alone()
    finally:
        stop.set()
        for each in others:
            each.join()
    assert is_alone() == before
