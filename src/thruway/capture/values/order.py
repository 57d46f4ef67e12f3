"""Sorting Values with Python's own stable sort; each comparison is the user's."""

from __future__ import annotations

import functools

from thruway.capture.state import State
from thruway.capture.values.base import NONE, Constant, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.compare import compare
from thruway.capture.values.errors import raise_real
from thruway.capture.values.truth import truth


def sort_values(state: State, items: list[Value], key: Value, reverse: Value) -> list[Value]:
    """`sorted(items, key=key, reverse=reverse)`."""
    keys = items if key is NONE else [state.call(key, [item]) for item in items]
    backwards = truth(state, reverse)
    if all(isinstance(k, Constant) for k in keys):
        try:
            order = sorted(range(len(items)), key=lambda i: keys[i].value, reverse=backwards)
        except TypeError as error:
            raise_real(state, error)
    else:
        order = sorted(range(len(items)), key=functools.cmp_to_key(lambda i, j: _compare(state, keys[i], keys[j])), reverse=backwards)
    return [items[i] for i in order]


def _compare(state: State, left: Value, right: Value) -> int:
    """-1 where left < right, else 1 where right < left, else 0: only `<` is asked, as Python's sort does."""
    if truth(state, run_inline(state, compare(state, "<", left, right))):
        return -1
    return 1 if truth(state, run_inline(state, compare(state, "<", right, left))) else 0
