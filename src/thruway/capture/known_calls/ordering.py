"""heapq and bisect: their own C code runs over wrapped values, whose `<` is the user's."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import FALSE, NONE, Constant, ListValue, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.compare import compare
from thruway.capture.values.constants import as_python
from thruway.capture.values.errors import raise_real
from thruway.capture.values.iterate import items_of
from thruway.capture.values.mutate import replace_items
from thruway.capture.values.order import sort_values
from thruway.capture.values.truth import truth

Args = list[Value]
Kwargs = dict[str, Value]


class Ordered:
    """A Value that Python can compare with `<`."""

    __slots__ = ("state", "value")

    def __init__(self, state: State, value: Value):
        self.state, self.value = state, value

    def __lt__(self, other: Ordered) -> bool:
        return truth(self.state, run_inline(self.state, compare(self.state, "<", self.value, other.value)))


def over_list(function: Callable[..., Any], writes: bool):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        target, *rest = args
        if not isinstance(target, ListValue) or kwargs.keys() - {"key", "lo", "hi"}:
            raise unsupported(state, "TW101", function.__name__)
        wrapped = [Ordered(state, item) for item in target.items]
        bounds = {name: as_python(state, one) for name, one in kwargs.items() if name != "key"}
        if kwargs.get("key", NONE) is not NONE:
            bounds["key"] = lambda one: Ordered(state, state.call(kwargs["key"], [one.value]))
        try:
            result = function(wrapped, *(Ordered(state, one) for one in rest[:1]), *(as_python(state, one) for one in rest[1:]), **bounds)
        except IndexError as error:
            raise_real(state, error)
        if writes:
            replace_items(state, target, [one.value for one in wrapped])
        return result.value if isinstance(result, Ordered) else NONE if result is None else Constant(result)
    return handler


def extreme_items(largest: bool):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        key = args[2] if len(args) > 2 else kwargs.get("key", NONE)
        found = sort_values(state, items_of(state, args[1]), key, Constant(True) if largest else FALSE)
        return ListValue(found[:max(0, as_python(state, args[0]))])
    return handler


ROWS = {
    **{function: over_list(function, True) for function in (heapq.heappush, heapq.heappop, heapq.heapify, heapq.heapreplace, heapq.heappushpop,
                                                             bisect.insort_left, bisect.insort_right)},
    **{function: over_list(function, False) for function in (bisect.bisect_left, bisect.bisect_right)},
    heapq.nlargest: extreme_items(True), heapq.nsmallest: extreme_items(False),
}
