"""Calls whose result nobody uses and that only tell somebody something: print, logging, warnings. They wait and run after the graph."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.callers import caller_at
from thruway.capture.state import State
from thruway.capture.values.base import NONE, Constant, DictValue, TupleValue, Value
from thruway.capture.values.constants import as_python
from thruway.capture.values.effect import record
from thruway.frame import source as S

Args = list[Value]
Kwargs = dict[str, Value]


def waits(target: object):
    """A row that records the call."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        record(state, "call", Constant(target), TupleValue(tuple(args)), DictValue({k: (Constant(k), v) for k, v in kwargs.items()}))
        return NONE
    return handler


def placed(target: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """A row for a call that looks at its caller's line: it is repeated from a function that stands there."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if target in WITH_ERROR or "exc_info" in kwargs:
            raise unsupported(state, "TW101", target.__qualname__)          # looks at the exception being handled
        level = as_python(state, kwargs.get("stacklevel", args[2] if target is warnings.warn and len(args) > 2 else Constant(1)))
        frames = state.frames[-1].chain()
        if level > len(frames):                                 # beyond the compiled function: behind `finish`
            kwargs = kwargs | {"stacklevel": Constant(level - len(frames) + 2)}
        elif level > 1:
            kwargs = kwargs | {"stacklevel": Constant(1)}
        at = frames[-min(max(level, 1), len(frames))]
        rest = args[:2] if target is warnings.warn and "stacklevel" in kwargs else args
        function = Constant(caller_at(at, at.line() or at.code.co_firstlineno))
        record(state, "call", function, TupleValue((Constant(target), *rest)), DictValue({k: (Constant(k), v) for k, v in kwargs.items()}))
        return NONE
    return handler


def get_logger(state: State, args: Args, kwargs: Kwargs) -> Value:
    """A logger that exists already; that its name still stands for it is guarded."""
    name = as_python(state, args[0]) if args else None
    found = logging.getLogger() if name is None else logging.Logger.manager.loggerDict.get(name)
    if not isinstance(found, logging.Logger):
        raise unsupported(state, "TW101", "logging.getLogger")
    place = S.Global("root", "logging") if name is None else S.Item(LOGGERS, name)
    state.guard("identity", place, found)
    return state.wrap(state, found, state.made(found), True)


LOGGERS = S.Attr(S.Attr(S.Global("Logger", "logging"), "manager"), "loggerDict")
WITH_ERROR = frozenset({logging.exception, logging.Logger.exception})
LOGGER_METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log", "warn")
ROWS = {
    print: waits(print), logging.getLogger: get_logger, warnings.warn: placed(warnings.warn),
    **{getattr(logging.Logger, name): placed(getattr(logging.Logger, name)) for name in LOGGER_METHODS},
    **{getattr(logging, name): placed(getattr(logging, name)) for name in ("debug", "info", "warning", "error", "critical", "exception", "log")},
}
