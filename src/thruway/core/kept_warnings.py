"""Warnings that are kept instead of shown."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def kept_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """What this thread warns of inside, whatever the filters say. (`warnings.catch_warnings` would make all modules forget what they have
    warned of, and takes 8 µs.) Filters are one for all threads: another that looked meanwhile may put back what it saw after the end."""
    said: list[warnings.WarningMessage] = []
    filters, show, thread, is_open = warnings.filters, warnings.showwarning, threading.get_ident(), True

    def listen(*args: Any, **kwargs: Any) -> None:
        if is_open and threading.get_ident() == thread:
            said.append(warnings.WarningMessage(*args, **kwargs))
        else:
            show(*args, **kwargs)

    always = [("always", None, Warning, None, 0)]
    warnings.filters, warnings.showwarning = always, listen
    try:
        yield said
    finally:
        is_open = False
        always[:] = filters
        if warnings.filters is always:
            warnings.filters = filters
        if warnings.showwarning is listen:
            warnings.showwarning = show


def silent(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, whose warnings somebody else gives."""
    def call(*inputs: Any) -> Any:
        with kept_warnings():
            return run(*inputs)

    return call
