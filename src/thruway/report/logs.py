"""THRUWAY_LOGS: topics of the journal as plain text on stderr, and the lines that say of a function that it did not
compile whole, or compiles again and again.

Settings are read at each event, so that a topic can be switched on in the middle of a run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from thruway.core.ambient import settings
from thruway.core.journal import Event, Journal


@dataclass(frozen=True, slots=True)
class Topic:
    """`kinds` are journal events that it prints, `stages` the stages whose readable form it prints."""

    about: str
    kinds: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()


TOPICS = {
    "graph_breaks": Topic("stretches that run in plain Python, and why", ("graph_break", "eager")),
    "recompiles": Topic("guards that missed, old and new value", ("recompile",)),
    "graphs": Topic("each captured graph", ("graph",), ("captured",)),
    "guards": Topic("the guards of each entry, with the user's line", (), ("guards",)),
    "passes": Topic("each stage and pass with its seconds", ("stage",)),
    "loops": Topic("the loop program and the plan", (), ("loops", "plan")),
    "code": Topic("generated code", (), ("code",)),
    "cache": Topic("what the cache on disk had and lacked", ("cache_hit", "cache_miss")),
    "weights": Topic("folded and packed weights derived again, and those left unpacked for memory", ("repack", "unpacked")),
    "choices": Topic("numeric exceptions taken, layouts kept, and what was left to eager because it measured slower", ("numerics", "layout", "kept_eager")),
    "bugs": Topic("faults of thruway itself; the stretch ran eager", ("bug",)),
}


def attach(journal: Journal) -> None:
    """Prints what `settings.logs` asks for from now on. `help` and unknown topics list the known ones, once, here."""
    wanted = settings.current().logs
    unknown = [name for name in wanted if name not in TOPICS and name != "help"]
    if unknown:
        _print(f"thruway: unknown log topic {', '.join(unknown)}")
    if unknown or "help" in wanted:
        _print(describe_topics())
    printer = LogPrinter(_print)
    journal.listeners.append(printer.event)
    journal.readers.append(printer)


def describe_topics() -> str:
    width = max(map(len, TOPICS))
    return "\n".join(["THRUWAY_LOGS takes these topics, separated by commas:", *(f"  {name:{width}}  {topic.about}" for name, topic in TOPICS.items())])


RECOMPILES_TOLD = 16        # of one function, before a line says so
NO_COMPILER = "TW801"
RAISES = "TW107"            # the user's own error, which says what it is


class LogPrinter:
    """Listener and reader of a journal; `write` takes each text to print."""

    def __init__(self, write: Callable[[str], None]):
        self.write = write
        self.noticed: set[str] = set()
        self.recompiles: Counter[str] = Counter()
        self.waiting: dict[str, str] = {}                        # the notice of each function whose first call is not over yet

    def event(self, event: Event) -> None:
        topics = [name for name in settings.current().logs if name in TOPICS and event.kind in TOPICS[name].kinds]
        for name in topics:
            self.write(f"[{name}] {show_event(event)}")
        if event.kind in ("graph_break", "eager") and not topics:
            self._notice(event)
        elif event.kind == "recompile" and not topics:
            self._count(event)
        elif event.kind == "called" and event.function in self.waiting:
            self.write(self.waiting.pop(event.function))

    def wants(self, stage: str) -> bool:
        return any(stage in TOPICS[name].stages for name in settings.current().logs if name in TOPICS)

    def read(self, stage: str, function: str, text: str) -> None:
        self.write(f"[{stage}] {function}\n{text}")

    def _count(self, event: Event) -> None:
        """Each compilation takes a part of a second, and nothing else shows that they go on."""
        self.recompiles[event.function] += 1
        if self.recompiles[event.function] == RECOMPILES_TOLD and settings.current().break_notice:
            self.write(f"thruway: {event.function} was compiled again {RECOMPILES_TOLD} times, last for {event.detail}. "
                       "THRUWAY_LOGS=recompiles shows all, THRUWAY_BREAK_NOTICE=0 hides this line.")

    def _notice(self, event: Event) -> None:
        if event.reason is not None and event.reason.code == RAISES:
            return
        lacks_compiler = event.reason is not None and event.reason.code == NO_COMPILER
        about = NO_COMPILER if lacks_compiler else event.function
        if not settings.current().break_notice or about in self.noticed:
            return
        self.noticed.add(about)
        if lacks_compiler:                                      # news about the machine, once, and not about a function
            self.write(f"thruway: {event.reason.what} Until then torch's operators run the graphs. THRUWAY_BREAK_NOTICE=0 hides this line.")
            return
        why = f"{event.reason.code}: {event.reason.what}" if event.reason else event.detail
        place = event.where or (event.reason.where if event.reason else None)
        line = f" ({place.file}:{place.line})" if place else ""
        self.waiting[event.function] = (f"thruway: {event.function} does not run compiled as a whole: {why}{line}. "
                                        "THRUWAY_LOGS=graph_breaks shows all, THRUWAY_BREAK_NOTICE=0 hides this line.")


def show_event(event: Event) -> str:
    """One event in plain words."""
    parts = [event.function]
    if event.stage:
        parts.append(f"{event.stage} {event.seconds * 1e3:.2f} ms")
    if event.detail:
        parts.append(event.detail)
    elif event.kind == "graph":
        parts.append(f"graph of {len(event.items)} operator{'' if len(event.items) == 1 else 's'}")
    if event.reason is not None:
        parts.append(str(event.reason))
    elif event.where is not None and str(event.where) not in event.detail:
        parts.append(str(event.where))
    return " ".join(parts)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
