"""thruway behind torch's capture: `torch.compile(model, backend="thruway")`, found through torch's entry-point group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import GraphModule

from thruway.core.ambient import settings
from thruway.core.options import CompileOptions
from thruway.surface import lazy, versions
from thruway.surface.api import checked_mode, checked_overrides


def thruway_backend(graph: GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """A callable that runs `graph`; `graph` itself where compiling is switched off or this Python or torch is not supported."""
    asked = CompileOptions(mode=checked_mode(mode), overrides=checked_overrides(options))
    if not versions.is_supported() or asked.settings(settings.current()).disable:
        return graph
    return lazy.pipeline().compile_graph(graph, example_inputs, asked)
