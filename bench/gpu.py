"""Everything that needs a GPU, in one script: builds the native part, runs `pytest -m gpu`, times works against eager and torch.compile.

usage: python bench/gpu.py [--part smoke|tests|prepare|main|cold|tune|cases|profile] [--out FOLDER] [--cases FOLDER] [--seconds S] [--peers torch|none]
"prepare" fills torch.compile's caches for all works at once while the tests run, so that "main" has time for all of them.
A part may also be one item, with + for spaces ("time+bert+8+none"), and several are joined by commas.
Each work runs in a fresh process under a time limit; one JSON line per result in FOLDER/results.jsonl, a table at the end of the output.
"""

import argparse
import copy
import functools
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "smoke": ("time tiny 1", "time pointwise 64", "tests", "time transformer 1", "time resnet50 1", "time decoder 1"),
    "tests": ("tests",),
    "main": ("rates", "time pointwise 64", "time tiny 1", "time decode 1", "time transformer 1", "time transformer 32", "time decoder 1", "time llama 1",
             "time bert 8", "time resnet50 1", "time resnet50 32"),
    "cold": tuple(f"cold {work} 1 thruway" for work in ("tiny", "resnet50", "transformer", "decoder")),
    "tune": ("cold resnet50 1 tuned",),
    "prepare": ("prepare",),
    "cases": ("cases",),
    "profile": ("profile transformer 1", "profile resnet50 1", "profile decoder 1", "profile decode 1", "profile bert 8"),
}

MODES = {"torch": "default", "torch_ro": "reduce-overhead"}
PEERS = {"tiny": ("torch",), "pointwise": ("torch", "torch_ro"), "bert": ("torch", "torch_ro")}      # others: torch_ro, by far the better of the two


def median_interval(values):
    ordered, n = sorted(values), len(values)
    half = 0.98 * math.sqrt(n)
    return ordered[max(0, math.floor(n / 2 - half))], ordered[min(n - 1, math.ceil(n / 2 + half))]


def call(f, args):
    import torch
    with torch.no_grad():
        return f(*args)


def errors(fn, args, outs, work):
    """rms and max error against float64 of each compiled function, as multiples of eager's own."""
    import torch
    import works
    if work == "decode":
        return {}
    wide = copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn
    truth = works.flat(call(wide, [a.double() if a.is_floating_point() else a for a in args]))

    def rms(xs):
        return math.sqrt(sum((x.double() - t).pow(2).sum().item() for x, t in zip(xs, truth)) / sum(t.numel() for t in truth))

    def top(xs):
        return max((x.double() - t).abs().max().item() for x, t in zip(xs, truth))

    eager = works.flat(outs["eager"])
    return {name: (rms(works.flat(o)) / max(rms(eager), 1e-12), top(works.flat(o)) / max(top(eager), 1e-12)) for name, o in outs.items()
            if name != "eager"}


def rounds(functions, args, seconds, count):
    """GPU milliseconds per call by events and host microseconds per call, per round, in alternating order."""
    import torch
    for f in functions.values():
        for _ in range(5):
            call(f, args)
    torch.cuda.synchronize()
    gpu, host = {n: [] for n in functions}, {n: [] for n in functions}
    repeat = {}
    for name, f in functions.items():
        start = time.perf_counter()
        for _ in range(3):
            call(f, args)
        torch.cuda.synchronize()
        repeat[name] = max(3, min(200, int(seconds / count / len(functions) / max((time.perf_counter() - start) / 3, 1e-6))))
    for i in range(count):
        for name in list(functions) if i % 2 else list(functions)[::-1]:
            f, n = functions[name], repeat[name]
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            start = time.perf_counter()
            a.record()
            for _ in range(n):
                call(f, args)
            b.record()
            host[name].append((time.perf_counter() - start) / n * 1e6)
            b.synchronize()
            gpu[name].append(a.elapsed_time(b) / n)
    return gpu, host


def time_work(work, batch, seconds, peers):
    import torch
    import works
    import thruway
    from thruway.runtime.cuda import load
    from thruway import pipeline

    made = []
    start = load.GpuRunnable.__init__

    def remember(self, *args):
        start(self, *args)
        made.append(self)

    load.GpuRunnable.__init__ = remember
    torch.manual_seed(0)
    fn, make = works.build(work, "cuda", torch.bfloat16, batch)
    args = make(batch)
    row = {"kind": "time", "work": work, "batch": batch}
    functions = {"eager": fn, "thruway": thruway.compile(fn)}
    if peers == "none":
        functions["thruway_tuned"] = thruway.compile(fn, mode="max-autotune")
    outs, first = {}, {}
    if peers == "torch":
        functions |= {name: torch.compile(fn, mode=MODES[name]) for name in PEERS.get(work, ("torch_ro",))}
    for name, f in functions.items():
        t = time.perf_counter()
        try:
            outs[name] = copy.deepcopy(call(f, args)) if work != "decode" else call(f, args)
            torch.cuda.synchronize()
            first[name] = round(time.perf_counter() - t, 2)
            for _ in range(24):
                later = call(f, args)
            if work != "decode":
                for a, b in zip(works.flat(later), works.flat(outs[name])):
                    if (a.float() - b.float()).abs().max() > 1e-2 * b.float().abs().max():
                        row.setdefault("later_calls_differ", []).append(name)
        except Exception as error:
            row[f"failed_{name}"] = f"{type(error).__name__}: {str(error)[:300]}"
    functions = {n: f for n, f in functions.items() if n in first}
    row["first_s"] = first
    row["errors"] = {n: [round(v, 3) for v in e] for n, e in errors(fn, args, outs, work).items()}
    gpu, host = rounds(functions, args, seconds, 11)
    row["ms"] = {n: round(statistics.median(v), 4) for n, v in gpu.items()}
    row["host_us"] = {n: round(statistics.median(v), 1) for n, v in host.items()}
    best = [n for n in ("torch", "torch_ro") if n in gpu]
    if best:
        peer = min(best, key=lambda n: row["ms"][n])
        ratios = [a / b for a, b in zip(gpu["thruway"], gpu[peer])]
        row[f"thruway_vs_{peer}"] = [round(v, 3) for v in (statistics.median(ratios), *median_interval(ratios))]
    if work == "decode":
        row["read_once_ms"] = round(read_once(fn) / copy_rate() / 1e3, 4)
        row["thruway_vs_read_once"] = round(row["ms"]["thruway"] / row["read_once_ms"], 2)
    row["journal"] = [f"{e.kind}: {e.function}: {e.detail or e.reason}"[:400] for e in pipeline.journal.events
                      if e.kind not in ("stage", "cache_hit", "cache_miss", "capture")][:12]
    row["stages"] = [f"{e.stage}={e.seconds:.2f}" for e in pipeline.journal.events if e.kind == "stage" and e.seconds > 0.05][:20]
    try:
        row["steps"] = [step_shares(each) for each in made][-1:]
    except RuntimeError as error:
        row["steps"] = str(error)[:200]
    return row


def read_once(module):
    """Bytes of the weights and buffers that a step reads whole: all but embeddings, of which it takes a row."""
    import torch
    looked_up = {id(m.weight) for m in module.modules() if isinstance(m, torch.nn.Embedding)}
    return sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()) if id(t) not in looked_up)


def step_shares(runnable):
    """For each kernel: microseconds alone, and which share of it moving its bytes once would take."""
    import torch
    from thruway.core.launch import Kernel
    rate = copy_rate()
    program = next(iter(runnable.programs.values()), None) or (None if runnable.symbols else runnable._prepare(()))
    program = getattr(program, "program", program)
    if program is None:
        return {}
    from thruway.runtime.cuda.driver import Launch
    found = {}
    scratch = torch.randn(1 << 28, device="cuda")
    for step in program.launch.steps:
        if isinstance(step, Kernel) and step.symbol not in found:
            kernel = runnable.kernels.usual[step.symbol]
            launch = Launch(program.driver, kernel, program.functions[step.symbol], step.sizes, scratch.data_ptr(), len(step.pointers))
            apart = max(1 << 26, kernel.floor_bytes or 0)
            if apart * len(step.pointers) > scratch.nbytes:
                continue
            stream = torch.cuda.current_stream().cuda_stream
            graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            addresses = [scratch.data_ptr() + i * apart for i in range(len(step.pointers))]
            with torch.cuda.graph(graph, stream=side):
                for _ in range(50):
                    launch.run(addresses, side.cuda_stream)
            times = []
            for _ in range(4):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                graph.replay()
                b.record()
                b.synchronize()
                times.append(a.elapsed_time(b) * 1e3 / 50)
            us = statistics.median(times)
            found[step.symbol] = [round(us, 2), round((kernel.floor_bytes or 0) / rate / us, 3), kernel.warps, kernel.block]
    return found


@functools.cache
def copy_rate():
    """Bytes per microsecond of a device copy, read and written."""
    import torch
    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / (timed(lambda: b.copy_(a)) * 1e3)


def timed(f):
    import torch
    for _ in range(3):
        f()
    times = []
    for _ in range(10):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        f()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times)


def rates():
    import torch
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return {"kind": "rates", "copy_TB_s": round(copy_rate() / 1e6, 3), "bf16_TFLOP_s": round(2 * 8192**3 / timed(lambda: a @ b) / 1e9, 1),
            "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def profile(work, batch):
    """Where the GPU's time goes in one replay: microseconds per call and launches per call, by kernel."""
    import torch
    import works
    import thruway
    torch.manual_seed(0)
    fn, make = works.build(work, "cuda", torch.bfloat16, batch)
    args, compiled = make(batch), thruway.compile(fn)
    for _ in range(6):
        call(compiled, args)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(10):
            call(compiled, args)
        torch.cuda.synchronize()
    rows = sorted(((e.self_device_time_total / 10, e.count / 10, e.key[:70]) for e in seen.key_averages()), reverse=True)
    return {"kind": "profile", "work": work, "batch": batch, "kernels": [[round(a, 1), round(b, 1), k] for a, b, k in rows[:14]],
            "sum_us": round(sum(r[0] for r in rows), 1)}


def first_call(work, batch, compiler):
    import torch
    import works
    torch.manual_seed(0)
    fn, make = works.build(work, "cuda", torch.bfloat16, batch)
    args = make(batch)
    call(fn, args)
    torch.cuda.synchronize()
    t = time.perf_counter()
    if compiler == "torch":
        f = torch.compile(fn)
    else:
        import thruway
        f = thruway.compile(fn, mode="max-autotune" if compiler == "tuned" else "default")
    call(f, args)
    torch.cuda.synchronize()
    first = time.perf_counter() - t
    t = time.perf_counter()
    call(f, args)
    torch.cuda.synchronize()
    row = {"first_s": round(first, 3), "second_s": round(time.perf_counter() - t, 3)}
    if compiler != "torch":
        from thruway import pipeline
        events = pipeline.journal.events
        row["stages"] = [f"{e.stage}={e.seconds:.2f}" for e in events if e.kind == "stage" and e.seconds > 0.03]
        row["tuned"] = [e.detail for e in events if e.kind == "measured" and " warps, guessed" in e.detail]
        row["compiled"] = sum(e.kind == "cache_miss" for e in events)
    return row


def run_child(arguments, limit, env=None):
    """One JSON row from a fresh process."""
    began = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, __file__, "--child", *arguments], capture_output=True, text=True, timeout=limit, env=env or os.environ)
    except subprocess.TimeoutExpired:
        return {"kind": arguments[0], "work": " ".join(arguments[1:]), "failed": f"over {limit} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"kind": arguments[0], "work": " ".join(arguments[1:]), "failed": (done.stderr or done.stdout)[-1500:]}
    return {**json.loads(lines[-1]), "wall_s": round(time.perf_counter() - began, 1)}


def cold(work, batch, limit, compilers=("thruway", "torch")):
    row = {"kind": "cold", "work": work, "batch": batch}
    for compiler in compilers:
        cache = tempfile.mkdtemp()
        env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache + "/i", TRITON_CACHE_DIR=cache + "/t", THRUWAY_CACHE_DIR=cache + "/w")
        for phase in ("cold", "warm"):
            row[f"{compiler}_{phase}"] = run_child(["first", work, str(batch), compiler], limit, env)
    return row


def cases(folder):
    """The programs g*.py under thruway, one process each."""
    names = [path.stem for path in sorted(Path(folder).glob("g*.py"))]
    done = subprocess.run([sys.executable, str(Path(folder) / "run.py"), "--compiler", "thruway", "--timeout", "60", *names], capture_output=True, text=True,
                          timeout=200)
    print((done.stdout + done.stderr)[-4000:], flush=True)
    return {"kind": "cases", "rc": done.returncode, "says": done.stdout[-6000:]}


def prepare(out, limit):
    """Tests, and meanwhile every peer's first call, each in a process of its own."""
    works = [item.split()[1:] for item in PARTS["main"] if item.startswith("time")]
    waiting = [subprocess.Popen([sys.executable, __file__, "--child", "peer", *work, name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for work in works for name in PEERS.get(work[0], ("torch_ro",))]
    began = time.perf_counter()
    row = run_tests(out) | {"kind": "prepare"}
    for each in waiting:
        try:
            each.wait(max(1.0, limit - (time.perf_counter() - began)))
        except subprocess.TimeoutExpired:
            each.kill()
            row["late"] = row.get("late", 0) + 1
    return row


def peer(work, batch, name):
    """The first call of torch.compile, for its caches alone."""
    import torch
    import works
    torch.manual_seed(0)
    fn, make = works.build(work, "cuda", torch.bfloat16, batch)
    call(torch.compile(fn, mode=MODES[name]), make(batch))
    torch.cuda.synchronize()
    return {}


def build_native():
    for name in ("click", "rich", "platformdirs", "filelock", "networkx"):
        if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode:
            print(f"missing here: {name}", flush=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src"], cwd=ROOT, capture_output=True)          # as an installed package would be
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=ROOT, capture_output=True, text=True)
    print("native:", "built" if done.returncode == 0 else done.stderr[-800:], flush=True)


def run_tests(out):
    at_once = [] if importlib.util.find_spec("xdist") is None else ["-n", str(max(2, min(12, (os.cpu_count() or 2) - 4)))]
    done = subprocess.run([sys.executable, "-m", "pytest", "-m", "gpu", "-q", "tests/gpu", "--tb=short", "--durations=12", "-p", "no:cacheprovider", *at_once],
                          cwd=ROOT, capture_output=True, text=True, timeout=280)
    (out / "tests.txt").write_text(done.stdout + done.stderr)
    print(done.stdout[-6000:], flush=True)
    return {"kind": "tests", "rc": done.returncode}


def child(arguments, seconds):
    import warnings
    warnings.filterwarnings("ignore")
    kind, *rest = arguments
    if kind == "time":
        row = time_work(rest[0], int(rest[1]), seconds, rest[2] if len(rest) > 2 else "torch")
    elif kind == "profile":
        row = profile(rest[0], int(rest[1]))
    elif kind == "peer":
        row = peer(rest[0], int(rest[1]), rest[2])
    elif kind == "first":
        row = first_call(rest[0], int(rest[1]), rest[2])
    else:
        row = rates()
    print(json.dumps(row), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--part", default="smoke")
    p.add_argument("--out", default=os.environ.get("OUT", "."))
    p.add_argument("--cases", default="")
    p.add_argument("--seconds", type=float, default=2.0)
    p.add_argument("--limit", type=float, default=520.0)
    p.add_argument("--peers", default="torch")
    p.add_argument("--child", nargs="*")
    a = p.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT / "bench"), os.environ.get("PYTHONPATH"))))
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]
    if a.child:
        return child(a.child, a.seconds)
    began, out = time.perf_counter(), Path(a.out)
    build_native()
    with open(out / "results.jsonl", "w") as file:
        for item in [one for part in a.part.split(",") for one in PARTS.get(part, (part.replace("+", " "),))]:
            left = a.limit - (time.perf_counter() - began)
            if left < 15:
                print("no time left for", item, flush=True)
                continue
            kind, *rest = item.split()
            try:
                if kind == "tests":
                    row = run_tests(out)
                elif kind == "prepare":
                    row = prepare(out, min(left, 110))
                elif kind == "cold":
                    row = cold(rest[0], int(rest[1]), min(left, 60), rest[2:] or ("thruway", "torch"))
                elif kind == "cases":
                    row = cases(a.cases)
                elif kind == "rates":
                    row = run_child(["rates"], min(left, 60))
                else:
                    row = run_child([*item.split()[:3], *(item.split()[3:] or [a.peers])], min(left, 60))
            except Exception as error:
                row = {"kind": item, "failed": f"{type(error).__name__}: {error}"[:600]}
            print(json.dumps(row), file=file, flush=True)
            print(json.dumps({k: v for k, v in row.items() if k != "says"})[:2500], flush=True)


main()
