"""Weak references found outside: what they point to now is guarded."""

from __future__ import annotations

import weakref

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import ObjectValue, Value
from thruway.frame.source import WeakTarget

Args = list[Value]
Kwargs = dict[str, Value]


def target(state: State, args: Args, kwargs: Kwargs) -> Value:
    """`reference()`."""
    (reference,) = args
    if not isinstance(reference, ObjectValue) or reference.real is None:
        raise unsupported(state, "TW101", "a weak reference")
    return state.wrap(state, reference.real(), WeakTarget(reference.source))


ROWS = {weakref.ReferenceType.__call__: target}
