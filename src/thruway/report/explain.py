"""`thruway.explain(f)(*args)`: one compiled call, and what the journal and the stages' readable forms say about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from thruway.core.errors import BreakReason
from thruway.core.journal import Event, Journal
from thruway.report.metrics import stage_seconds

NOTED = ("kept_eager", "recompile", "repack", "predicted", "measured", "cuda_graph_refused", "out_of_memory", "bug")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one call did. `eager` says what runs eager as a whole, `guards` one line per guard, `seconds` is per stage, `notes` says
    what else happened (kept eager since that was faster, weights derived, faults). `result` is what the call returned."""

    graph_count: int
    graph_break_count: int
    break_reasons: tuple[BreakReason, ...]
    eager: tuple[BreakReason, ...]
    operators: tuple[tuple[str, int], ...]
    guards: tuple[str, ...]
    seconds: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    result: Any = None

    def __str__(self) -> str:
        operators = sum(count for _, count in self.operators)
        head = f"{_count(self.graph_count, 'graph')}, {_count(self.graph_break_count, 'graph break')}, {_count(operators, 'operator')} in graphs"
        sections = [
            _section("graph breaks", [str(reason) for reason in self.break_reasons]),
            _section("runs eager", [str(reason) for reason in self.eager]),
            _section("notes", self.notes),
            _section("operators", [f"{name} × {count}" for name, count in self.operators]),
            _section("guards", self.guards),
            _section("seconds", [f"{stage} {seconds:.4f}" for stage, seconds in self.seconds if seconds >= 1e-4]),
        ]
        return "\n".join([head, *(section for section in sections if section)])


class GuardReader:
    """Collects the readable guards of each entry made while it listens."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def wants(self, stage: str) -> bool:
        return stage == "guards"

    def read(self, stage: str, function: str, text: str) -> None:
        self.lines += [line for line in text.splitlines() if line.strip()]


def explain_call(
    compile: Callable[[Any], Any], pipeline: ModuleType, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
) -> Explanation:
    """Compiles `target` afresh, calls it once, and tells what that call did. What the call raises goes to the caller."""
    journal: Journal = pipeline.journal
    start, guards = len(journal.events), GuardReader()
    journal.readers.append(guards)
    try:
        compiled = compile(target)
        result = compiled(*args, **kwargs)
    finally:
        journal.readers.remove(guards)
    notes = ("compilation is switched off or not supported here: the call ran eager",) if compiled is target else ()
    return explanation_of(journal.events[start:], guards.lines, result, notes)


def explanation_of(events: Sequence[Event], guards: Sequence[str], result: Any = None, notes: tuple[str, ...] = ()) -> Explanation:
    journal = Journal(list(events))
    operators = Counter(name for event in journal.of_kind("graph") for name in event.items)
    noted = [f"{event.kind.replace('_', ' ')}: {event.detail}" for kind in NOTED for event in journal.of_kind(kind)]
    return Explanation(
        graph_count=len(journal.of_kind("graph")),
        graph_break_count=len(journal.of_kind("graph_break")),
        break_reasons=_reasons(journal, "graph_break"),
        eager=_reasons(journal, "eager"),
        operators=tuple(operators.most_common()),
        guards=tuple(guards),
        seconds=tuple(stage_seconds(journal).items()),
        notes=(*notes, *noted),
        result=result,
    )


def _reasons(journal: Journal, kind: str) -> tuple[BreakReason, ...]:
    return tuple(event.reason or BreakReason("", event.detail, where=event.where) for event in journal.of_kind(kind))


def _section(title: str, entries: Sequence[str]) -> str:
    if not entries:
        return ""
    return "\n".join([f"{title}:", *("  " + entry.replace("\n", "\n  ") for entry in entries)])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
