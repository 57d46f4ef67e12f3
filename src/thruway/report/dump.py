"""THRUWAY_DUMP: a folder per compiled function with one numbered file per stage, `001_captured.txt`, `002_guards.txt`, …

The folder that `settings.dump` names is made at the first stage; numbers go on over recompilations, so nothing is overwritten
within a process. Generated code gets a `.c` name, everything else `.txt`.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from thruway.core.ambient import settings
from thruway.core.journal import Journal
from thruway.core.notice import warn

SUFFIXES = {"code": ".c"}


def attach(journal: Journal) -> None:
    """Writes the stages from now on, whenever `settings.dump` names a folder."""
    journal.readers.append(DumpWriter())


class DumpWriter:
    def __init__(self) -> None:
        self.numbers: Counter[Path] = Counter()
        self.refused: set[str] = set()              # folders that could not be written

    def wants(self, stage: str) -> bool:
        folder = settings.current().dump
        return bool(folder) and folder not in self.refused

    def read(self, stage: str, function: str, text: str) -> None:
        top = settings.current().dump
        folder = Path(top) / file_name(function)
        self.numbers[folder] += 1
        path = folder / f"{self.numbers[folder]:03d}_{file_name(stage)}{SUFFIXES.get(stage, '.txt')}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text if text.endswith("\n") else text + "\n")
        except OSError as error:
            self.refused.add(top)
            warn(f"nothing more is written to the folder that THRUWAY_DUMP names: {error}")


def file_name(text: str) -> str:
    """`text` with everything that a file name should not hold replaced."""
    return re.sub(r"[^\w.-]+", "_", text).strip("._") or "unnamed"
