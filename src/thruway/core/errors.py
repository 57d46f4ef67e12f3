"""The kinds of failure.

`Unsupported` never reaches a user unless fullgraph=True: it becomes a recorded `BreakReason` and that stretch runs eager.
`CompilerBug` is ours: the stretch runs eager too, the journal keeps it, and tests fail on it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserLine:
    """A place in the user's source: file name, 1-based line, function name, and the text of the line where it could be read."""

    file: str
    line: int
    function: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class BreakReason:
    """Why a stretch is not in a graph. `code` is a catalogue code ("TW103"), `what` the construct, `hint` what helps."""

    code: str
    what: str
    hint: str = ""
    where: UserLine | None = None

    def __str__(self) -> str:
        place = f"{self.where}\n  " if self.where else ""
        return f"{place}{self.code}: {self.what}" + (f"\n  hint: {self.hint}" if self.hint else "")


def out_of_range(index: int, position: int, size: int) -> str:
    """What torch says of the integer that stands at `position` in a subscript."""
    return f"index {index} is out of bounds for dimension {position} with size {size}"


class ThruwayError(Exception):
    """What thruway raises on purpose to a user."""


class FullGraphError(ThruwayError):
    """fullgraph=True, and something cannot be captured."""

    def __init__(self, reason: BreakReason):
        super().__init__(str(reason))
        self.reason = reason


class RecompileError(ThruwayError, RuntimeError):
    """The stance is "fail_on_recompile", and no entry answers a call."""


class BackendError(ThruwayError):
    """A backend callable of the user's own failed; its error is the cause."""


class CheckError(ThruwayError, AssertionError):
    """Shadow mode: compiled code does another thing than eager. `place` says where, `stage` and `node` what differs first, `line` the user's
    line of that node, `script` a file that reproduces it (where one could be written)."""

    def __init__(self, text: str, place: str, stage: str, node: str = "", line: UserLine | None = None, script: str = ""):
        super().__init__(text)
        self.place, self.stage, self.node, self.line, self.script = place, stage, node, line, script


class Unsupported(Exception):
    """Something that this stage cannot take; carries the reason. Internal."""

    def __init__(self, code: str, what: str, hint: str = "", where: UserLine | None = None):
        super().__init__(f"{code}: {what}")
        self.reason = BreakReason(code, what, hint, where)


class NotNow(Exception):
    """This call is to run as it is, without an entry: the next one can be captured better. Internal."""


class CompilerBug(Exception):
    """A stage broke its own promise. `stage` names it; the pipeline adds what was compiled, and how to get the stages before it."""

    def __init__(self, stage: str, message: str):
        super().__init__(f"{stage}: {message}")
        self.stage = stage
