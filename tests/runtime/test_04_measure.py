"""The faster of compiled and eager stays: what the comparison answers with, when it ends, and what it costs."""

import pytest
import torch
from torch.fx import symbolic_trace

from thruway.runtime import measure
from thruway.runtime.measure import MANY, PAIRS, Comparison, is_comparable


class Clock:
    """Stands in for the module `time`: it moves when a Timed graph runs."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(measure, "time", Clock())


class Timed:
    """A graph that takes `seconds` and gives its name."""

    def __init__(self, name: str, seconds: float):
        self.name, self.seconds, self.calls = name, seconds, 0

    def __call__(self, *inputs):
        self.calls += 1
        measure.time.now += self.seconds
        return (self.name, *inputs)


def compare(compiled: float, eager: float, calls: int):
    left, right, verdicts = Timed("compiled", compiled), Timed("eager", eager), []
    comparison = Comparison(left, right)
    comparison.end = verdicts.append
    answers = [comparison(i) for i in range(calls)]
    assert [answer[1] for answer in answers] == list(range(calls))
    return left, right, verdicts, [answer[0] for answer in answers]


def test_a_clear_lead_ends_it_after_one_comparison():
    left, right, verdicts, answers = compare(1e-3, 5e-3, 6)
    assert [verdict.graph for verdict in verdicts] == [left] and right.calls == 1 and set(answers) == {"compiled"}


def test_slower_code_gives_way_to_eager_and_both_times_are_told():
    left, right, verdicts, answers = compare(2e-3, 1e-3, PAIRS + 4)
    assert [verdict.graph for verdict in verdicts] == [right]
    assert verdicts[0].eager < verdicts[0].compiled
    assert answers == ["compiled"] * (PAIRS + 2) + ["eager"] * 2
    assert right.calls == PAIRS + 1 + 2


def test_equal_times_keep_the_compiled_code():
    left, right, verdicts, _ = compare(1e-3, 1e-3, PAIRS + 3)
    assert [verdict.graph for verdict in verdicts] == [left] and not verdicts[0].won and verdicts[0].eager == pytest.approx(1e-3)


def test_short_calls_are_compared_more_often():
    _, _, verdicts, _ = compare(2e-5, 2e-5, PAIRS + 2)
    assert not verdicts
    _, _, verdicts, _ = compare(2e-5, 1e-5, MANY + 2)
    assert len(verdicts) == 1


def test_a_device_is_waited_for_and_warms_up_first():
    pending = []

    def wait():
        measure.time.now += sum(pending)
        pending.clear()

    comparison, verdicts = Comparison(lambda: pending.append(1e-3), lambda: pending.append(5e-3), 4, wait), []
    comparison.end = verdicts.append
    for _ in range(4):
        comparison()
    assert measure.time.now == 0 and len(pending) == 4
    comparison()
    assert [verdict.graph for verdict in verdicts] == [comparison.compiled] and measure.time.now == pytest.approx(1e-2)


def test_nothing_long_runs_twice():
    left, right, verdicts, _ = compare(2.0, 1.0, 3)
    assert [verdict.graph for verdict in verdicts] == [left] and right.calls == 0


def test_what_eager_cannot_run_stays_compiled():
    left = Timed("compiled", 1e-4)

    def fails(*inputs):
        raise RuntimeError("no")

    comparison, verdicts = Comparison(left, fails), []
    comparison.end = verdicts.append
    assert [comparison(0)[0] for _ in range(3)] == ["compiled"] * 3 and verdicts[0].graph is left


@pytest.mark.parametrize("function, comparable", [
    (lambda x: torch.sin(x) + 1, True), (lambda x: x.add_(1), False), (lambda x: torch.nn.functional.dropout(x), False),
    (lambda x: torch.bernoulli(x), False), (lambda x: torch.nn.functional.relu(x, inplace=True), False),
])
def test_only_graphs_without_a_trace_run_twice(function, comparable):
    assert is_comparable(symbolic_trace(function).graph) == comparable
