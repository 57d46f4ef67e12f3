"""Which Python and torch versions thruway compiles under. Elsewhere it warns once and everything runs eager."""

from __future__ import annotations

import functools
import re
import sys

import torch

from thruway.core.notice import warn

PYTHONS = ((3, 11), (3, 12))
OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 14)


def why_not(python: tuple[int, int], torch_version: str) -> str:
    """What is not supported about these versions; empty where they are."""
    if python not in PYTHONS:
        return f"Python {python[0]}.{python[1]} (supported: {', '.join(f'{a}.{b}' for a, b in PYTHONS)})"
    numbers = re.match(r"(\d+)\.(\d+)", torch_version)
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if not OLDEST_TORCH <= found <= NEWEST_TORCH:
        return f"torch {torch_version} (supported: {_show(OLDEST_TORCH)} to {_show(NEWEST_TORCH)})"
    return ""


def _show(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@functools.cache
def is_supported() -> bool:
    """Whether this process can compile; the first call warns where it cannot."""
    reason = why_not(sys.version_info[:2], torch.__version__)
    if reason:
        warn(f"nothing is compiled under {reason}: everything runs eager")
    return not reason
