"""`thruway.explain(f)(*args)`: a compiled call, and what the journal, the stages' readable forms and torch's profiler say about it.

Where the call left no trace (one graph that writes nothing, no break, no effect), more calls on the same arguments follow, so that the
comparison with eager comes to its end; `calls=` asks for a number of calls in any case.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch.autograd.profiler_legacy import profile           # the other one writes to stderr

from thruway.core.errors import BreakReason
from thruway.core.journal import Event, Journal
from thruway.report.metrics import stage_seconds

NOTED = ("kept_eager", "recompile", "numerics", "unpacked", "layout", "repack", "parts", "predicted", "measured", "cuda_graph_refused", "out_of_memory", "bug")
GUARDS_SHOWN = 24                     # in the text; a model has thousands
OUTSIDE_SHOWN = 6                     # names of operators that ran outside graphs
LIBRARY = f"# {os.path.dirname(torch.__file__)}{os.sep}"                # how the line of a guard begins that torch's own code needs
MODULE, TENSOR, VALUE = (".__dict__", " is found as ", "torch.nn.modules."), ": Tensor ", " == "
MORE_CALLS = 20                       # what a comparison with eager takes at most
GRAPH, COMPILING = "thruway: graph", "thruway: compile"


@dataclass(frozen=True, slots=True)
class Share:
    """What of the last call lay inside compiled graphs: operators (those of the captured graphs that ran) and seconds. `outside`: the others, by name."""

    operators_inside: int
    outside: tuple[tuple[str, int], ...]
    seconds_inside: float
    seconds: float

    @property
    def operators_outside(self) -> int:
        return sum(count for _, count in self.outside)

    def __str__(self) -> str:
        whole = self.operators_inside + self.operators_outside
        text = (f"inside graphs: {self.operators_inside} of {whole} operators ({_percent(self.operators_inside, whole)}), "
                f"{self.seconds_inside * 1e3:.3g} of {self.seconds * 1e3:.3g} ms ({_percent(self.seconds_inside, self.seconds)})")
        if not self.outside:
            return text
        shown = ", ".join(f"{name} × {count}" for name, count in self.outside[:OUTSIDE_SHOWN])
        return f"{text}\noutside: {shown}{', …' if len(self.outside) > OUTSIDE_SHOWN else ''}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the calls did. `eager` says what runs eager as a whole, `skipped` which frames below a break were never captured, `guards` one line
    per guard (the text: some), `seconds` is per stage, `notes` says what else happened (guards that missed, kept eager since that was
    faster, numeric exceptions taken, predicted and measured gains, weights derived or left unpacked, faults). `share` is of the last call,
    `result` what the first one returned."""

    graph_count: int
    graph_break_count: int
    break_reasons: tuple[BreakReason, ...]
    eager: tuple[BreakReason, ...]
    operators: tuple[tuple[str, int], ...]
    guards: tuple[str, ...]
    seconds: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    result: Any = None
    skipped: tuple[str, ...] = ()
    share: Share | None = None
    calls: int = 1

    def __str__(self) -> str:
        operators = sum(count for _, count in self.operators)
        head = f"{_count(self.graph_count, 'graph')}, {_count(self.graph_break_count, 'graph break')}, {_count(operators, 'operator')} in graphs"
        sections = [
            _section("graph breaks", [str(reason) for reason in self.break_reasons]),
            _section("runs eager", [str(reason) for reason in self.eager]),
            _section("never captured", self.skipped),
            _section("notes", self.notes),
            _section("operators", [f"{name} × {count}" for name, count in self.operators]),
            _section("guards", shown_guards(self.guards)),
            _section("seconds", [f"{stage} {seconds:.4f}" for stage, seconds in self.seconds if seconds >= 1e-4]),
        ]
        shares = [str(self.share)] if self.share else []
        return "\n".join([head, *shares, *(section for section in sections if section)])


class GuardReader:
    """Collects the readable guards of each entry made while it listens."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def wants(self, stage: str) -> bool:
        return stage == "guards"

    def read(self, stage: str, function: str, text: str) -> None:
        self.lines += [line for line in text.splitlines() if line.strip()]


class Watch:
    """What is hung around every graph made meanwhile. `pure`: none of them writes or draws, so that the call can be made again."""

    def __init__(self) -> None:
        self.operators = 0
        self.pure = True

    def mark(self, graph: Callable[..., Any], operators: int, writes: bool = False) -> Callable[..., Any]:
        self.pure &= not writes

        def marked(*inputs: Any) -> Any:
            self.operators += operators
            with torch.autograd.profiler.record_function(GRAPH):
                return graph(*inputs)

        return marked


def explain_call(
    compile: Callable[[Any], Any], pipeline: ModuleType, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], calls: int | None = None,
    why_eager: str = "",
) -> Explanation:
    """Compiles `target` afresh, calls it, and tells what that did. What a call raises goes to the caller.
    `why_eager` says why `compile` gives `target` back, where it does."""
    journal: Journal = pipeline.journal
    start, guards, watch, marks = len(journal.events), GuardReader(), Watch(), getattr(pipeline, "marks", None)
    journal.readers.append(guards)
    try:
        if marks is not None:
            marks.mark = watch.mark
        compiled = compile(target)
        result, share = _profiled(watch, lambda: compiled(*args, **kwargs))
        wanted = calls or (MORE_CALLS if watch.pure and _left_no_trace(journal.events[start:]) else 1)
        for _ in range(wanted - 1):
            _, share = _profiled(watch, lambda: compiled(*args, **kwargs))
    finally:
        journal.readers.remove(guards)
        if marks is not None:
            marks.mark = None
    notes = (f"{why_eager}: the call ran eager",) if why_eager else ()
    return replace(explanation_of(journal.events[start:], guards.lines, result, notes), share=share, calls=wanted)


def shown_guards(guards: Sequence[str]) -> list[str]:
    """Those that the text shows: on tensors, on numbers, then what else the user's own lines need; modules' insides and torch's lines are counted."""
    told = [guard for guard in guards if not any(part in guard for part in MODULE) and (LIBRARY not in guard or TENSOR in guard)]
    shown = sorted(told, key=lambda guard: (TENSOR not in guard, VALUE not in guard.partition("    # ")[0]))[:GUARDS_SHOWN]
    hidden = len(guards) - len(shown)
    more = f"and {hidden} more, most on modules or for lines of torch: THRUWAY_LOGS=guards prints all, `.guards` of this object holds them"
    return [*shown, more] if hidden else shown


def _left_no_trace(events: Sequence[Event]) -> bool:
    """Whether the call was graphs and nothing else: no break, nothing eager, no effect after a graph."""
    kinds = Counter(event.kind for event in events)
    return bool(kinds["graph"]) and not kinds["graph_break"] and not kinds["eager"] and not kinds["effects"]


def _profiled(watch: Watch, call: Callable[[], Any]) -> tuple[Any, Share]:
    """What the call gives, and its share inside graphs by torch's profiler. Time for compiling does not count."""
    watch.operators = 0
    with profile() as profiler, torch.autograd.profiler.record_function("thruway: call"):
        result = call()
    events = profiler.function_events or []
    length = {name: sum(e.time_range.elapsed_us() for e in events if e.name == name) * 1e-6 for name in (GRAPH, COMPILING, "thruway: call")}
    outside = Counter(e.name.removeprefix("aten::") for e in events if e.name.startswith("aten::") and _is_outermost(e))
    return result, Share(watch.operators, tuple(outside.most_common()), length[GRAPH], max(length["thruway: call"] - length[COMPILING], length[GRAPH]))


def _is_outermost(event: Any) -> bool:
    """Whether an operator was called by Python code outside of graphs and of the compiler."""
    parent = event.cpu_parent
    while parent is not None:
        if parent.name in (GRAPH, COMPILING) or parent.name.startswith("aten::"):
            return False
        parent = parent.cpu_parent
    return True


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
        skipped=tuple(f"{event.function}: {event.reason or event.detail}" for event in journal.of_kind("skipped")),
    )


def _reasons(journal: Journal, kind: str) -> tuple[BreakReason, ...]:
    return tuple(event.reason or BreakReason("", event.detail, where=event.where) for event in journal.of_kind(kind))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "all"


def _section(title: str, entries: Sequence[str]) -> str:
    if not entries:
        return ""
    return "\n".join([f"{title}:", *("  " + entry.replace("\n", "\n  ") for entry in entries)])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
