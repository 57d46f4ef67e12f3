"""The items of `*iterable`, and the pairs of a mapping as `**mapping` and dict.update read them; what Python says where they are neither."""

from __future__ import annotations

from collections.abc import Callable

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.attribute import find_attribute
from thruway.capture.values.base import Constant, DictValue, FunctionValue, MethodValue, ObjectValue, Value, known_text
from thruway.capture.values.call import run_inline
from thruway.capture.values.errors import raise_error
from thruway.capture.values.iterate import items_of
from thruway.capture.values.mapping import complete
from thruway.capture.values.subscript import get_item
from thruway.capture.values.types_ import python_type


def starred_items(state: State, value: Value, place: Callable[[], str]) -> list[Value]:
    """The items of `*value`; `place` says where it stands."""
    cls = python_type(value)
    if not hasattr(cls, "__iter__") and not hasattr(cls, "__getitem__"):
        raise_error(state, TypeError, f"{place()} after * must be an iterable, not {cls.__name__}")
    return items_of(state, value)


def shown_callee(state: State, function: Value) -> str:
    """The function as errors of its call name it."""
    if isinstance(function, MethodValue) and isinstance(function.function, Constant):
        return f"{python_type(function.owner).__qualname__}.{function.function.value.__name__}()"
    name, module = find_attribute(state, function, "__qualname__"), find_attribute(state, function, "__module__")
    if isinstance(name, Constant):
        return f"{name.value}()" if not isinstance(module, Constant) or module.value in (None, "builtins") else f"{module.value}.{name.value}()"
    if name is None and isinstance(function, Constant):
        return str(function.value)
    raise unsupported(state, "TW105", python_type(function).__name__)


def keyword(state: State, key: Value, function: Value) -> str:
    """The key as the name of an argument of `function`. C functions have words of their own for what is no text."""
    key = known_text(key)
    if isinstance(key, Constant) and isinstance(key.value, str):
        return key.value
    called = function.function if isinstance(function, MethodValue) else function
    if isinstance(called, FunctionValue) and not issubclass(python_type(key), str):
        raise_error(state, TypeError, "keywords must be strings")
    raise unsupported(state, "TW105", f"a keyword of type {python_type(key).__name__}")


def mapping_items(state: State, value: Value, refused: Callable[[], str] | None = None) -> list[tuple[Value, Value]]:
    """`refused` gives the words for what is no mapping; without it that is not captured."""
    match value:
        case DictValue():
            complete(state, value)
            return list(value.items.values())
        case ObjectValue(storage=DictValue()) if _uses_dict_iteration(state, value):
            return mapping_items(state, value.storage)
        case ObjectValue():
            keys = find_attribute(state, value, "keys")
            if keys is not None:
                return [(key, run_inline(state, get_item(state, value, key))) for key in items_of(state, state.call(keys, []))]
        case Constant() if hasattr(value.value, "keys"):
            return [(Constant(k), Constant(v)) for k, v in dict(value.value).items()]
    if refused is not None and not hasattr(python_type(value), "keys"):
        raise_error(state, TypeError, refused())
    raise unsupported(state, "TW105", python_type(value).__name__)


def _uses_dict_iteration(state: State, value: ObjectValue) -> bool:
    base = value.storage.cls
    return all(state.type_lookup(value.cls, name) is base.__dict__.get(name, dict.__dict__[name]) for name in ("keys", "__iter__", "__getitem__"))
