"""Capture alone: CPU-seconds of the first call with backend="eager", thruway beside torch.compile, each in a fresh process.

usage: python bench/capture_speed.py [WORK …] [--repeat N]
Prints one line per work: eager's own call, what either compiler adds to it, and the ratio. Must: 0.5; aim: 0.2.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

WORKS = ("resnet50", "bert", "llama", "decoder")


def child(work: str, compiler: str) -> None:
    import torch
    import works

    torch.set_num_threads(1)
    torch.manual_seed(0)
    function, make = works.build(work, "cpu", torch.float32, 1)
    args = make(1)
    with torch.no_grad():
        function(*args)
        plain = time.process_time()
        function(*args)
        plain = time.process_time() - plain
        if compiler == "thruway":
            import thruway as chosen
        else:
            chosen = torch
        compiled = chosen.compile(function, backend="eager")
        first = time.process_time()
        compiled(*args)
        first = time.process_time() - first
    print(first - plain)


def measure(work: str, compiler: str, repeat: int) -> float:
    """The median; a run before fills the cache of Python's bytecode, as installing does."""
    command = [sys.executable, __file__, work, "--child", compiler]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env.setdefault("PYTHONPYCACHEPREFIX", os.path.join(tempfile.gettempdir(), "thruway-bench-pycache"))
    seconds = []
    for _ in range(repeat + 1):
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode:
            sys.exit(f"{compiler} on {work}: {done.stderr[-1500:]}")
        seconds.append(float(done.stdout.split()[-1]))
    return statistics.median(seconds[1:])


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("works", nargs="*", default=WORKS)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--child")
    a = p.parse_args()
    if a.child:
        child(a.works[0], a.child)
        return
    for work in a.works:
        ours, theirs = (measure(work, compiler, a.repeat) for compiler in ("thruway", "torch"))
        print(f"{work:10} thruway {ours:6.2f} s   torch.compile {theirs:6.2f} s   ratio {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()
