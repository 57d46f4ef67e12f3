"""Raising a builtin exception inside the user's code, and making exception values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from thruway.capture.state import State, UserRaise
from thruway.capture.values.base import Constant, ObjectValue, Value
from thruway.core.errors import CompilerBug


def make_error(state: State, cls: type[BaseException], *args: Value) -> ObjectValue:
    value = ObjectValue(state.class_of(cls, None))
    value.new_args = args
    return value


def raise_error(state: State, cls: type[BaseException], *args: object) -> NoReturn:
    """Raises `cls(*args)` in the user's code; args are constants or Values."""
    raise UserRaise(make_error(state, cls, *(a if isinstance(a, Value) else Constant(a) for a in args)))


def raise_missing(state: State, owner: Value, name: str, cls: type) -> NoReturn:
    """AttributeError of reading `name` of an instance of `cls`."""
    error = make_error(state, AttributeError, Constant(f"'{cls.__name__}' object has no attribute '{name}'"))
    error.slots |= {"name": Constant(name), "obj": owner}
    raise UserRaise(error)


def raise_real(state: State, error: BaseException) -> NoReturn:
    """Raises what a pure function raised on constants. That capture itself stands too deep says nothing about the user's code."""
    if isinstance(error, RecursionError):
        raise error
    made = make_error(state, type(error), *(Constant(a) for a in error.args))
    if isinstance(getattr(error, "name", None), str):
        made.slots["name"] = Constant(error.name)
    raise UserRaise(made) from None


def raise_as_python_does(state: State, call: Callable[[], object]) -> NoReturn:
    """Raises what `call` raises: a stand-in for the user's call that fails as it does, with this Python's own words."""
    try:
        call()
    except Exception as error:
        raise_real(state, error)
    raise CompilerBug("capture", "a call that was to fail did not")
