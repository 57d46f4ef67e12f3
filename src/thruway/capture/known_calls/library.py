"""The standard library: functools, contextlib, dataclasses, collections, copy, weakref; and the checks of `torch._check`."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import Inline, State
from thruway.capture.values.attribute import get_attribute
from thruway.capture.values.base import NONE, Constant, FunctionValue, MethodValue, PartialValue, TupleValue, Value
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import as_python, from_python
from thruway.capture.values.iterate import items_of
from thruway.capture.values.subscript import get_item
from thruway.capture.values.types_ import python_type

Args = list[Value]
Kwargs = dict[str, Value]


def reduce(state: State, args: Args, kwargs: Kwargs) -> Value:
    function, iterable, *initial = args
    items = items_of(state, iterable)
    result = initial[0] if initial else items.pop(0)
    for item in items:
        result = state.call(function, [result, item])
    return result


def dataclass_fields(state: State, args: Args, kwargs: Kwargs) -> Value:
    """The Field objects; they are part of the class."""
    cls = args[0].value if isinstance(args[0], Constant) else python_type(args[0])
    return TupleValue(tuple(Constant(field) for field in dataclasses.fields(cls)))


def made(function: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """A getter or caller of `operator`, made of constants."""
    return lambda state, args, kwargs: Constant(function(*(as_python(state, a) for a in args), **{k: as_python(state, v) for k, v in kwargs.items()}))


def get_items(state: State, args: Args, kwargs: Kwargs) -> Value:
    """operator.itemgetter(…)(value)."""
    getter, value = args
    _, keys = getter.value.__reduce__()
    found = tuple(run_inline(state, get_item(state, value, from_python(state, key))) for key in keys)
    return found[0] if len(found) == 1 else TupleValue(found)


def get_attributes(state: State, args: Args, kwargs: Kwargs) -> Value:
    """operator.attrgetter(…)(value); names may have dots."""
    getter, value = args
    _, names = getter.value.__reduce__()
    found = tuple(functools.reduce(lambda owner, part: run_inline(state, get_attribute(state, owner, part)), name.split("."), value) for name in names)
    return found[0] if len(found) == 1 else TupleValue(found)


def call_method(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    """operator.methodcaller(…)(value)."""
    caller, value = args
    function, given = caller.value.__reduce__()
    named = {}
    if isinstance(function, functools.partial):                # how keywords are kept
        given, named = (*function.args, *given), function.keywords
    name, *given = given
    method = run_inline(state, get_attribute(state, value, name))
    return call(state, method, [from_python(state, one) for one in given], {k: from_python(state, v) for k, v in named.items()})


class Compared:
    """What functools.cmp_to_key makes of an item."""

    __slots__ = ("function", "item")

    def __init__(self, function: Callable[[Any, Any], int], item: Any):
        self.function, self.item = function, item

    def __lt__(self, other: Compared) -> bool:
        return self.function(self.item, other.item) < 0


def key_by_comparison(state: State, args: Args, kwargs: Kwargs) -> Value:
    return PartialValue(state.wrap(state, Compared, state.made(Compared), True), (args[0] if args else kwargs["mycmp"],), {})


UNTOLD = "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement request to PyTorch.)"


def checked(error: type[Exception], condition: bool, message: Callable[[], object] | None) -> None:
    """What torch._check_with does, but for telling torch's own tracer what it may expect."""
    if not condition:
        raise error(UNTOLD if message is None else str(message()))


def check_with(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    """torch._check_with(error type, condition, message)."""
    given = dict(zip(("error_type", "cond", "message"), args)) | kwargs
    error, condition, message = given["error_type"], given["cond"], given.get("message", NONE)
    is_error = isinstance(error, Constant) and issubclass(error.value, Exception) and not issubclass(error.value, Warning)
    if not is_error or python_type(condition) is not bool or not (message is NONE or isinstance(message, FunctionValue | MethodValue | PartialValue)):
        raise unsupported(state, "TW101", "torch._check_with")
    return call(state, state.wrap(state, checked, state.made(checked), True), [error, condition, message], {})


ROWS = {
    torch._check_with: check_with,
    functools.cmp_to_key: key_by_comparison,
    torch.jit.annotate: lambda state, args, kwargs: args[1] if len(args) > 1 else kwargs["the_value"],
    functools.reduce: reduce, dataclasses.fields: dataclass_fields,
    operator.itemgetter: made(operator.itemgetter), operator.attrgetter: made(operator.attrgetter), operator.methodcaller: made(operator.methodcaller),
    vars(operator.itemgetter)["__call__"]: get_items, vars(operator.attrgetter)["__call__"]: get_attributes,
    vars(operator.methodcaller)["__call__"]: call_method,
}
