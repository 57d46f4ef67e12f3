"""The locals of the compiled function's own frame."""

from __future__ import annotations

from typing import Any

from thruway.capture.state import State
from thruway.capture.values.base import Value
from thruway.capture.wrap import wrap
from thruway.frame.source import Source


class LazyLocals(dict):
    """Arguments become Values, guarded, when they are first read: an argument that nobody reads guards nothing."""

    def __init__(self, state: State, pending: dict[str, tuple[Any, Source]]):
        super().__init__()
        self.state, self.pending = state, pending

    def get(self, name: str, default: Value | None = None) -> Value | None:
        if name in self.pending and not dict.__contains__(self, name):
            self[name] = wrap(self.state, *self.pending.pop(name))
        return super().get(name, default)

    def pop(self, name: str, default: Value | None = None) -> Value | None:
        found = self.get(name, default)
        super().pop(name, None)
        return found

    def __setitem__(self, name: str, value: Value) -> None:
        self.pending.pop(name, None)
        super().__setitem__(name, value)

    def items(self):
        for name in tuple(self.pending):
            self.get(name)
        return super().items()

    def forget(self, name: str) -> bool:
        """Deletes an argument that nobody read; whether there was one."""
        return self.pending.pop(name, None) is not None
