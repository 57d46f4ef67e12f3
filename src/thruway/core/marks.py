"""Names of the attributes by which the public surface marks objects for capture.

ORIGINAL, on the type of a compiled object: what it was compiled from. DISABLED, on a function: why it is never captured.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

ORIGINAL = "_thruway_original"
DISABLED = "_thruway_disabled"
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


def disabled_reason(function: Any) -> str | None:
    """Why `function` was marked with `thruway.disable` (perhaps an empty text), or None where it was not."""
    return getattr(function, DISABLED, None)
