"""Artifact: all that a compiled graph needs to run again, as plain data, and its bytes for the store.

Binaries are named by their sources: a library that the store has lost is compiled again from the text.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass

from thruway.artifact.key import Key
from thruway.core.launch import LaunchList

_ROOMS = ("thruway.core.", "thruway.artifact.")
_BUILTINS = frozenset({"complex", "frozenset", "set", "slice", "range"})


@dataclass(frozen=True, slots=True)
class Artifact:
    """`key` names what it depends on; `more` is further plain data of the caller (guards, resume code), by name."""

    key: Key
    sources: tuple[str, ...]
    launch: LaunchList
    more: tuple[tuple[str, object], ...] = ()

    def to_bytes(self) -> bytes:
        return pickle.dumps(self, protocol=5)


def from_bytes(data: bytes) -> Artifact:
    """The Artifact of `to_bytes`. Only thruway's own data classes and plain values are read; anything else is an UnpicklingError."""
    found = _DataUnpickler(io.BytesIO(data)).load()
    if not isinstance(found, Artifact):
        raise pickle.UnpicklingError(f"not an artifact: {type(found).__name__}")
    return found


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if module.startswith(_ROOMS) or (module == "builtins" and name in _BUILTINS):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in an artifact")
