"""The process's settings: one current `Settings`, read from the environment at first use.

Only `pipeline` and the public surface read it; every stage gets a `Settings` value passed in. `thruway.settings` is this object.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from thruway.core.settings import LOGS, Settings, words_of

FIELDS = {field.name: field for field in fields(Settings)}


class AmbientSettings:
    """Reads and assigns like a module: `settings.dump = "out"`; `with settings.override(check=2): …` puts the old values back."""

    __slots__ = ("_value",)

    def __init__(self, value: Settings | None = None):
        object.__setattr__(self, "_value", value)

    def current(self) -> Settings:
        if self._value is None:
            object.__setattr__(self, "_value", Settings.from_environment())
        return self._value

    @contextmanager
    def override(self, **changes: Any) -> Iterator[Settings]:
        before = self.current()
        object.__setattr__(self, "_value", changed(before, changes))
        try:
            yield self._value
        finally:
            object.__setattr__(self, "_value", before)

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(unknown_setting(name))
        return getattr(self.current(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in FIELDS:
            raise AttributeError(unknown_setting(name))
        object.__setattr__(self, "_value", changed(self.current(), {name: value}))

    def __dir__(self) -> list[str]:
        return [*FIELDS, "current", "override"]

    def __repr__(self) -> str:
        return repr(self.current())


def changed(base: Settings, changes: dict[str, Any], word: str = "setting") -> Settings:
    """`base` with `changes`; ValueError or TypeError says what is known where a name or a value does not fit. `word` is what they call them."""
    return replace(base, **{name: _fitting(name, value, word) for name, value in changes.items()})


def _fitting(name: str, value: Any, word: str) -> Any:
    """`value` as the setting holds it: paths as texts, 0 and 1 as False and True, topics from a list or from a text with commas."""
    if name not in FIELDS:
        raise ValueError(unknown_setting(name, word))
    wanted = type(FIELDS[name].default)
    if wanted is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if wanted is bool and type(value) is int and value in (0, 1):
        value = bool(value)
    if wanted is tuple and isinstance(value, str):
        value = words_of(value)
    if wanted is tuple and isinstance(value, list):
        value = tuple(value)
    if type(value) is not wanted:
        raise TypeError(f"{word} {name!r} takes {wanted.__name__}, not {type(value).__name__}")
    if name == "logs" and (unknown := [one for one in value if one not in (*LOGS, "help")]):
        raise ValueError(f"unknown log topic {unknown[0]!r}; known: {', '.join(LOGS)}")
    return value


def unknown_setting(name: object, word: str = "setting") -> str:
    return f"unknown {word} {name!r}; known: {', '.join(FIELDS)}"


settings = AmbientSettings()
