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
from thruway.artifact.gpu_kernels import has_triton, triton_version
from thruway.artifact.store import StoreRefused, open_store
from thruway.artifact.toolchain import NO_COMPILER, cpu_identity, find_command, is_found, probe
from thruway.core.ambient import settings as ambient
from thruway.core.settings import Settings
from thruway.report.logs import TOPICS
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
    try:
        settings = ambient.current()
    except ValueError as error:
        yield "settings", str(error), False
        settings = Settings()
    yield _compiler(settings)
    yield _cache(settings)
    yield from _changed_settings(settings)
    yield "GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none", True
    if torch.cuda.is_available():
        yield "Triton", triton_version() if has_triton() else "not installed, graphs on the GPU that need kernels run eager: pip install triton", has_triton()


def _native_core() -> Finding:
    native.prepare()
    found = native.features()
    if not found["native"]:
        return "native core", f"not used, calls are slower: {found['reason']}", False
    return "native core", "used" + ("" if found["state"] else ", torch's modes read in Python") + (", with frame hook" if found["hook"] else ""), True


def _compiler(settings: Settings) -> Finding:
    command = find_command(settings.compiler, os.environ)
    if settings.compiler and not is_found(settings.compiler):
        return "C compiler", f"no program is found for {settings.compiler!r}; {' '.join(command) if command else 'nothing'} is used", False
    if command is not None and probe(command, cpu_identity()) is None:
        return "C compiler", f"{' '.join(command)} does not compile one small loop; install gcc or clang, or name another in THRUWAY_CC", False
    return "C compiler", " ".join(command) if command else NO_COMPILER, command is not None


def _cache(settings: Settings) -> Finding:
    try:
        store = open_store(settings)
    except StoreRefused as refused:
        return "cache folder", str(refused), False
    return "cache folder", f"{store.folder} ({cache_mb(store.folder):.1f} of {settings.cache_size_mb} MB)", True


def _changed_settings(settings: Settings) -> Iterator[Finding]:
    """The settings that are not the defaults here; where one keeps from compiling, or names what is not there, that is worth a warning."""
    for each in fields(Settings):
        if (value := getattr(settings, each.name)) != each.default:
            complaint = _complaint(each.name, settings)
            yield "setting", f"{each.name} = {value!r}" + (f": {complaint}" if complaint else ""), not complaint


def _complaint(name: str, settings: Settings) -> str:
    if name in ("disable", "stop") or (name == "stance" and settings.stance == "force_eager"):
        return "everything runs eager"
    unknown = [topic for topic in settings.logs if topic not in (*TOPICS, "help")]
    return f"no topic is named {', '.join(unknown)}; known: {', '.join(TOPICS)}" if name == "logs" and unknown else ""


def cache_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 2**20
