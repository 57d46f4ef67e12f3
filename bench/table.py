"""The whole table of steady and cold figures, a process per cell, several cells at a time on separate cores.

usage: python bench/table.py steady|cold OUT.jsonl [--works a,b] [--batches 1,8] [--dtypes float32,bfloat16] [--peers default,freezing] [--threads 1] [--jobs 2]
Appends one JSON line per cell and skips the cells that OUT has already, so that an interrupted run goes on. `show OUT.jsonl` prints a table.
"""

import argparse
import json
import math
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import works

HERE = Path(__file__).parent


def cells(a):
    for work in a.works.split(","):
        for dtype in a.dtypes.split(","):
            for batch in a.batches.split(","):
                if not (work in ("tiny", "decode") and batch != "1") and not (work == "tiny" and dtype != "float32"):
                    yield work, int(batch), dtype


def weight(cell) -> tuple[int, bool, int]:
    """Roughly how long a cell takes: the long ones start first, so that no lane is left with one at the end."""
    work, batch, dtype = cell
    return batch, dtype == "float32", ("tiny", "mlp", "pointwise", "decode", "transformer", "resnet50", "llama", "gpt2", "decoder", "bert").index(work)


def run(a, cell, cores: list[int]) -> list[dict]:
    work, batch, dtype = cell
    common = [work, "--batch", str(batch), "--dtype", dtype, "--threads", str(a.threads)]
    if a.what == "steady":
        command = ["bench/steady.py", *common, "--peers", a.peers, "--rounds", str(a.rounds), "--seconds", str(a.seconds)]
    else:
        command = ["bench/cold.py", *common]
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    done = subprocess.run(["taskset", "-c", ",".join(map(str, cores)), sys.executable, *command], cwd=HERE.parent, capture_output=True, text=True, env=env)
    if done.returncode:
        return [{"work": work, "batch": batch, "dtype": dtype, "failed": done.stderr.strip().splitlines()[-1:]}]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def measure(a) -> None:
    out = Path(a.out)
    known = {(r["work"], r["batch"], r["dtype"]) for r in map(json.loads, out.read_text().splitlines())} if out.exists() else set()
    cores = sorted(os.sched_getaffinity(0))
    free: queue.SimpleQueue = queue.SimpleQueue()
    for i in range(a.jobs):
        first = i * (len(cores) // a.jobs)
        free.put(cores[first:first + a.threads])

    def one(cell) -> None:
        mine = free.get()
        rows = run(a, cell, mine)
        free.put(mine)
        for row in rows:
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)

    with ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(one, sorted(set(cells(a)) - known, key=weight, reverse=True)))


def show(path: str) -> None:
    rows = sorted(map(json.loads, Path(path).read_text().splitlines()), key=lambda r: (works.WORKS.index(r["work"]), r["dtype"], r["batch"]))
    print("| work | batch | dtype | eager ms | ours ms | against eager | against torch.compile | against freezing | aa | rms, max error | kept eager |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    pair = lambda r, k: "–" if k not in r else f"{r[k][0]:.3f} ({r[k][1]:.3f}–{r[k][2]:.3f})"
    for r in rows:
        if "failed" in r:
            print(f"| {r['work']} | {r['batch']} | {r['dtype']} | failed: {r['failed']} |")
            continue
        e = r.get("error_vs_float64") or {}
        print(f"| {r['work']} | {r['batch']} | {r['dtype']} | {r['eager_ms']:.4g} | {r['thruway_ms']:.4g} | {pair(r, 'vs_eager')} | {pair(r, 'vs_torch')} | "
              f"{pair(r, 'vs_freezing')} | {r['aa']:.3f} | {e.get('rms', '–')}, {e.get('max', '–')} | {r['kept_eager'] or ''} |")
    for key in ("vs_eager", "vs_torch", "vs_freezing"):
        values = [math.log(r[key][0]) for r in rows if key in r]
        if values:
            print(f"\ngeometric mean {key}: {math.exp(sum(values) / len(values)):.3f} over {len(values)} cells; above 1.02: "
                  + (", ".join(f"{r['work']} {r['batch']} {r['dtype']}" for r in rows if key in r and r[key][1] > 1.02) or "none"))


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("steady", "cold", "show"))
    p.add_argument("out")
    p.add_argument("--works", default=",".join(works.WORKS))
    p.add_argument("--batches", default="1,8")
    p.add_argument("--dtypes", default="float32,bfloat16")
    p.add_argument("--peers", default="default,freezing")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--seconds", type=float, default=8.0)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    a = p.parse_args()
    show(a.out) if a.what == "show" else measure(a)


main()
