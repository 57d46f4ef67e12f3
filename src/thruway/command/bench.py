"""`thruway bench`: runs each measurement in a fresh process with fresh cache folders, and says what the run supports.

`python -m thruway.command.measure` does the measuring. This file starts it, reads its figures, and puts them into words; `cli` draws the table.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from thruway.command.measure import Job

CACHES = {"THRUWAY_CACHE_DIR": "thruway", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
NAMES = {"thruway": "thruway", "torch": "torch.compile"}
NOISE = 1.15                # how far eager may be from itself
Row = dict[str, Any]


class MeasurementFailed(Exception):
    """The process of one measurement ended without figures; the text says why, or is the end of what it wrote."""


def jobs(models: Sequence[tuple[str, bool]], batches: Sequence[int], compilers: Sequence[str], **same: Any) -> Iterator[Job]:
    """Every combination, the compilers of one case next to each other. `models` are (name, takes a batch size)."""
    for name, takes_batch in models:
        for batch in batches if takes_batch else (None,):
            for compiler in compilers:
                yield Job(model=name, batch=batch, compiler=compiler, **same)


def run_job(job: Job, say: Callable[[str], None]) -> Row:
    """The figures of one job, measured in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="thruway-bench-") as folder, tempfile.TemporaryFile("w+") as errors:
        environment = {**os.environ, **{variable: str(Path(folder, name)) for variable, name in CACHES.items()}}
        command = [sys.executable, "-m", "thruway.command.measure", json.dumps(asdict(job))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process:
            try:
                result = _read(process.stdout or (), say)
            except BaseException:
                process.kill()
                raise
        if result is None:
            errors.seek(0)
            raise MeasurementFailed(errors.read().strip()[-2000:] or f"ended with code {process.returncode}")
    return result | {"calls_to_pay": calls_to_pay(result)}


def _read(lines: Any, say: Callable[[str], None]) -> Row | None:
    """The result among a measurement's lines; phases go to `say`, and what a model prints is passed over. MeasurementFailed where the model is at fault."""
    result = None
    for line in lines:
        try:
            said = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(said, dict) and "phase" in said:
            say(said["phase"])
        elif isinstance(said, dict) and "result" in said:
            result = said["result"]
        elif isinstance(said, dict) and "failed" in said:
            raise MeasurementFailed(said["failed"])
    return result


def calls_to_pay(row: Row) -> int | None:
    """After how many calls the first call's cost beyond an eager call is earned back; None where compiled is not faster."""
    gain = (row["eager_ms"] - row["compiled_ms"]) / 1e3
    if gain <= 0 or not is_faster(row):
        return None
    return max(1, math.ceil((row["first_s"] - row["eager_ms"] / 1e3) / gain))


def is_faster(row: Row) -> bool:
    """Whether the whole interval lies at least one percent above eager."""
    return row["speedup_low"] > 1.01


def is_slower(row: Row) -> bool:
    return row["speedup_high"] < 0.99


def is_too_noisy(row: Row) -> bool:
    """Whether eager differed from itself by more than 15 %, or the interval spans more than a factor of two."""
    return not 1 / NOISE <= row["aa"] <= NOISE or row["speedup_high"] > 2 * row["speedup_low"]


def sentence(rows: Sequence[Row]) -> str:
    """One sentence that says what these rows support and no more."""
    clauses = [_clause(NAMES[compiler], [row for row in rows if row["compiler"] == compiler]) for compiler in NAMES]
    said = "; ".join(clause for clause in clauses if clause)
    return f"Under repeated compatible inputs on this machine, {said}; no shape transition, warm start or training step was measured."


def _clause(name: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    ran_eager = [row for row in rows if row["graphs"] == 0]
    noisy = [row for row in rows if row["graphs"] != 0 and is_too_noisy(row)]
    compiled = [row for row in rows if row["graphs"] != 0 and not is_too_noisy(row)]
    faster, slower = [row for row in compiled if is_faster(row)], [row for row in compiled if is_slower(row)]
    same = [row for row in compiled if not is_faster(row) and not is_slower(row)]
    parts = []
    if faster:
        pays = sorted({row["calls_to_pay"] for row in faster})
        parts.append(f"{_at_least([row['speedup_low'] for row in faster])} times faster ({_cases(faster)}), which pays after {_whole(pays)} calls")
    if slower:
        parts.append(f"{_at_least([1 / row['speedup_high'] for row in slower])} times slower ({_cases(slower)})")
    if same:
        parts.append(f"no different within the noise ({_cases(same)})")
    if noisy:
        parts.append(f"too noisy to say ({_cases(noisy)})")
    if ran_eager:
        parts.append(f"eager itself, nothing having been compiled ({_cases(ran_eager)})")
    return f"steady execution by {name}, against eager, was {', and '.join(parts)}"


def _cases(rows: Sequence[Row]) -> str:
    return ", ".join(case_name(row) for row in rows)


def case_name(row: Row) -> str:
    return row["model"] + (f" at batch {row['batch']}" if row["batch"] is not None else "")


def _at_least(values: Sequence[float]) -> str:
    """The smallest, which holds for all, rounded down to two digits; to three where two would say 1.0."""
    low = min(values)
    step = 10.0 ** (math.floor(math.log10(low)) - (2 if 1 < low < 1.1 else 1))
    return f"at least {math.floor(low / step + 1e-6) * step:.{max(0, round(-math.log10(step)))}f}"


def _whole(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def machine() -> dict[str, str]:
    """Where the figures were taken."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {"system": platform.platform(), "processor": _processor(), "cores": str(os.cpu_count()), "gpu": gpu,
            "python": platform.python_version(), "torch": torch.__version__}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
