"""Names of the attributes by which the public surface marks objects for capture.

ORIGINAL, on the type of a compiled object: what it was compiled from. DISABLED, on a function: why it is never captured. The others are set by `core.control`.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

ORIGINAL = "_thruway_original"
DISABLED = "_thruway_disabled"
ALLOWED = "_thruway_allowed"                 # on a function: calls of it are nodes of the graph
CONSTANT = "_thruway_constant"               # on a function: its result at capture stands for every call
STATIC = "_thruway_static"                   # on a tensor: dimensions that stay fixed
NATIVE = "thruway.native"                    # the room of the compiled function's type, in C or as its Python twin


def original_of(value: Any) -> Any:
    """The module, function or method that `value` was compiled from; `value` itself where it is not a compiled object."""
    kind = type(value)
    if kind is MethodType:
        function = original_of(value.__func__)
        return value if function is value.__func__ else MethodType(function, value.__self__)
    if hasattr(kind, ORIGINAL):
        return getattr(value, ORIGINAL)
    return getattr(value, "__wrapped__", value) if kind.__module__.startswith(NATIVE) else value


def is_compiled_type(kind: type) -> bool:
    """Whether objects of that type are compiled functions or modules."""
    return hasattr(kind, ORIGINAL) or kind.__module__.startswith(NATIVE) and kind.__name__ == "Compiled"


_marked: dict[int, tuple[Any, set[str]]] = {}        # callables that take no attributes


def mark(function: Any, name: str, value: Any) -> Any:
    """Marks a callable and gives it back."""
    try:
        setattr(function, name, value)
    except (AttributeError, TypeError):
        _marked.setdefault(id(function), (function, set()))[1].add(name)
    return function


def is_marked(function: Any, name: str) -> bool:
    """Whether `function` carries the mark; a class's or module's attribute of that name does not count for what it holds."""
    marks = getattr(function, "__dict__", None)
    return isinstance(marks, dict) and name in marks or id(function) in _marked and name in _marked[id(function)][1]


def disabled_reason(function: Any) -> str | None:
    """Why `function` was marked with `thruway.disable` (perhaps an empty text), or None where it was not."""
    return getattr(function, DISABLED, None)
