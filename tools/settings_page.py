"""Writes docs/settings.md from core/settings.py. `make settings` runs it; a test fails while the page is out of date."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from thruway.core.options import MODES
from thruway.core.settings import Settings
from thruway.report.logs import TOPICS

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def render() -> str:
    """The page's text."""
    rows = [f"| `{f.name}` | `{f.metadata['env']}` | {_default(f.default)} | {f.metadata['doc']} |" for f in fields(Settings)]
    topics = [f"| `{name}` | {topic.about} |" for name, topic in TOPICS.items()]
    return "\n".join([
        "# Settings",
        "",
        "Made by `make settings` from `src/thruway/core/settings.py`; do not edit it here.",
        "",
        "Each setting can be given by its environment variable, assigned (`thruway.settings.check = 2`), changed for a while",
        "(`with thruway.settings.override(check=2): ...`), or for one compilation (`thruway.compile(f, options={\"check\": 2})`).",
        "",
        "| setting | variable | default | meaning |",
        "|---|---|---|---|",
        *rows,
        "",
        "## Topics of THRUWAY_LOGS",
        "",
        "| topic | prints |",
        "|---|---|",
        *topics,
        "",
        "## Modes",
        "",
        "`mode=` takes " + ", ".join(f"`{mode}`" for mode in MODES) + ". On a CPU they mean the same. On a GPU `default` and",
        "`reduce-overhead` are alike: a step replays as one CUDA graph where that is safe and should pay (`explain` says why not). `max-autotune` measures",
        "besides, within `tune_seconds`, how kernels and matrix products run best, and keeps the results; with `-no-cudagraphs` nothing is recorded.",
        "",
    ])


def _default(value: object) -> str:
    match value:
        case bool():
            return "1" if value else "0"
        case tuple() | "":
            return "none"
        case _:
            return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(render())
