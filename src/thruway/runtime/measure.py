"""Times a compiled graph against the captured one, run by torch's operators, during the first calls, and keeps the faster.

A `Comparison` stands in an entry where the compiled graph would: it always answers with what compiled code gives, and runs the
operators on the same inputs beside it. Only for graphs that write nothing and draw nothing. The first `warm` calls are not timed. A clear
lead of compiled code ends it after a call or two; otherwise it takes PAIRS calls, or MANY of short ones. Eager must lead by MARGIN.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph

from thruway.core.kept_warnings import kept_warnings
from thruway.runtime.plain import calls_in, may_draw, may_write, name_of

MARGIN = 1.05
PAIRS, MANY = 5, 15
SHORT = 2e-4                   # seconds of a call of which MANY are cheap
LONGEST = 1.0                  # seconds from which on a second run would be felt
UNCOMPARED = frozenset({"embedding", "embedding_bag"})        # graphs with these are whole language models, in which a second run costs most
LEAD, CLEAR_LEAD = 0.8, 0.33   # ratios compiled/eager that end it after two calls, and after one: eager's first call pays for its own start
Graphs = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The faster graph, and the median seconds of a call of each (0 where nothing was compared); `won` says whether eager is kept."""

    graph: Graphs
    compiled: float = 0.0
    eager: float = 0.0
    won: bool = False


def is_comparable(graph: Graph) -> bool:
    """Whether running `graph` once more leaves no trace, and is worth it."""
    return not may_write(graph) and not may_draw(graph) and all(name_of(node) not in UNCOMPARED for node in calls_in(graph))


class Comparison:
    """Runs both while it is undecided; then `end` hears the verdict, once, and may put the faster one in its place.
    `wait` returns when the device has done what it was given; nothing is compared while `is_recording`."""

    def __init__(
        self, compiled: Graphs, plain: Graphs, warm: int = 1, wait: Callable[[], None] = lambda: None, is_recording: Callable[[], bool] = lambda: False,
    ):
        self.compiled, self.plain, self.warm, self.wait, self.is_recording = compiled, plain, warm, wait, is_recording
        self.end: Callable[[Verdict], None] = lambda verdict: None
        self.pairs: list[tuple[float, float]] = []
        self.winner: Graphs | None = None

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if self.winner is not None or self.warm or self.is_recording():
            result = (self.winner or self.compiled)(*inputs)
            self.warm = max(0, self.warm - 1)
            return result
        eager_first = len(self.pairs) % 2                        # who runs second finds the weights in the cache
        eager = self._time_plain(inputs) if eager_first else 0.0
        self.wait()
        start = time.perf_counter()
        result = self.compiled(*inputs)
        self.wait()
        compiled = time.perf_counter() - start
        if compiled > LONGEST:
            self._decide(Verdict(self.compiled))
            return result
        self.pairs.append((compiled, eager if eager_first else self._time_plain(inputs)))
        self._look()
        return result

    def _time_plain(self, inputs: tuple[Any, ...]) -> float:
        self.wait()
        with kept_warnings():                                    # nobody asked for this run
            start = time.perf_counter()
            try:
                self.plain(*inputs)
                self.wait()
            except Exception:                                    # no way to answer these inputs, then
                return float("inf")
            return time.perf_counter() - start

    def _look(self) -> None:
        ratios = [compiled / eager for compiled, eager in self.pairs]
        if len(ratios) <= 2 and max(ratios) < (CLEAR_LEAD, LEAD)[len(ratios) - 1]:
            self._decide(Verdict(self.compiled, *(statistics.median(times) for times in zip(*self.pairs))))
            return
        if len(ratios) <= (MANY if self.pairs[-1][0] < SHORT else PAIRS):
            return
        compiled, eager = (statistics.median(times) for times in zip(*self.pairs[1:]))
        won = statistics.median(ratios[1:]) > MARGIN
        self._decide(Verdict(self.plain if won else self.compiled, compiled, eager, won))

    def _decide(self, verdict: Verdict) -> None:
        if self.winner is None:
            self.winner = verdict.graph
            self.end(verdict)
