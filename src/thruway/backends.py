"""Backends: a name → what compiles a captured graph. (thruway as a backend of torch.compile is `surface/as_backend.py`.)

A backend is "thruway", "eager" (run the captured graph), or a callable `(graph_module, example_inputs) → callable`. Names come from
the entry-point group `thruway_backends`, and after those from torch's own registry ("inductor", "openxla", …).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

OWN = ("thruway", "eager")
GROUP = "thruway_backends"
TORCH_GROUP = "torch_dynamo_backends"
FOR_DEVELOPERS = ("debug", "experimental")          # tags of torch's: names that work, but are not offered
TORCH_REGISTRY = "torch._dynamo.backends.registry"


def resolve(backend: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """"thruway" and "eager" as they are, any other name as the callable behind it. ValueError lists the known names."""
    if callable(backend) or backend in OWN:
        return backend
    if not isinstance(backend, str):
        raise TypeError(f"backend takes a name or a callable, not {type(backend).__name__}")
    installed = _installed(GROUP)
    if backend in installed:
        return installed[backend].load()
    registry = _torch_registry()
    if backend not in registry.list_backends(exclude_tags=()):
        raise ValueError(f"unknown backend {backend!r}; known: {', '.join(known_names())}")
    return registry.lookup_backend(backend)


def known_names() -> list[str]:
    """thruway's own, those of the two entry-point groups, and torch's where its registry is loaded already."""
    names = {*OWN, *_installed(GROUP), *_installed(TORCH_GROUP)}
    if TORCH_REGISTRY in sys.modules:
        names |= set(sys.modules[TORCH_REGISTRY].list_backends(exclude_tags=FOR_DEVELOPERS))
    return [*OWN, *sorted(names - set(OWN))]


def _installed(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def _torch_registry() -> Any:
    """torch's registry of backends. It loads torch._dynamo, so it is imported only for a name that nobody else knows."""
    return importlib.import_module(TORCH_REGISTRY)
