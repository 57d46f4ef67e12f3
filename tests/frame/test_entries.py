"""Entries: bounded by memory, least used first; a miss names the guard, the old value and the new."""

from __future__ import annotations

import pytest
import torch

from thruway import native
from thruway.core.errors import UserLine
from thruway.frame.entries import HINTS, Entries, Miss, explain_miss, make_entry
from thruway.frame.guard import KINDS, Guard, GuardSet, TensorExpectation
from thruway.frame.source import Attr, Item, Local
from thruway.frame.state import read_state

X, N = Local("x", 0), Local("n", 1)
LINE = UserLine("model.py", 7, "forward", "if n == 3:")


def function(x, n=3):
    return "eager"


def record(value: int, nbytes: int = 1000):
    guards = GuardSet(read_state(), (Guard("equal", N, value, LINE),))
    return make_entry(f"entry {value}", guards, (X,), lambda x: (value,), single_output=True, nbytes=nbytes)


@pytest.fixture
def compiled():
    return native.core().Compiled(function, lambda compiled, args, kwargs: None)


def test_entries_answer_and_the_newest_stands_first(compiled):
    entries = Entries(compiled, 1 << 20)
    for value in range(3):
        assert entries.add(record(value)) == []
    assert [each.name for each in entries] == ["entry 2", "entry 1", "entry 0"]
    assert [compiled(None, n) for n in (0, 1, 2, 3)] == [0, 1, 2, "eager"]
    assert [each.hits for each in entries] == [1, 1, 1]


def test_the_least_used_goes(compiled):
    entries = Entries(compiled, 5000)
    for value in range(3):
        entries.add(record(value))
    for n in (0, 0, 2):
        compiled(None, n)
    (gone,) = entries.add(record(7))
    assert gone.name == "entry 1" and compiled(None, 1) == "eager" and compiled(None, 7) == 7 and entries.nbytes <= 5000
    assert [each.name for each in entries.add(record(8, 100_000))] == ["entry 0", "entry 2", "entry 7"] or len(entries) == 1
    assert compiled(None, 8) == 8


def test_remove_and_clear(compiled):
    entries = Entries(compiled, 1 << 20)
    first, second = record(1), record(2)
    entries.add(first)
    entries.add(second)
    entries.remove(first)
    assert compiled(None, 1) == "eager" and compiled(None, 2) == 2 and len(entries) == 1
    entries.clear()
    assert compiled(None, 2) == "eager"


def expected(t: torch.Tensor) -> TensorExpectation:
    return TensorExpectation(type(t), "float32", "cpu", t.requires_grad, tuple(t.shape), tuple(t.stride()))


def miss_text(guard: Guard, *args) -> str:
    made = make_entry("f", GuardSet(read_state(), (Guard("type", N, int), guard)), (), None)
    return str(explain_miss(made, function, args, {}))


def test_a_miss_is_explained():
    t = torch.ones(2, 3)
    assert miss_text(Guard("equal", N, 3, LINE), t, 4) == "equal of n: 3 → 4; needed at model.py:7 in forward: if n == 3:"
    assert miss_text(Guard("tensor", X, expected(t)), torch.ones(3, 2)) == (
        "tensor of x: Tensor float32 cpu [2, 3] strides [3, 1] → Tensor float32 cpu [3, 2] strides [2, 1]")
    assert miss_text(Guard("tensor", X, expected(t)), torch.ones(2, 3, requires_grad=True)).endswith("[3, 1] requires_grad")
    assert miss_text(Guard("tensor", X, expected(t)), 5).endswith("→ int")
    assert miss_text(Guard("equal", Item(X, 4), 3), [1]) == "equal of x[4]: 3 → not found"
    assert miss_text(Guard("has_not", X, "mark"), function) == "None" and miss_text(Guard("length", X, 2), [1]) == "length of x: 2 → 1"
    assert miss_text(Guard("equal", Attr(X, "a"), 1), None) == "equal of x.a: 1 → not found"
    assert miss_text(Guard("type", X, list), ()) == "type of x: list → tuple"


def test_every_kind_of_guard_has_a_hint():
    assert set(HINTS) == {*KINDS, "number"}
    assert Miss(Guard("equal", N, 3, None), "3", "4").hint == HINTS["number"] and Miss(Guard("equal", N, "a", None), "", "").hint == HINTS["equal"]


def test_a_call_that_fits_has_no_miss_and_another_state_has_one():
    made = record(3)
    assert explain_miss(made, function, (None,), {}) is None
    assert explain_miss(made, function, (None,), {"n": 4}).new == "4"
    with torch.no_grad():
        assert str(explain_miss(made, function, (None,), {})) == "torch's grad_enabled is False and was True"
