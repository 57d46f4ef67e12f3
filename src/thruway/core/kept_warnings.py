"""Warnings that are kept instead of shown."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

ALWAYS = [("always", None, Warning, None, 0)]


@contextlib.contextmanager
def kept_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """What is warned of inside, whatever the filters say. (`warnings.catch_warnings` would make all modules forget what they have warned of,
    and takes 8 µs.)"""
    said: list[warnings.WarningMessage] = []
    filters, show = warnings.filters, warnings.showwarning
    warnings.filters, warnings.showwarning = ALWAYS, lambda *args, **kwargs: said.append(warnings.WarningMessage(*args, **kwargs))
    try:
        yield said
    finally:
        warnings.filters, warnings.showwarning = filters, show


def silent(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, whose warnings somebody else gives."""
    def call(*inputs: Any) -> Any:
        with kept_warnings():
            return run(*inputs)

    return call
