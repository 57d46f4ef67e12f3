"""Peak memory of a process that runs a work eager, beside one that runs it compiled (float32, batch 1, ten calls).

usage: python bench/peak_memory.py [WORK ...] [--batch N] [--dtype D]
Each figure is the largest resident size in MB of a process of its own, as the kernel reports it. The bar is eager's plus a quarter.
"""

import argparse
import json
import resource
import subprocess
import sys

import torch
import works


def child(a) -> None:
    torch.manual_seed(0)
    fn, make = works.build(a.works[0], "cpu", getattr(torch, a.dtype), a.batch)
    args = make(a.batch)
    if a.child == "thruway":
        import thruway

        fn = thruway.compile(fn)
    with torch.no_grad():
        for _ in range(10):
            fn(*args)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("works", nargs="*", default=works.WORKS)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--dtype", default="float32")
    p.add_argument("--child", choices=("eager", "thruway"))
    a = p.parse_args()
    if a.child:
        return child(a)
    for work in a.works:
        row = {"work": work, "dtype": a.dtype, "batch": a.batch}
        for compiler in ("eager", "thruway"):
            command = [sys.executable, __file__, work, "--batch", str(a.batch), "--dtype", a.dtype, "--child", compiler]
            row[f"{compiler}_mb"] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(json.dumps({**row, "ratio": round(row["thruway_mb"] / row["eager_mb"], 3)}), flush=True)


main()
