"""Tracebacks of errors that are raised and handled inside: an entry per frame that the error leaves or is caught in, as Python adds them."""

from __future__ import annotations

from thruway.capture.breaks import unsupported
from thruway.capture.state import FOLDERS, Frame, State
from thruway.capture.values.base import NONE, Constant, ObjectValue, TracebackValue, Value
from thruway.capture.wrap import wrap
from thruway.frame.source import Attr

TRACEBACK = "__traceback__"


def traceback_of(state: State, error: ObjectValue) -> Value:
    """`error.__traceback__`."""
    held = error.slots.get(TRACEBACK)
    if held is None and error.real is not None and error.source is not None:
        held = error.slots[TRACEBACK] = wrap(state, error.real.__traceback__, Attr(error.source, TRACEBACK))
    return held or NONE


def longer_traceback(state: State, error: Value, frame: Frame) -> TracebackValue | None:
    """The error's traceback once it was raised in `frame`; None where nothing is added: an error on its way again, and code of ours."""
    at = frame.pc - 1
    ins = frame.program[at][1]
    again = ins.op == "RERAISE" or ins.op == "RAISE_VARARGS" and ins.arg == 0
    if again or not isinstance(error, ObjectValue) or frame.code.co_filename.startswith(FOLDERS[1]):
        return None
    return TracebackValue(frame, at, traceback_of(state, error))


def read_traceback(state: State, value: TracebackValue, name: str) -> Value:
    """An attribute of a traceback."""
    match name:
        case "tb_next":
            return value.following
        case "tb_lineno":
            return Constant(value.frame.program[value.index][1].position[0])
        case _:
            raise unsupported(state, "TW102", name, "traceback")
