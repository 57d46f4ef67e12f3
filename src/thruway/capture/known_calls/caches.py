"""Functions under functools.cache and lru_cache: an answer that the cache holds is a value found outside, at its place in the cache.

A call that would run the function is left to Python, for its effects. The call that found an answer is repeated behind the graph, so that
the cache counts it and keeps its order.
"""

from __future__ import annotations

import functools
import gc
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import Constant, DictValue, ObjectValue, TensorValue, TupleValue, Value
from thruway.capture.values.constants import NotConstant, as_python
from thruway.capture.values.effect import record
from thruway.capture.values.keys import key_of
from thruway.core.errors import NotNow
from thruway.frame.source import Item

Args = list[Value]
Kwargs = dict[str, Value]
Cached = functools._lru_cache_wrapper


class Answer:
    """What the cache holds for a key: the guard of a bounded cache, whose entries are no objects that a source could reach."""

    __slots__ = ("key", "result", "link", "misses")

    def __init__(self, cached: Cached, key: Any, result: Any):
        self.key, self.result = key, result
        self._settle(cached)

    def _settle(self, cached: Cached) -> None:
        self.link, self.misses = _table(cached).get(self.key), cached.cache_info().misses

    def __call__(self, cached: Cached) -> bool:
        """Whether it is still the answer. Where nothing was added since, the same link has the same result."""
        if cached.cache_info().misses == self.misses and _table(cached).get(self.key) is self.link:
            return True
        if _held(cached, self.key) is not self.result:
            return False
        self._settle(cached)
        return True


_NOTHING = object()


def _table(cached: Cached) -> dict[Any, Any]:
    """The dict that the cache keeps; nothing but the collector's view of the object leads there."""
    own = vars(cached)
    return next(part for part in gc.get_referents(cached) if type(part) is dict and part is not own)


def _held(cached: Cached, key: Any) -> Any:
    """The answer for `key`, or _NOTHING. A bounded cache shows its own type, each entry as key, result, type, and then its dict."""
    table = _table(cached)
    if key not in table:
        return _NOTHING
    if cached.cache_parameters()["maxsize"] is None:
        return table[key]
    parts = gc.get_referents(cached)
    link_type = type(table[key])
    entries = range(1, 3 * len(table), 3)
    return next((parts[i + 1] for i in entries if parts[i + 2] is link_type and parts[i] == key), _NOTHING)


def _key(cached: Cached, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The key that functools makes of a call."""
    typed = cached.cache_parameters()["typed"]
    if not typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        return args[0]
    mark = next(part for part in gc.get_referents(cached) if type(part) is object)
    key = args + ((mark, *(one for pair in kwargs.items() for one in pair)) if kwargs else ())
    return key + tuple(map(type, (*args, *kwargs.values()))) if typed else key


def _argument(state: State, value: Value) -> Any:
    """The real argument; an object found outside is guarded to be the same one, and must be hashed by its identity."""
    if isinstance(value, ObjectValue) and value.real is not None and key_of(state, value) is value:
        state.guard("identity", value.source, value.real)
        return value.real
    if isinstance(value, TensorValue):
        raise NotConstant
    return as_python(state, value)


def call_cached(state: State, args: Args, kwargs: Kwargs) -> Value:
    """`cached(*args, **kwargs)`."""
    function, *rest = args
    cached = function.value
    key = _key(cached, tuple(_argument(state, one) for one in rest), {name: _argument(state, one) for name, one in kwargs.items()})
    result = _held(cached, key)
    name = getattr(cached, "__qualname__", "a cached function")
    if result is _NOTHING and state.may_wait:
        raise NotNow(f"{name} runs, and has an answer at the next call")
    if result is _NOTHING:
        raise unsupported(state, "TW101", name)
    if cached.cache_parameters()["maxsize"] is None:
        value = state.wrap(state, result, Item(state.made(_table(cached)), key))
    else:
        state.guard("answer", function.source or state.made(cached), Answer(cached, key, result))
        value = state.wrap(state, result, state.made(result), True)
    record(state, "call", function, TupleValue(tuple(rest)), DictValue({name: (Constant(name), one) for name, one in kwargs.items()}))
    return value


ROWS = {vars(Cached)["__call__"]: call_cached}
