"""Functions that the standard library makes for the user's: dispatch by type, and representations that watch for recursion.

All functions of one kind share a code object, which is what their rows are found by.
"""

from __future__ import annotations

import dataclasses
import functools
import reprlib
import sys
import types
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.state import Inline, State
from thruway.capture.values.attribute import get_attribute
from thruway.capture.values.base import NONE, Constant, DictValue, FunctionValue, MethodValue, ObjectValue, TupleValue, Value
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import as_python

Args = list[Value]
Kwargs = dict[str, Value]


class Dispatched:
    """A guard: which function a single-dispatch function has for a class. `key` is what it is shown by."""

    __slots__ = ("key", "found")

    def __init__(self, key: type, found: Any):
        self.key, self.found = key, found

    def __call__(self, dispatch: types.FunctionType) -> bool:
        return dispatch(self.key) is self.found


def dispatched(state: State, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """functools.singledispatch(…).dispatch(cls)."""
    cls = as_python(state, args[0])
    found = function.real(cls)
    state.guard("answer", function.source, Dispatched(cls, found))
    return state.wrap(state, found, state.made(found), True)


def representation(state: State, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | Inline:
    """`__repr__` under reprlib.recursive_repr: "..." where it is being asked of the same object already."""
    owner = args[0]
    asking = [frame for frame in state.frames if frame.locals.get(".asked") is owner]
    if asking:
        return Constant("...")
    wrapped = run_inline(state, get_attribute(state, function, "__wrapped__"))
    result = call(state, wrapped, args, kwargs)
    if isinstance(result, Inline):
        result.frame.locals[".asked"] = owner
    return result


@functools.singledispatch
def _sample(value: Any) -> None:
    """A function of the kind."""


@reprlib.recursive_repr()
def _shown(self: Any) -> str:
    return ""


@dataclasses.dataclass
class _Sample:
    value: int


class NothingHandled:
    """A guard: no exception is being handled where the compiled function is called."""

    key = "exception"

    def __call__(self, _: object) -> bool:
        return sys.exception() is None


def handled_error(state: State, args: Args, kwargs: Kwargs) -> Value:
    """sys.exc_info(), where nothing is being handled."""
    if sys.exception() is not None or any(frame.handled for frame in state.frames):
        raise unsupported(state, "TW101", "sys.exc_info")
    state.guard("answer", state.made(None), NothingHandled())
    return TupleValue((NONE, NONE, NONE))


def bound(state: State, args: Args, kwargs: Kwargs) -> Value:
    """function.__get__(owner, cls)."""
    function, owner, *_ = args
    return function if isinstance(owner, Constant) and owner.value is None else MethodValue(function, owner)


def plain_namespace(state: State, args: Args, kwargs: Kwargs) -> Value:
    """types.SimpleNamespace(**kwargs)."""
    made = ObjectValue(state.class_of(types.SimpleNamespace, None))
    made.attributes = DictValue({name: (Constant(name), value) for name, value in kwargs.items()})
    return made


ROWS = {
    _sample.dispatch.__code__: dispatched, _shown.__code__: representation, _Sample.__repr__.__code__: representation,
    sys.exc_info: handled_error, types.FunctionType.__get__: bound, types.SimpleNamespace: plain_namespace,
}
