"""The `thruway` command: `bench`, `doctor`, `cache show`, `cache clear`. Tables go to stdout, progress and complaints to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import torch
from rich import box
from rich.console import Console
from rich.table import Table

import thruway
from thruway.artifact.store import Store, StoreRefused, open_store
from thruway.command import bench as benches
from thruway.command.doctor import cache_mb, examine
from thruway.command.works import WORKS, WorkFailed, takes_batch
from thruway.core.ambient import settings
from thruway.core.options import MODES

FILE_WIDTH = 160                 # of a file or a pipe, which has none of its own
OUT, ERR = Console(), Console(stderr=True)
if not OUT.is_terminal and "COLUMNS" not in os.environ:
    OUT.width = FILE_WIDTH
DTYPES = ("float32", "bfloat16", "float16", "float64")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(thruway.__version__)
def main() -> None:
    """Compiles ordinary PyTorch code, and shows what that buys on this machine."""


@main.command()
@click.option("--model", "models", multiple=True,
              help=f"{', '.join(WORKS)}, or module:factory, where factory([batch]) returns (model, inputs). May be repeated.")
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True, help="May be repeated. By default 1 and 8 on a CPU, 1 and 32 on a GPU.")
@click.option("--against", type=click.Choice(["torch"]), help="Puts torch.compile beside thruway in the same run.")
@click.option("--mode", type=click.Choice(MODES), help="The mode given to each compiler.")
@click.option("--dtype", type=click.Choice(DTYPES), help="By default float32 on a CPU, bfloat16 on a GPU.")
@click.option("--device", help="By default cuda where there is a GPU, else cpu.")
@click.option("--threads", type=click.IntRange(0), default=0, help="Threads of torch; 0 leaves torch's own number.")
@click.option("--rounds", type=click.IntRange(3), default=15, show_default=True, help="Interleaved rounds behind each figure.")
@click.option("--seconds", type=float, default=6.0, show_default=True, help="About how long the rounds of one case last together.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Writes every figure to this file, too.")
def bench(models, batches, against, mode, dtype, device, threads, rounds, seconds, json_file) -> None:
    """Measures eager against compiled: the first call, steady calls, error, graphs, memory."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.startswith("cuda")
    sys.path.insert(0, os.getcwd())                  # the measuring processes look there too
    try:
        named = [(name, takes_batch(name)) for name in models or WORKS]
    except WorkFailed as error:
        raise click.ClickException(str(error)) from None
    wanted = list(benches.jobs(
        named, batches or ((1, 32) if on_gpu else (1, 8)), ("thruway", "torch") if against else ("thruway",),
        mode=mode, device=device, dtype=dtype or ("bfloat16" if on_gpu else "float32"), threads=threads, rounds=rounds, seconds=seconds,
    ))
    rows = _measure_all(wanted)
    if not rows:
        raise click.ClickException("nothing could be measured")
    said = benches.sentence(rows)
    OUT.print(*_tables(rows))
    OUT.print(said, soft_wrap=True)
    if json_file:
        json_file.write_text(json.dumps({"machine": benches.machine(), "rows": rows, "sentence": said}, indent=2) + "\n")
    if len(rows) < len(wanted):
        raise click.ClickException(f"{len(wanted) - len(rows)} of {len(wanted)} measurements failed")


def _measure_all(wanted: Sequence[benches.Job]) -> list[benches.Row]:
    """The rows of all jobs that could be measured; the others are complained about on stderr."""
    rows = []
    with ERR.status("starting") as status:
        for number, job in enumerate(wanted, 1):
            title = f"[{number}/{len(wanted)}] {benches.case_name({'model': job.model, 'batch': job.batch})}, {benches.NAMES[job.compiler]}"
            if not ERR.is_terminal:                      # where the line below cannot be written over
                ERR.print(title, highlight=False, markup=False)
            try:
                rows.append(benches.run_job(job, lambda phase, title=title: status.update(f"{title}: {phase}")))
            except benches.MeasurementFailed as failed:
                ERR.print(f"{title} failed:\n{failed}", style="red", highlight=False, markup=False)
    return rows


def _tables(rows: Sequence[benches.Row]) -> list[Table]:
    """Two tables that fit 80 columns: what steady calls gain, and what it costs."""
    where, first = benches.machine(), rows[0]
    chip = where["processor"] if first["device"] == "cpu" else where["gpu"]
    title = f"{first['dtype']} on {chip}, {first['used_threads']} thread(s), torch {where['torch']}"
    steady = _table(title, "medians of interleaved rounds; aa: eager against itself, the noise",
                    ("eager ms", "compiled ms", "speedup", "95 %", "aa"), rows, _steady_cells)
    cost = _table("", "first call with empty caches; pays: after so many calls; g/b/r: graphs, breaks, recompiles; MB: peak, and how much more than eager's",
                  ("first s", "CPU s", "pays", "error", "g/b/r", "MB", "more"), rows, _cost_cells)
    return [steady, cost]


def _table(title: str, caption: str, headings: Sequence[str], rows: Sequence[benches.Row], cells: Callable[[benches.Row], list[str]]) -> Table:
    table = Table(title=title or None, caption=caption, box=box.HORIZONTALS, padding=(0, 1, 0, 0), pad_edge=False, show_lines=False)
    table.add_column("model", overflow="fold", min_width=11)
    table.add_column("batch", justify="right", no_wrap=True)
    table.add_column("compiler", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["model"], _or_dash(row["batch"]), row["compiler"], *cells(row))
    return table


def _steady_cells(row: benches.Row) -> list[str]:
    interval = f"{row['speedup_low']:.2f}–{row['speedup_high']:.2f}"
    return [f"{row['eager_ms']:.3f}", f"{row['compiled_ms']:.3f}", f"{row['speedup']:.2f}", interval, f"{row['aa']:.2f}"]


def _cost_cells(row: benches.Row) -> list[str]:
    return [
        f"{row['first_s']:.2f}", f"{row['first_cpu_s']:.2f}",
        "never" if row["calls_to_pay"] is None else str(row["calls_to_pay"]),
        f"{row['error']:.0e}",
        "/".join(_or_dash(row[name]) for name in ("graphs", "graph_breaks", "recompiles")),
        f"{row['peak_mb']:.0f}", f"{row['peak_mb'] / row['eager_peak_mb'] - 1:.0%}",
    ]


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)


@main.command()
def doctor() -> None:
    """Says what thruway found here: versions, native core, compiler, cache."""
    table = Table(show_header=False, box=None)
    findings = list(examine())
    for what, found, is_well in findings:
        table.add_row("ok" if is_well else "!!", what, found, style=None if is_well else "red")
    OUT.print(table)
    if not all(is_well for _, _, is_well in findings):
        raise SystemExit(1)


@main.group()
def cache() -> None:
    """The folder of compiled kernels."""


@cache.command()
def show() -> None:
    """Prints where it is and what it holds."""
    store = _store()
    count = sum(path.is_file() and path.suffix != ".lock" for path in store.folder.iterdir())
    click.echo(f"{store.folder}: {count} file{'' if count == 1 else 's'}, {cache_mb(store.folder):.1f} of {settings.cache_size_mb} MB")


@cache.command()
def clear() -> None:
    """Removes everything compiled from it."""
    store = _store()
    before = cache_mb(store.folder)
    Store(store.folder, 0).trim()
    click.echo(f"{store.folder}: {before - cache_mb(store.folder):.1f} MB removed")


def _store() -> Store:
    try:
        return open_store(settings.current())
    except StoreRefused as refused:
        raise click.ClickException(str(refused)) from None


if __name__ == "__main__":
    main()
