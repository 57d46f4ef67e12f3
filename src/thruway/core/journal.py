"""The journal: what happened, as records. One `Journal` per process, owned by `pipeline`; `report` reads it.

Records are appended under the interpreter lock and never changed, so readers need no lock of their own. `listeners` see each
event as it comes; `readers` get the readable form of stages (captured, guards, graph, loops, plan, code), made only if one wants it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from thruway.core.errors import BreakReason, UserLine


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is one of KINDS; `function` the compiled function's qualified name; `detail` says the rest in plain words."""

    kind: str
    function: str
    detail: str = ""
    where: UserLine | None = None
    reason: BreakReason | None = None
    seconds: float = 0.0
    stage: str = ""
    items: tuple[str, ...] = ()     # what the kind lists: the operators of a graph


class Reader(Protocol):
    """Somebody who wants to see the readable form of some stages: a dump folder, a log topic, `explain`."""

    def wants(self, stage: str) -> bool: ...

    def read(self, stage: str, function: str, text: str) -> None: ...


KINDS = (
    "static",           # symbolic sizes or numbers gave no graph: fixed ones are used
    "capture",          # one symbolic run over a frame ended, whatever it gave
    "graph",            # one graph was captured and compiled
    "graph_break",      # a stretch runs in plain Python; `reason` says why
    "recompile",        # an entry existed and its guards missed; `detail` names the guard, old and new value
    "stage",            # a stage or pass ran: `stage`, `seconds`
    "skipped",          # a frame below a break is left to plain Python; `reason` says why
    "eager",            # a whole frame or graph is left to eager; `reason` says why
    "postponed",        # one call ran as it is, so that the next can be captured better; `detail` says why
    "cache_hit", "cache_miss",
    "kept_eager",       # compiled measured slower than eager
    "copied", "whole",  # of equal blocks some were compiled and the others copied from them; or each was compiled after all
    "numerics",         # roundings that eager makes and the graph does not: the exceptions that were taken, by name
    "unpacked",         # weights that stay as they are: packing or folding them would take too much memory
    "layout",           # convolutions keep the layout of their inputs; `detail` says why
    "repack",           # folded or packed weights were derived again
    "predicted", "measured",     # a choice for a GPU: what it should gain, and what was measured
    "recording_again",  # recording a CUDA graph failed; it is tried again at a later call
    "parts",            # a graph over several devices was compiled in parts; `detail` names their devices
    "cuda_graph_refused",        # a step is not replayed as one CUDA graph; `reason` says why
    "out_of_memory",    # recordings and cached memory of a GPU were given up
    "effects",          # Python code of an entry's own follows its graph: effects, results that are no plain tensors
    "called",           # the first call of a compiled function is over
    "unchecked",        # shadow mode: a call could not be compared with eager
    "bug",              # a CompilerBug was caught and the stretch runs eager
)


@dataclass(slots=True)
class Journal:
    events: list[Event] = field(default_factory=list)
    limit: int = 100_000
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)

    def add(self, kind: str, function: str, detail: str = "", **more) -> Event:
        event = Event(kind, function, detail, **more)
        if len(self.events) < self.limit:
            self.events.append(event)
        for listener in self.listeners:
            listener(event)
        return event

    def offer(self, stage: str, function: str, text: Callable[[], str]) -> None:
        """Hands a stage's readable form to each reader that wants it; `text` is called only if there is one."""
        takers = [reader for reader in self.readers if reader.wants(stage)]
        if takers:
            made = text()
            for reader in takers:
                reader.read(stage, function, made)

    def time(self, stage: str, function: str) -> Stopwatch:
        """`with journal.time("lower", name): …` adds a "stage" event with the seconds that the block took."""
        return Stopwatch(self, stage, function)

    def count(self) -> Counter[str]:
        return Counter(event.kind for event in self.events)

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def clear(self) -> None:
        self.events.clear()


class Stopwatch:
    """Times a stage into a journal; see `Journal.time`."""

    def __init__(self, journal: Journal, stage: str, function: str):
        self.journal, self.stage, self.function = journal, stage, function

    def __enter__(self) -> Stopwatch:
        self.start = time.perf_counter()
        return self

    def __exit__(self, *exc) -> None:
        self.journal.add("stage", self.function, stage=self.stage, seconds=time.perf_counter() - self.start)
