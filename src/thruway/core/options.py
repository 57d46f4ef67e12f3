"""What one call of `thruway.compile` asks for. The public surface makes it, already checked; `pipeline` reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from thruway.core.settings import Settings

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """`backend` is "thruway", "eager", or a callable `(graph_module, example_inputs) → callable`; other names are resolved
    before they get here. `overrides` are the settings that this compilation changes, as (field, value). `name` is what reports call
    the compiled thing; empty: the function's qualified name. `check`: that many first calls run eager beside. `backend_name`: the name
    that the user gave for a callable; empty: none."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable[..., Any] = "thruway"
    mode: str = "default"
    overrides: tuple[tuple[str, object], ...] = ()
    name: str = ""
    check: int = 0
    backend_name: str = ""

    def settings(self, ambient: Settings) -> Settings:
        """`ambient` with this compilation's own changes."""
        return replace(ambient, **dict(self.overrides)) if self.overrides else ambient
