"""Capture alone: the cold first call under backend="eager", thruway's and torch's in turn, each in a fresh process.

usage: python bench/capture_alone.py [WORK ...] [--repeat N]
Prints one JSON line per work: CPU-seconds that the first call takes beyond the second, for each compiler, and their ratio. "cold" counts
what the first compilation imports; "again" is the same after `reset`, in a process that has compiled that work before.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time


def child(a) -> None:
    import torch
    import works

    torch.set_num_threads(1)
    torch.manual_seed(0)
    fn, make = works.build(a.works[0], "cpu", torch.float32, 1)
    args = make(1)
    if a.child == "thruway":
        import thruway
        compile, reset = thruway.compile, thruway.reset
    else:
        compile, reset = torch.compile, torch._dynamo.reset
    with torch.no_grad():
        fn(*args)
        result = {}
        for phase in ("cold", "again"):
            compiled = compile(fn, backend="eager")
            first, second = (seconds(compiled, args) for _ in range(2))
            result[phase] = first - second
            reset()
    print(json.dumps(result))


def seconds(call, args) -> float:
    start = time.process_time()
    call(*args)
    return time.process_time() - start


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("works", nargs="*", default=["resnet50", "bert", "llama", "decoder"])
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--child", default="")
    a = p.parse_args()
    if a.child:
        return child(a)
    for work in a.works:
        found = {"thruway": [], "torch": []}
        for _ in range(a.repeat):
            for compiler, rows in found.items():
                done = subprocess.run([sys.executable, __file__, work, "--child", compiler], capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{compiler}: {done.stderr[-1500:]}")
                rows.append(json.loads(done.stdout.splitlines()[-1]))
        row = {"work": work}
        for phase in ("cold", "again"):
            ours, theirs = (statistics.median(r[phase] for r in found[c]) for c in ("thruway", "torch"))
            row[phase] = {"thruway_s": float(f"{ours:.3g}"), "torch_s": float(f"{theirs:.3g}"), "ratio": float(f"{ours / theirs:.3g}")}
        print(json.dumps(row), flush=True)


main()
