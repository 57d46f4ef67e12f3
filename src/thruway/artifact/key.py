"""Cache keys: named entries whose digest names a file in the store.

An entry stands for something that changes what is stored; a setting that only changes what is printed or checked has none.
Since entries keep their names, a miss can be explained by the entries in which the nearest stored key differs.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from thruway.artifact.toolchain import PRELUDE, Toolchain
from thruway.core.settings import Settings
from thruway.core.target import Target

ABI = "1"                                    # raise when stored binaries or artifacts of older versions must not be used
CODE_SETTINGS = ("numerics",)                # the settings that change what is compiled; a test asks that every new one be sorted
OTHER_SETTINGS = ("disable", "logs", "dump", "check", "check_dir", "verify", "stop", "cache_dir", "cache_size_mb", "compiler", "break_notice", "measure",
                  "entry_limit_mb", "capture_below", "error_on_break", "stance", "tune_seconds")


@dataclass(frozen=True, slots=True)
class Key:
    """`kind` ("kernel", "graph") and entries (name, text) in order; equal keys have equal digests."""

    kind: str
    entries: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return json.dumps([self.kind, *map(list, self.entries)])

    @property
    def digest(self) -> str:
        return fingerprint(self.text)[:40]


def kernel_key(source: str, toolchain: Toolchain) -> Key:
    """The key of one compiled source. Kernels do not link against torch, so its version is no entry."""
    return Key("kernel", (
        ("source", fingerprint(source)),
        ("prelude", fingerprint(PRELUDE)),
        ("abi", ABI),
        ("compiler", toolchain.identity),
        ("command", " ".join(toolchain.command[1:])),
        ("flags", " ".join(toolchain.flags)),
        ("cpu", toolchain.cpu),
    ))


def graph_key(graph: str, settings: Settings, target: Target, torch_version: str, thruway_version: str, more: Iterable[tuple[str, str]] = ()) -> Key:
    """The key of a whole artifact. `graph` is a text that says all of the graph and its guards; `more` adds entries of the caller's own."""
    libraries = ",".join(sorted(target.library_calls))
    limits = f"{target.kind} {target.vector_bytes} {target.caches} {target.parallel_grain} {target.kernels}"
    return Key("graph", (
        ("graph", fingerprint(graph)),
        ("torch", torch_version),
        ("thruway", thruway_version),
        ("abi", ABI),
        ("python", f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"),
        ("target", limits),
        ("libraries", libraries),
        *((f"setting {name}", repr(getattr(settings, name))) for name in CODE_SETTINGS),
        *more,
    ))


def differences(key: Key, other: Key) -> tuple[str, ...]:
    """Names of the entries in which two keys differ."""
    mine, theirs = dict(key.entries), dict(other.entries)
    return tuple(name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name))


def explain_miss(key: Key, stored: Iterable[Key]) -> str:
    """One sentence: in which entries the nearest stored key of the same kind differs; one with the same first entry is nearer than any other."""
    subject = key.entries[0][0]
    unlike = (differences(key, other) for other in stored if other.kind == key.kind)
    near = min(unlike, key=lambda names: (subject in names, len(names)), default=None)
    if near is None:
        return f"nothing of kind {key.kind} is stored"
    return f"the nearest stored {key.kind} differs in: {', '.join(near)}" if near else "it is stored"


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
