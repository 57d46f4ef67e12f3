"""Which code of the user's runs where an instruction raises: found from the exception table and the `except` clauses, without running them."""

from __future__ import annotations

from collections.abc import Callable

from thruway.bytecode.decode import ExceptionRange
from thruway.capture.state import Frame, State, UserRaise
from thruway.capture.values.base import Constant, Value

Passes = Callable[[Frame, ExceptionRange, int], bool]


def is_handled(state: State, frame: Frame, raised: tuple[type[BaseException], ...], passes: Passes) -> bool:
    """Whether code of the user's runs in `frame` where the running instruction raises one of `raised`. What Python tidies up by itself does not
    count, nor does a handler whose code from an instruction on `passes` says does not."""
    found = frame.handler()
    while found is not None:
        at = found.target
        if frame.program[at][1].op != "PUSH_EXC_INFO":
            at += [ins.op for _, ins in frame.program[at:]].index("RERAISE")
        else:
            at = _behind_clauses(state, frame, at + 1, raised)
            if frame.program[at][1].op != "RERAISE" and not passes(frame, found, at):
                return True
        found = next((each for each in frame.exceptions if each.start <= at < each.end), None)
    return False


def _behind_clauses(state: State, frame: Frame, at: int, raised: tuple[type[BaseException], ...]) -> int:
    """Where those `except` clauses from `at` on end that name only classes which none of `raised` belongs to."""
    while True:
        check, named = at, []
        while (one := frame.program[check][1]).op == "LOAD_GLOBAL" and not one.flag:            # with the flag it is for a call
            named.append(_global(state, frame, check))
            check += 1
        check += frame.program[check][1].op == "BUILD_TUPLE"
        if not named or frame.program[check][1].op != "CHECK_EXC_MATCH" or any(_may_match(cls, raised) for cls in named):
            return at
        at = frame.program[check + 1][1].target


def _global(state: State, frame: Frame, at: int) -> Value | None:
    """What the instruction at `at` loads; None where there is nothing of that name."""
    load, ins = frame.program[at]
    try:
        load(state, frame, ins)
    except UserRaise:
        return None
    return frame.stack.pop()


def _may_match(cls: Value | None, raised: tuple[type[BaseException], ...]) -> bool:
    return not isinstance(cls, Constant) or not isinstance(cls.value, type) or any(issubclass(each, cls.value) for each in raised)
