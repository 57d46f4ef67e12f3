"""Cold first call of one work under one compiler, in a fresh process with fresh cache folders.

usage: python bench/cold.py WORK [--batch N] [--dtype D] [--compilers thruway,torch] [--blocks N] [--repeat N]
For each compiler prints one JSON line: wall seconds and CPU-seconds (this process and its children) of the first compiled call,
that call's error against eager, and the same for a second process on the cache folder that the first left ("warm").
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def child(a) -> None:
    import torch
    import works

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    fn, make = works.build(a.work, "cpu", getattr(torch, a.dtype), a.batch)
    if a.blocks:
        fn = works.Decoder(n=a.blocks).to(getattr(torch, a.dtype)).eval()
    args = make(a.batch)
    cpu = lambda: sum(getattr(resource.getrusage(w), f) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) for f in ("ru_utime", "ru_stime"))
    with torch.no_grad():
        eager = fn(*args)
        if a.compilers == "thruway":
            import thruway as compiler
        else:
            compiler = torch
        compiled = compiler.compile(fn)
        wall, used = time.perf_counter(), cpu()
        out = compiled(*args)
        wall, used = time.perf_counter() - wall, cpu() - used
    error = max(((x.float() - y.float()).abs().max() / y.float().abs().max().clamp_min(1e-12)).item() for x, y in zip(works.flat(out), works.flat(eager)))
    print(json.dumps({"wall_s": wall, "cpu_s": used, "error": error}))


def run(a, compiler: str, cache: str) -> dict:
    env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache + "/i", TRITON_CACHE_DIR=cache + "/t", THRUWAY_CACHE_DIR=cache + "/w")
    command = [sys.executable, __file__, a.work, "--batch", str(a.batch), "--dtype", a.dtype, "--threads", str(a.threads),
               "--blocks", str(a.blocks), "--compilers", compiler, "--child"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{compiler}: {done.stderr[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("work")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--dtype", default="float32")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--blocks", type=int, default=0, help="for the decoder: number of blocks instead of 12")
    p.add_argument("--compilers", default="thruway,torch")
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--child", action="store_true")
    a = p.parse_args()
    if a.child:
        return child(a)
    rows = {}
    for _ in range(a.repeat):
        for compiler in a.compilers.split(","):
            cache = tempfile.mkdtemp()
            try:
                for phase in ("cold", "warm"):
                    rows.setdefault((compiler, phase), []).append(run(a, compiler, cache))
            finally:
                shutil.rmtree(cache, ignore_errors=True)
    for (compiler, phase), many in rows.items():
        row = {key: float(f"{statistics.median(r[key] for r in many):.4g}") for key in many[0]}
        print(json.dumps({"work": a.work, "batch": a.batch, "dtype": a.dtype, "blocks": a.blocks, "compiler": compiler, "phase": phase, **row}), flush=True)


main()
