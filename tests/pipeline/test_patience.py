"""Functions that something new comes to at every call: captures grow rare, results stay right, and what comes back is compiled again."""

from __future__ import annotations

import torch

import thruway
from thruway import pipeline
from thruway.frame.entries import UNUSED
from thruway.pipeline import journal


def scale(x: torch.Tensor, name: str) -> torch.Tensor:
    return x * len(name) if name.startswith("a") else x + len(name)


def captures(compiled, names) -> int:
    """Captures that calls with `names` took; their results are eager's."""
    before = thruway.metrics()["captures"]
    for name in names:
        assert torch.equal(compiled(torch.ones(3), name), scale(torch.ones(3), name))
    return thruway.metrics()["captures"] - before


def told() -> list:
    return [event for event in journal.events if event.reason is not None and event.reason.code == "TW812"]


def test_captures_of_what_never_comes_back_grow_rare():
    compiled, before = thruway.compile(scale), len(told())
    assert captures(compiled, [f"a{i}" for i in range(UNUSED)]) == UNUSED
    assert captures(compiled, [f"b{i}" for i in range(1000)]) == 9            # 0, 2, 6, … 510 misses before each
    (first, *_) = told()[before:]
    assert "equal of name: 'b0' → 'b1'" in first.reason.what and first.reason.hint and "scale" in str(first.reason.where)
    assert len(told()) - before < 12


def test_what_comes_back_is_compiled_again():
    compiled = thruway.compile(scale)
    captures(compiled, [f"a{i}" for i in range(4 * UNUSED)])
    again = [f"again{i}" for i in range(4)]
    newest = [f"a{i}" for i in range(UNUSED)]                                 # entries of the first calls are all still there
    assert captures(compiled, newest + again) <= 4
    for _ in range(4):
        captures(compiled, newest + again)
    assert captures(compiled, newest + again) == 0


def test_as_many_entries_as_come_back_are_compiled_at_once():
    compiled = thruway.compile(scale)
    names = [f"c{i}" for i in range(UNUSED + 8)]
    for _ in range(5):
        captures(compiled, names)
    assert captures(compiled, names) == 0


def test_calls_that_wait_look_at_no_entries(monkeypatch):
    compiled, looks = thruway.compile(scale), []
    captures(compiled, [f"e{i}" for i in range(UNUSED + 8)])
    explain_miss = pipeline.explain_miss
    monkeypatch.setattr(pipeline, "explain_miss", lambda *args: looks.append(1) or explain_miss(*args))
    captured = captures(compiled, [f"f{i}" for i in range(200)])
    assert len(looks) < (captured + 3) * (UNUSED + 16)


def test_with_fullgraph_every_call_is_compiled():
    compiled = thruway.compile(scale, fullgraph=True)
    assert captures(compiled, [f"d{i}" for i in range(UNUSED + 20)]) == UNUSED + 20
