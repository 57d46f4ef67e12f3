"""Calls whose result nobody uses and that only tell somebody something: print, logging, warnings. They wait and run after the graph."""

from __future__ import annotations

import logging
import warnings

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import NONE, Constant, DictValue, TupleValue, Value
from thruway.capture.values.constants import as_python
from thruway.capture.values.effect import record

Args = list[Value]
Kwargs = dict[str, Value]


def waits(target: object):
    """A row that records the call."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        record(state, "call", Constant(target), TupleValue(tuple(args)), DictValue({k: (Constant(k), v) for k, v in kwargs.items()}))
        return NONE
    return handler



def get_logger(state: State, args: Args, kwargs: Kwargs) -> Value:
    """A logger that exists already."""
    name = as_python(state, args[0]) if args else None
    found = logging.getLogger() if name is None else logging.Logger.manager.loggerDict.get(name)
    if not isinstance(found, logging.Logger):
        raise unsupported(state, "TW101", "logging.getLogger")
    return state.wrap(state, found, state.made(found), True)


LOGGER_METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log", "warn")
ROWS = {
    print: waits(print), logging.getLogger: get_logger, warnings.warn: waits(warnings.warn),
    **{getattr(logging.Logger, name): waits(getattr(logging.Logger, name)) for name in LOGGER_METHODS},
    **{getattr(logging, name): waits(getattr(logging, name)) for name in ("debug", "info", "warning", "error", "critical", "exception", "log")},
}
