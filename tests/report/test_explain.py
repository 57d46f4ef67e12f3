"""An explanation holds what the journal saw during one call, and reads well."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from thruway.core.errors import BreakReason, UserLine
from thruway.core.journal import Journal
from thruway.report.explain import explain_call

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


def test_what_was_not_compiled_is_said():
    got = explain_call(lambda f: f, SimpleNamespace(journal=Journal()), lambda: 5, (), {})
    assert got.result == 5 and "compilation is switched off" in got.notes[0]
