"""Names of the attributes by which the public surface marks objects for capture.

ORIGINAL, on the type of a compiled object: what it was compiled from. DISABLED, on a function: why it is never captured.
"""

from __future__ import annotations

from typing import Any

ORIGINAL = "_thruway_original"
DISABLED = "_thruway_disabled"


def original_of(value: Any) -> Any:
    """The module or function that `value` was compiled from; `value` itself where it is not a compiled object."""
    if isinstance(value, type) or not hasattr(type(value), ORIGINAL):
        return value
    return getattr(value, ORIGINAL)


def disabled_reason(function: Any) -> str | None:
    """Why `function` was marked with `thruway.disable` (perhaps an empty text), or None where it was not."""
    return getattr(function, DISABLED, None)
