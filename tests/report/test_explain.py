"""An explanation holds what the journal saw during one call, and reads well."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import thruway
from thruway import graph_compiler
from thruway.core.errors import BreakReason, UserLine
from thruway.core.journal import Journal
from thruway.report import explain
from thruway.report.explain import Share, explain_call
from thruway.surface import lazy

WHERE = UserLine("model.py", 12, "forward", "print(z.shape)")
REASON = BreakReason("TW103", "a call of print", "use logging", WHERE)


@pytest.fixture
def explained():
    pipeline = SimpleNamespace(journal=Journal())
    pipeline.journal.add("graph", "earlier", items=("mm",))

    def compile(function):
        def compiled(*args, **kwargs):
            journal = pipeline.journal
            journal.add("graph", "f", items=("linear", "relu", "linear"))
            journal.add("graph", "f", items=("relu",))
            journal.add("graph_break", "f", reason=REASON)
            journal.add("eager", "g", "no bytecode")
            journal.add("kept_eager", "f", "compiled 2.0 us, eager 1.5 us")
            journal.add("stage", "f", stage="capture", seconds=0.25)
            journal.offer("guards", "f", lambda: "tensor x\n\nequal scale == 2\n")
            journal.offer("code", "f", lambda: pytest.fail("nobody asked for code"))
            return function(*args, **kwargs)

        return compiled

    return pipeline, explain_call(compile, pipeline, lambda x, y: x + y, (1,), {"y": 2})


def test_counts_reasons_operators_guards(explained):
    pipeline, got = explained
    assert got.result == 3
    assert got.graph_count == 2 and got.graph_break_count == 1 and got.break_reasons == (REASON,)
    assert got.operators == (("linear", 2), ("relu", 2))
    assert got.guards == ("tensor x", "equal scale == 2")
    assert got.eager[0].what == "no bytecode" and got.seconds == (("capture", 0.25),)
    assert pipeline.journal.readers == []


def test_numeric_exceptions_and_what_memory_refuses_are_told(monkeypatch):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Hardswish()).eval()
    x = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        assert "numerics: batch norm folded, library epilogue" in thruway.explain(net)(x).notes
        assert not [note for note in thruway.explain(net, options={"numerics": "strict"})(x).notes if note.startswith("numerics")]
        monkeypatch.setattr(graph_compiler, "_derived_limit", lambda: 0)
        assert any(note.startswith("unpacked: ") and note.endswith(": memory") for note in thruway.explain(net)(x).notes)


def test_it_reads_well(explained):
    text = str(explained[1])
    assert text.splitlines()[0] == "2 graphs, 1 graph break, 4 operators in graphs"
    for part in ("model.py:12 in forward: print(z.shape)", "TW103: a call of print", "hint: use logging", "linear × 2", "kept eager: compiled 2.0 us"):
        assert part in text


def test_an_error_in_the_call_arrives_and_leaves_no_reader():
    pipeline = SimpleNamespace(journal=Journal())
    with pytest.raises(ZeroDivisionError):
        explain_call(lambda f: lambda: f(), pipeline, lambda: 1 / 0, (), {})
    assert pipeline.journal.readers == []


def test_what_was_not_compiled_is_said(monkeypatch):
    given, marked = lambda x: x + 1, thruway.disable(lambda x: x + 1, reason="odd")
    assert thruway.explain(given, disable=True)(5).notes == ("disable=True was given: the call ran eager",)
    assert thruway.explain(marked)(5).notes == ("marked with thruway.disable (odd): the call ran eager",)
    monkeypatch.setattr(thruway.settings, "disable", True)
    got = thruway.explain(given)(5)
    assert got.result == 6 and got.notes == ("thruway is switched off (THRUWAY_DISABLE or settings.disable): the call ran eager",)


# -- real calls ---------------------------------------------------------------------------------------------------------------------------

def test_the_share_inside_graphs_and_further_calls():
    got = thruway.explain(lambda x: (x * 2).relu().sum())(torch.ones(100))
    assert got.calls > 1 and got.share.operators_inside == 3 and got.share.operators_outside == 0
    assert 0 < got.share.seconds_inside <= got.share.seconds and "3 of 3 operators (100 %)" in str(got)
    assert any(note.startswith(("measured", "kept eager")) for note in got.notes)


def test_a_call_that_leaves_a_trace_is_made_once():
    seen = []

    def f(x):
        seen.append(1)
        return x.add_(1)

    x = torch.zeros(2)
    assert thruway.explain(f)(x).calls == 1 and seen == [1] and x[0] == 1
    assert thruway.explain(f, calls=3)(x).calls == 3 and len(seen) == 4 and x[0] == 4


def test_operators_outside_graphs_are_counted():
    @thruway.disable
    def outside(x):
        return torch.sin(x) + torch.tan(x)

    got = thruway.explain(lambda x: outside(x + 1) * 2)(torch.ones(4))
    assert (got.share.operators_inside, got.share.operators_outside) == (2, 3) and got.graph_break_count == 1
    assert sorted(got.share.outside) == [("add", 1), ("sin", 1), ("tan", 1)]
    assert "outside: " in str(got.share) and "tan × 1" in str(got.share) and "…" not in str(got.share)


def test_only_the_commonest_operators_outside_graphs_are_named_and_none_where_all_lie_inside():
    many = Share(1, tuple((f"op{i}", 9 - i) for i in range(9)), 0.5, 1.0)
    assert many.operators_outside == 45 and str(many).endswith("outside: op0 × 9, op1 × 8, op2 × 7, op3 × 6, op4 × 5, op5 × 4, …")
    assert "outside" not in str(Share(1, (), 0.5, 1.0))


def test_every_guard_that_missed_is_told_with_what_would_stop_it():
    calls = iter([torch.ones(3), torch.ones(3, dtype=torch.float64)])
    compiled = thruway.compile(lambda x: x + 1)
    for x in calls:
        compiled(x)
    (event,) = [e for e in lazy.pipeline().journal.of_kind("recompile") if e.function.endswith("<lambda>") and "float64" in e.detail][-1:]
    assert "Tensor float32" in event.detail and "Tensor float64" in event.detail and "pass tensors of one kind" in event.detail and event.where


def test_the_text_shows_the_guards_of_the_users_tensors_and_lines_and_counts_the_rest():
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4))).eval()

    def f(x, scale):
        return model(x) * scale

    got = thruway.explain(f)(torch.ones(2, 3), 3)
    section = str(got).partition("guards:\n")[2].partition("seconds:")[0].splitlines()
    assert "x: Tensor float32[2, 3]" in section[0] and any("scale == 3" in line for line in section)
    assert len(got.guards) > 50 and len(section) <= explain.GUARDS_SHOWN + 1
    assert not any("self.__dict__" in line for line in section)
    assert f"and {len(got.guards) - len(section) + 1} more" in section[-1]
