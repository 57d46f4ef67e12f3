"""Calls whose result nobody uses and that only tell somebody something: print, logging, warnings. They wait and run after the graph."""

from __future__ import annotations

import logging
import warnings

from thruway.capture.state import State
from thruway.capture.values.base import NONE, Constant, DictValue, TupleValue, Value
from thruway.capture.values.effect import record

Args = list[Value]
Kwargs = dict[str, Value]


def waits(target: object):
    """A row that records the call."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        record(state, "call", Constant(target), TupleValue(tuple(args)), DictValue({k: (Constant(k), v) for k, v in kwargs.items()}))
        return NONE
    return handler



LOGGER_METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log", "warn")
ROWS = {
    print: waits(print), warnings.warn: waits(warnings.warn),
    **{getattr(logging.Logger, name): waits(getattr(logging.Logger, name)) for name in LOGGER_METHODS},
    **{getattr(logging, name): waits(getattr(logging, name)) for name in ("debug", "info", "warning", "error", "critical", "exception", "log")},
}
