"""Log topics print what they say, the notice comes once per function, and nothing is printed or made unasked."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import pytest
import torch

import thruway
from thruway.core.ambient import AmbientSettings, settings
from thruway.core.errors import BreakReason, UserLine
from thruway.core.journal import KINDS, Journal
from thruway.core.settings import Settings
from thruway.report import logs

WHERE = UserLine("model.py", 12, "forward", "print(z.shape)")
REASON = BreakReason("TW103", "a call of print", "use logging", WHERE)


@pytest.fixture
def printed():
    journal, lines = Journal(), []
    printer = logs.LogPrinter(lines.append)
    journal.listeners.append(printer.event)
    journal.readers.append(printer)
    return journal, lines


def test_a_topic_prints_its_events_and_no_others(printed):
    journal, lines = printed
    with settings.override(logs=("recompiles",)):
        journal.add("recompile", "f", "x.shape[0] was 2, is 3")
        journal.add("cache_hit", "f")
    journal.add("recompile", "f", "later")
    assert lines == ["[recompiles] f x.shape[0] was 2, is 3"]


def test_a_graph_is_told_with_its_size(printed):
    journal, lines = printed
    with settings.override(logs=("graphs",)):
        journal.add("graph", "f", items=("mm", "add"))
        journal.add("graph", "f", items=("mm",))
    assert lines == ["[graphs] f graph of 2 operators", "[graphs] f graph of 1 operator"]


def test_a_break_shows_line_source_text_and_hint(printed):
    journal, lines = printed
    with settings.override(logs=("graph_breaks",)):
        journal.add("graph_break", "f", reason=REASON)
    (line,) = lines
    for part in ("model.py:12 in forward", "print(z.shape)", "TW103", "hint: use logging"):
        assert part in line


def test_the_notice_comes_once_per_function_and_can_be_hidden(printed):
    journal, lines = printed
    with settings.override(break_notice=True):
        journal.add("eager", "f", reason=REASON)
        journal.add("graph_break", "f", reason=REASON)
        journal.add("eager", "g", "left alone")
        journal.add("eager", "h", reason=replace(REASON, code="TW107"))
        assert not lines
        for name in "ffgh":
            journal.add("called", name)
    assert len(lines) == 2 and "f does not run compiled as a whole: TW103: a call of print (model.py:12)" in lines[0]
    assert "g does not run compiled as a whole: left alone." in lines[1]
    with settings.override(break_notice=False):
        journal.add("eager", "h", reason=REASON)
        journal.add("called", "h")
    assert len(lines) == 2


def test_the_notice_follows_what_the_first_call_prints(capfd):
    def f(x):
        print("inside", file=sys.stderr)
        time.time()
        return x + 1

    compiled = thruway.compile(f, backend="eager")
    with settings.override(break_notice=True):
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    first, second, third = capfd.readouterr().err.splitlines()
    assert first == third == "inside" and "f does not run compiled as a whole" in second and "time.time" not in first


def test_a_function_that_compiles_again_and_again_is_told_once(printed):
    journal, lines = printed
    with settings.override(break_notice=True):
        for i in range(40):
            journal.add("recompile", "f", f"equal of name: 'l{i}' → 'l{i + 1}'")
            journal.add("recompile", f"g{i % 3}", "few of each")
    with settings.override(break_notice=False):
        for _ in range(40):
            journal.add("recompile", "h", "hidden")
    (line,) = lines
    assert line.startswith("thruway: f was compiled again 16 times, last for equal of name: 'l15' → 'l16'. THRUWAY_LOGS=recompiles")


def test_stages_are_made_only_where_a_topic_wants_them(printed):
    journal, lines = printed
    journal.offer("code", "f", lambda: pytest.fail("made unasked"))
    with settings.override(logs=("code",)):
        journal.offer("code", "f", lambda: "int f(void);")
        journal.offer("guards", "f", lambda: pytest.fail("made unasked"))
    assert lines == ["[code] f\nint f(void);"]


@pytest.mark.parametrize("wanted, unknown", [(("help",), False), (("graph_braeks",), True)])
def test_help_and_unknown_topics_list_the_known_ones(capsys, monkeypatch, wanted, unknown):
    """Of the environment; an assignment of unknown ones is an error."""
    monkeypatch.setattr(logs, "settings", AmbientSettings(Settings(logs=wanted)))
    logs.attach(Journal())
    shown = capsys.readouterr()
    assert shown.out == "" and all(name in shown.err for name in logs.TOPICS)
    assert ("unknown log topic graph_braeks" in shown.err) is unknown


def test_topics_name_kinds_of_events():
    assert {kind for topic in logs.TOPICS.values() for kind in topic.kinds} <= set(KINDS)


def test_a_missing_compiler_is_said_once_at_the_first_compilation_and_in_explain(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("thruway.artifact.toolchain.find_spec", lambda name: None)
    x = torch.ones(3)
    with settings.override(break_notice=True, cache_dir=str(tmp_path / "kernels")), torch.no_grad():
        assert thruway.compile(lambda x: x.sin() + 1)(x).equal(x.sin() + 1)
        first = capfd.readouterr().err
        told = thruway.explain(lambda x: x.cos() * 2)(x)
    assert "No C compiler was found" in first and "install gcc" in first
    assert capfd.readouterr().err == ""
    assert [reason.code for reason in told.eager] == ["TW801"]


def test_a_line_that_the_detail_names_is_not_said_twice(printed):
    journal, lines = printed
    with settings.override(logs=("recompiles",)):
        journal.add("recompile", "f", f"x was 2, is 3; needed at {WHERE}", where=WHERE)
    assert lines == [f"[recompiles] f x was 2, is 3; needed at {WHERE}"]


def test_the_topic_cache_names_the_function_and_says_hit_or_miss(tmp_path, capsys):
    def half(x):
        return x * 0.5 + x.sin()

    for word in ("not on disk", "on disk: "):
        thruway.reset()
        with settings.override(cache_dir=str(tmp_path), logs=("cache",)):
            thruway.compile(half)(torch.ones(5))
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[cache]")]
        assert "half" in line.split(maxsplit=1)[1].partition(word)[0] and word in line
