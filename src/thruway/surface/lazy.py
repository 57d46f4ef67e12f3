"""The one place where an import happens late: `import thruway` stays cheap, and the compiler comes with the first use.

Everything else in the project imports at the top of the file; a layout test names this file as the only exception.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from thruway.core.ambient import settings
from thruway.core.collector import collector_paused
from thruway.core.options import CompileOptions


@functools.cache
def pipeline() -> ModuleType:
    """`thruway.pipeline`, its journal connected to the reports that print and write."""
    with collector_paused():
        loaded = importlib.import_module("thruway.pipeline")
    importlib.import_module("thruway.report.logs").attach(loaded.journal)
    importlib.import_module("thruway.report.dump").attach(loaded.journal)
    return loaded


def compile_callable(function: Callable[..., Any], options: CompileOptions) -> Any:
    """`function` compiled; in shadow mode, checked at its first calls."""
    if options.check > 0:
        pipeline()
        return importlib.import_module("thruway.report.shadow.checked").compile_checked(function, options)
    return pipeline().compile_callable(function, options)


def loaded_pipeline() -> ModuleType | None:
    """`thruway.pipeline` where something has been compiled, else None."""
    return sys.modules.get("thruway.pipeline")


def take_stance(stance: str) -> None:
    """Sets `settings.stance`; compiled functions that exist are told of it."""
    settings.stance = stance
    loaded = loaded_pipeline()
    if loaded is not None:
        loaded.follow_stance()


def backends() -> ModuleType:
    return importlib.import_module("thruway.backends")


def explain() -> ModuleType:
    return importlib.import_module("thruway.report.explain")
