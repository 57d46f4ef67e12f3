"""Effects that wait, and the undo log. A region is a transaction: `mark` and `rollback` make speculation possible.

Steps are a small program that `emit` prints in order: objects built, writes to objects that exist by then, calls whose result nobody uses.
An object made inside becomes *exposed* when a step refers to it: it is built there, as it was then, and later writes to it are steps too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from thruway.capture.values.base import Value
from thruway.core.errors import Unsupported, UserLine

NEVER, ALWAYS = -1, sys.maxsize             # ages of what no side of a branch may change, and of what each one may


@dataclass(frozen=True, slots=True)
class Build:
    """Build the object made inside from `recipe` (see `emit.recipe`), as it was when this step was recorded."""

    value: Value
    recipe: tuple


@dataclass(frozen=True, slots=True)
class Write:
    """`operation` is a name in emit's table (setattr, setitem, append, …), applied to operands."""

    operation: str
    operands: tuple
    where: UserLine | None = None


@dataclass(frozen=True, slots=True)
class Choose:
    """The steps of the side of a branch that ran: `condition` is the truth value that a tensor holds, `age` that of what the sides made."""

    condition: Value
    when_true: tuple[Step, ...]
    when_false: tuple[Step, ...]
    age: int


Step = Build | Write | Choose


class ExposeFirst(Unsupported):
    """A side of a branch refers to `value`, which is older: it has to be built before the branch."""

    def __init__(self, value: Value):
        super().__init__("TW103", "a side of the branch hands on something that is older than the branch")
        self.value = value


def each_step(steps: Iterable[Step]) -> Iterator[Build | Write]:
    """The steps, and those within sides of branches."""
    for step in steps:
        if isinstance(step, Choose):
            yield from each_step((*step.when_true, *step.when_false))
        else:
            yield step


@dataclass(slots=True)
class Effects:
    steps: list[Step] = field(default_factory=list)
    undo: list[Callable[[], None]] = field(default_factory=list)
    oldest: int = NEVER                     # within a side of a branch, the age of the oldest value that it may change

    def mark(self) -> tuple[int, int]:
        return len(self.steps), len(self.undo)

    def rollback(self, mark: tuple[int, int]) -> None:
        """Takes back every step and in-memory change since `mark`, newest first."""
        del self.steps[mark[0]:]
        while len(self.undo) > mark[1]:
            self.undo.pop()()

    def remember(self, undo: Callable[[], None], age: int = NEVER) -> None:
        """Called before a change to something of that age."""
        if age < self.oldest:
            raise Unsupported("TW103", "a side of the branch changes something that is older than the branch")
        self.undo.append(undo)
