"""`thruway doctor`: what thruway found on this machine, as (what, found, is it well) rows."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch

import thruway
from thruway import native
from thruway.artifact.store import StoreRefused, open_store
from thruway.artifact.toolchain import NO_COMPILER, find_command
from thruway.core.ambient import settings
from thruway.core.settings import Settings
from thruway.surface.versions import why_not

Finding = tuple[str, str, bool]


def examine() -> Iterator[Finding]:
    reason = why_not(sys.version_info[:2], torch.__version__)
    yield "thruway", thruway.__version__, True
    yield "Python", platform.python_version(), not reason.startswith("Python")
    yield "torch", torch.__version__, not reason.startswith("torch")
    if reason:
        yield "support", f"not for {reason}: everything runs eager", False
    yield _native_core()
    yield _compiler()
    yield _cache()
    yield from _changed_settings()
    yield "GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none", True


def _native_core() -> Finding:
    native.prepare()
    found = native.features()
    if not found["native"]:
        return "native core", f"not used, calls are slower: {found['reason']}", False
    return "native core", "used" + ("" if found["state"] else ", torch's modes read in Python") + (", with frame hook" if found["hook"] else ""), True


def _compiler() -> Finding:
    command = find_command(settings.compiler, os.environ)
    return "C compiler", " ".join(command) if command else NO_COMPILER, command is not None


def _cache() -> Finding:
    try:
        store = open_store(settings.current())
    except StoreRefused as refused:
        return "cache folder", str(refused), False
    return "cache folder", f"{store.folder} ({cache_mb(store.folder):.1f} of {settings.cache_size_mb} MB)", True


def _changed_settings() -> Iterator[Finding]:
    """The settings that are not the defaults here; with `disable` nothing is compiled, which is worth a warning."""
    for each in fields(Settings):
        if (value := getattr(settings, each.name)) != each.default:
            yield "setting", f"{each.name} = {value!r}" + (": everything runs eager" if each.name == "disable" else ""), each.name != "disable"


def cache_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 2**20
