"""Passes: plain functions value → value, held in tuples and run in order with checks, times and dumps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thruway.core.errors import CompilerBug


@dataclass(frozen=True, slots=True)
class Pass:
    """`after` names passes that must stand earlier in the same tuple; `why` gives the reason for that order or the pass."""

    fn: Callable[..., Any]
    after: tuple[str, ...] = ()
    why: str = ""

    @property
    def name(self) -> str:
        return self.fn.__name__


def check_order(passes: tuple[Pass, ...]) -> None:
    """ValueError where a pass stands before one that it must follow."""
    seen: set[str] = set()
    for one in passes:
        missing = [name for name in one.after if name not in seen]
        if missing:
            raise ValueError(f"pass {one.name} must come after {', '.join(missing)}: {one.why}")
        seen.add(one.name)


def run_passes(
    passes: tuple[Pass, ...],
    value: Any,
    *context: Any,
    verify: Callable[[Any], None] | None = None,
    report: Callable[[str, float, bool, Any], None] | None = None,
) -> Any:
    """Each pass in turn: `fn(value, *context)`, then `verify`, then `report(name, seconds, changed, value)`."""
    for one in passes:
        start = time.perf_counter()
        result = one.fn(value, *context)
        seconds = time.perf_counter() - start
        changed = result is not value
        value = result
        if verify is not None and changed:
            try:
                verify(value)
            except CompilerBug as bug:
                raise CompilerBug(one.name, str(bug)) from bug
        if report is not None:
            report(one.name, seconds, changed, value)
    return value
