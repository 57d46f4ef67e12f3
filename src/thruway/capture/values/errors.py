"""Raising a builtin exception inside the user's code, and making exception values."""

from __future__ import annotations

from typing import NoReturn

from thruway.capture.state import State, UserRaise
from thruway.capture.values.base import Constant, ObjectValue, Value


def make_error(state: State, cls: type[BaseException], *args: Value) -> ObjectValue:
    value = ObjectValue(state.class_of(cls, None))
    value.new_args = args
    return value


def raise_error(state: State, cls: type[BaseException], *args: object) -> NoReturn:
    """Raises `cls(*args)` in the user's code; args are constants or Values."""
    raise UserRaise(make_error(state, cls, *(a if isinstance(a, Value) else Constant(a) for a in args)))


def raise_real(state: State, error: BaseException) -> NoReturn:
    """Raises what a pure function raised on constants."""
    raise UserRaise(make_error(state, type(error), *(Constant(a) for a in error.args))) from None
