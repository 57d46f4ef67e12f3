"""Warnings that torch gives while it runs over metadata: each becomes an effect at the place that eager names, once per call as in eager.

The words stay those of the capture, and the place is a line of torch's or the one that called torch: `values/warned.py` has what needs more.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from types import FunctionType

from thruway.capture.callers import caller_at, caller_in
from thruway.capture.refused import is_below
from thruway.capture.state import State
from thruway.capture.values.base import Constant, DictValue, TupleValue
from thruway.capture.values.effect import record
from thruway.core.kept_warnings import kept_warnings


@contextlib.contextmanager
def torch_warnings(state: State) -> Iterator[None]:
    """What torch warns of inside is told by every call of the entry, under the filters of that call."""
    with kept_warnings() as said:
        yield
    for one in said:
        state.has_warned = True
        arguments = Constant(warnings.warn), Constant(str(one.message)), Constant(one.category)
        record(state, "call", Constant(_caller(state, one)), TupleValue(arguments), DictValue({}))


def _caller(state: State, said: warnings.WarningMessage) -> FunctionType:
    """A function at the place of `said`: a line of torch's, or the user's that called torch, which stands for thruway's own."""
    for name, module in tuple(sys.modules.items()):
        if is_below(name, ("torch",)) and getattr(module, "__file__", None) == said.filename:
            return caller_in(said.filename, said.lineno, "caller", "caller", module.__dict__)
    at = state.frames[-1].chain()[-1]
    return caller_at(at, at.line() or at.code.co_firstlineno)
