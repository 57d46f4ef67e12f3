"""Warnings of thruway's own, at the line of the user's code that led to them."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from pathlib import Path

HOME = str(Path(__file__).parents[1])
BETWEEN = (functools.__file__, contextlib.__file__)          # may stand between two frames of ours


def warn(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warns "thruway: …" with the line of the innermost frame outside this package."""
    warnings.warn(f"thruway: {text}", category, stacklevel=_levels_of_ours() + 1)


def _levels_of_ours() -> int:
    """How many frames above this function's caller are not the user's."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_back.f_code.co_filename.startswith((HOME, "<frozen", "<thruway", *BETWEEN)):
        frame = frame.f_back
        levels += not frame.f_code.co_filename.startswith("<frozen importlib")           # which `warnings` does not count either
    return levels
