"""Blocks of C text under construction: nested scopes with lines, and what has been computed where."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Scope:
    """`level`: how many loops are open here. `guard`: what is evaluated only under a condition may not be hoisted above this scope.
    `values` maps a computation to the name that holds it, `known` conditions to their truth here."""

    level: int
    guard: bool = False
    lines: list[str] = field(default_factory=list)
    values: dict[object, str] = field(default_factory=dict)
    known: dict[object, bool] = field(default_factory=dict)

    def add(self, text: str) -> None:
        self.lines.extend(text.split("\n"))


def indented(lines: list[str], by: str = "    ") -> list[str]:
    return [line if line.startswith("#pragma") or not line else by + line for line in lines]


def block(head: str, scope: Scope, pragma: str = "") -> list[str]:
    """The scope's lines between `head {` and `}`, under a pragma."""
    return [*([pragma] if pragma else []), f"{head} {{".lstrip(), *indented(scope.lines), "}"]
