"""Steady time of one work: eager, torch.compile (default and freezing) and thruway, interleaved in one process.

usage: python bench/steady.py WORK [--batch N] [--dtype float32|bfloat16] [--threads N] [--rounds N] [--seconds S] [--skip-torch]
Prints one JSON line: median ms of each, and for each pair thruway/peer the median of the rounds' ratios with its 95 % interval
(order statistics), next to eager against itself (`aa`). Errors are rms and max against eager in float64, relative to eager's own.
"""

import argparse
import copy
import importlib
import json
import math
import resource
import statistics
import time
import warnings

import torch
import works


def median_interval(values: list[float]) -> tuple[float, float]:
    """95 % interval of the median by order statistics (binomial, normal approximation)."""
    ordered, n = sorted(values), len(values)
    half = 0.98 * math.sqrt(n)
    return ordered[max(0, math.floor(n / 2 - half))], ordered[min(n - 1, math.ceil(n / 2 + half))]


def call(f, args):
    with torch.no_grad():
        return f(*args)


def rounds(functions: dict, args, seconds: float, count: int) -> dict[str, list[float]]:
    """Milliseconds per call of each function, once per round, the order turned round every time."""
    for f in functions.values():
        for _ in range(3):
            call(f, args)
    start = time.perf_counter()
    for f in functions.values():
        call(f, args)
    one = (time.perf_counter() - start) / len(functions)
    repeat = max(1, min(500, int(seconds / count / max(one, 1e-7) / len(functions))))
    times: dict[str, list[float]] = {name: [] for name in functions}
    names = list(functions)
    for i in range(count):
        for name in names if i % 2 else names[::-1]:
            f = functions[name]
            start = time.perf_counter()
            for _ in range(repeat):
                call(f, args)
            times[name].append((time.perf_counter() - start) / repeat * 1e3)
    return times


def errors(work, fn, args, out) -> dict:
    """rms and max error of compiled and of eager against float64, where the work runs in float64."""
    if not isinstance(fn, torch.nn.Module) or work == "decode":
        return {}
    wide = copy.deepcopy(fn).double()
    wide_args = [a.double() if a.is_floating_point() else a for a in args]
    truth, eager = works.flat(call(wide, wide_args)), works.flat(call(fn, args))
    rms = lambda xs: math.sqrt(sum((x.double() - t).pow(2).sum().item() for x, t in zip(xs, truth)) / sum(t.numel() for t in truth))
    top = lambda xs: max((x.double() - t).abs().max().item() for x, t in zip(xs, truth))
    return {"rms": rms(works.flat(out)) / max(rms(eager), 1e-300), "max": top(works.flat(out)) / max(top(eager), 1e-300)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("work", choices=works.WORKS)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--dtype", default="float32")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--seconds", type=float, default=8.0)
    p.add_argument("--peers", default="default,freezing", help="torch.compile variants to run: default, freezing; empty for none")
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    import thruway

    fn, make = works.build(a.work, "cpu", getattr(torch, a.dtype), a.batch)
    args = make(a.batch)
    functions = {"eager": fn, "again": lambda *x: fn(*x), "thruway": thruway.compile(fn)}
    out = call(functions["thruway"], args)
    if "default" in a.peers:
        functions["torch"] = torch.compile(fn)
        call(functions["torch"], args)
    times = rounds(functions, args, a.seconds, a.rounds)
    ours = {"torch": times["thruway"]}
    if "freezing" in a.peers:
        torch.compiler.reset()                        # or the entry compiled without freezing, which fits a copy too, would answer
        functions = {"eager": fn, "thruway": functions["thruway"], "freezing": torch.compile(fn)}
        with importlib.import_module("torch._inductor.config").patch(freezing=True):
            call(functions["freezing"], args)
        beside = rounds(functions, args, a.seconds, a.rounds)
        times["freezing"], ours["freezing"] = beside["freezing"], beside["thruway"]
    row = {"work": a.work, "batch": a.batch, "dtype": a.dtype, "threads": a.threads, "rounds": a.rounds}
    for name, values in times.items():
        row[f"{name}_ms"] = round(statistics.median(values), 5)
    row["aa"] = round(statistics.median([x / y for x, y in zip(times["again"], times["eager"])]), 4)
    for peer in ("eager", "torch", "freezing"):
        if peer in times:
            ratios = [x / y for x, y in zip(ours.get(peer, times["thruway"]), times[peer])]
            low, high = median_interval(ratios)
            row[f"vs_{peer}"] = [round(v, 4) for v in (statistics.median(ratios), low, high)]
    row["error_vs_float64"] = {k: round(v, 3) for k, v in errors(a.work, fn, args, out).items()}
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    row["kept_eager"] = thruway.metrics().get("kept_eager", 0)
    print(json.dumps(row), flush=True)


main()
