"""Artifact: all that a compiled graph needs to run again, as plain data, and its bytes for the store.

Binaries are named by their sources: a library that the store has lost is compiled again from the text.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass

import torch

from thruway.artifact.key import Key
from thruway.core.launch import LaunchList

_ROOMS = ("thruway.core.", "thruway.artifact.")
_BUILTINS = frozenset({"complex", "frozenset", "set", "slice", "range"})
_TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


@dataclass(frozen=True, slots=True)
class Artifact:
    """`key` names what it depends on; `more` is further plain data of the caller (guards, resume code), by name."""

    key: Key
    sources: tuple[str, ...]
    launch: LaunchList
    more: tuple[tuple[str, object], ...] = ()

    def to_bytes(self) -> bytes:
        stream = io.BytesIO()
        _DataPickler(stream, protocol=5).dump(self)
        return stream.getvalue()


def from_bytes(data: bytes) -> Artifact:
    """The Artifact of `to_bytes`. Only thruway's own data classes, plain values and torch's constants are read; anything else is an UnpicklingError."""
    found = _DataUnpickler(io.BytesIO(data)).load()
    if not isinstance(found, Artifact):
        raise pickle.UnpicklingError(f"not an artifact: {type(found).__name__}")
    return found


class _DataPickler(pickle.Pickler):
    def reducer_override(self, value: object) -> object:
        if isinstance(value, _TORCH_CONSTANTS):
            return torch_constant, (str(value).removeprefix("torch."),)
        return NotImplemented


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("torch", "device") or (module == "builtins" and name in _BUILTINS):
            return super().find_class(module, name)
        if module.startswith(_ROOMS) and "." not in name:
            found = super().find_class(module, name)
            if found is torch_constant or (isinstance(found, type) and found.__module__ == module):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} has no place in an artifact")


def torch_constant(name: str) -> object:
    """torch.float32, torch.strided, torch.channels_last and their like, by name."""
    value = getattr(torch, name, None)
    if not isinstance(value, _TORCH_CONSTANTS):
        raise pickle.UnpicklingError(f"torch.{name} is no constant")
    return value
