"""`python -m tests.fuzz --count 10000 --seed 0`: random programs, eager beside compiled; one that differs is shrunk and saved.

A child process does the work, so that a crash costs one program. Exit status 1 where anything differed.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch

from .compare import Difference, difference, load, run
from .shrink import shrink
from .tensors import write_tensor_program
from .write import write_program

FOLDER = Path(__file__).parent / "regressions"
LIMIT = 20                          # seconds for one program
MEMORY = 3 << 30                    # bytes that a program may take: some double a list for ever
COMPILED_EVERY = {"language": 50, "tensors": 2}         # one program in so many runs through the whole compiler
WRITERS = {"language": write_program, "tensors": write_tensor_program}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", choices=WRITERS, default="language", help="programs of Python around tensors, or of tensor operators")
    parser.add_argument("--backend", default="", help="eager, thruway, or empty: eager and some programs thruway")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    parser.add_argument("--show", action="store_true", help="print the program of --seed and stop")
    parser.add_argument("--no-shrink", action="store_true", help="only name the seeds that differ")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show:
        print(WRITERS[options.kind](options.seed))
    elif options.child:
        _work(options)
    else:
        sys.exit(_watch(options))


def _watch(options: argparse.Namespace) -> int:
    """Starts children until every seed is done; a child that dies is a finding of the seed it was at."""
    at, end, failed, start = options.seed, options.seed + options.count, 0, time.monotonic()
    while at < end and not (options.seconds and time.monotonic() - start > options.seconds):
        left = options.seconds - (time.monotonic() - start) if options.seconds else 0
        command = [sys.executable, "-m", "tests.fuzz", "--child", "--seed", str(at), "--count", str(end - at), "--seconds", str(left), "--backend", options.backend, "--kind", options.kind]
        child = subprocess.Popen(command + ["--no-shrink"] * options.no_shrink, stdout=subprocess.PIPE, text=True, env=os.environ | {"THRUWAY_BREAK_NOTICE": "0"})
        for line in child.stdout:
            if line.startswith("at "):
                at = int(line.split()[1])
            else:
                failed += line.startswith("DIFFERS")
                print(line, end="", flush=True)
        if child.wait() == 0:
            break
        print(f"DIFFERS seed {at}: the process died ({child.returncode})", flush=True)
        failed, at = failed + 1, at + 1
    print(f"{failed} programs differ; seeds {options.seed} to {at}, {time.monotonic() - start:.0f} s")
    return int(failed > 0)


def _work(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    gc.freeze()                              # torch's own objects need no looking at
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))       # of what ran before
        print(f"at {seed}", flush=True)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, resource.RLIM_INFINITY))
        if options.seconds and time.monotonic() - start > options.seconds:
            break
        backend = options.backend or ("thruway" if seed % COMPILED_EVERY[options.kind] == 0 else "eager")
        text = WRITERS[options.kind](seed)
        found = _timed(text, backend)
        if found is not None:
            print(f"DIFFERS seed {seed} backend {backend} {str(found)[:600]}", flush=True)
            if not options.no_shrink:
                _save(f"{options.kind}_{seed}" if options.kind != "language" else f"seed_{seed}", text, backend, found)


def _address_space() -> int:
    """Bytes that the process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class TooLong(BaseException):
    """A program ran longer than LIMIT."""


def _too_long(*_: object) -> None:
    raise TooLong


def _timed(text: str, backend: str) -> Difference | None:
    signal.alarm(LIMIT)
    try:
        return difference(text, backend)
    except (TooLong, MemoryError) as error:
        return Difference(type(error).__name__, f"over {LIMIT} s, or {MEMORY} bytes") if _ends(text) else None
    except RuntimeError as error:
        if "bad_alloc" not in str(error):                       # torch's words for a full memory
            raise
        return None
    finally:
        signal.alarm(0)


def _ends(text: str) -> bool:
    """Whether the program ends in eager: some loop for ever, or fill the memory."""
    signal.alarm(LIMIT)
    try:
        space = load(text, "fuzz_program")
        run(space, space["f"])
    except (TooLong, MemoryError):
        return False
    finally:
        signal.alarm(0)
    return True


def _save(name: str, text: str, backend: str, found: Difference) -> None:
    """The program, made small, as tests/fuzz/regressions/<name>.py."""
    def fails(candidate: str) -> bool:
        try:
            again = _timed(candidate, backend)
        except Exception:
            return False
        return again is not None and again.kind == found.kind

    small = shrink(text, fails)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.py"
    path.write_text(f"# backend: {backend}\n# differed in: {re.sub(r'0x[0-9a-f]+', '0x…', found.kind)}\n{small}")
    print(f"  saved {path}", flush=True)


if __name__ == "__main__":
    main()
