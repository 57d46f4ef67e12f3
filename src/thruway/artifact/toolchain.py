"""The C compiler of this machine, and what one source text must look like.

A *source* is one translation unit of plain C, without includes and self-contained; each becomes one shared library. It exports
`int NAME(void **pointers, const long long *sizes)` per kernel; NAME is unique within an artifact. A kernel returns 0, or the number of
the check that failed; one that also writes an input must check before its first write. A pointer is the address of the tensor's own first
element. A source with parallel loops begins with PRELUDE, word for word:
its `tw_parallel_for(begin, end, grain, body, ctx)` runs `body(lo, hi, ctx)` over pieces of at least `grain`; at load, `tw_init` gets the
services of this process, (0) torch's own pool (`torch_parallel_for`). Without `tw_init` the loop runs on one thread, so a source runs alone.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PRELUDE = """\
typedef void tw_body(long lo, long hi, void *ctx);
static void tw_serial_for(long begin, long end, long grain, tw_body *body, void *ctx) { if (begin < end) body(begin, end, ctx); }
static void (*tw_parallel_for)(long begin, long end, long grain, tw_body *body, void *ctx) = tw_serial_for;
void tw_init(void *const *services) { tw_parallel_for = (void (*)(long, long, long, tw_body *, void *))services[0]; }
"""

NO_COMPILER = "No C compiler was found that works, so kernels cannot be compiled: " \
              "install gcc or clang (Debian: apt install gcc), or pip install ziglang."

_REQUIRED = ("-O3", "-ffp-contract=off", "-fPIC", "-shared")
_COMMON = ("-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-nostartfiles")
_TRIAL = "extern float sqrtf(float); int tw_trial(void **p, const long long *s) { float *x = p[0];\n" \
         "#pragma omp simd\nfor (long long i = 0; i < s[0]; i++) x[i] = sqrtf(x[i]); return 0; }\n"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """`command` starts the compiler, `identity` is what it says of itself, `flags` are those it takes here, `cpu` what -march=native stands for."""

    command: tuple[str, ...]
    identity: str
    flags: tuple[str, ...]
    cpu: str

    def command_line(self, source: Path, library: Path) -> list[str]:
        return [*self.command, *self.flags, "-x", "c", str(source), "-o", str(library), "-lm"]


def find_command(setting: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The first of: `setting`, $CC, cc, gcc, clang, the ziglang wheel. Looks only; nothing is started."""
    for text in (setting, environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(text)
        found = shutil.which(words[0]) if words else None
        if found:
            return (found, *words[1:])
    return (sys.executable, "-m", "ziglang", "cc") if find_spec("ziglang") else None


def is_found(setting: str) -> bool:
    """Whether the first word of `setting` is a program here."""
    words = shlex.split(setting)
    return bool(words) and shutil.which(words[0]) is not None


def stamp(command: tuple[str, ...], cpu: str) -> str:
    """What a cached probe of `command` depends on: the program's file and the CPU. A changed file has another size or time."""
    program = Path(command[0]).resolve()
    state = program.stat()
    return "\n".join((*command, str(program), str(state.st_size), str(state.st_mtime_ns), cpu))


def probe(command: tuple[str, ...], cpu: str) -> Toolchain | None:
    """Asks the compiler its version and compiles one small loop (about 20 ms); flags it refuses are left out. None where nothing compiles."""
    identity = _version_text(command)
    wanted = (*_REQUIRED, *_machine_flags(cpu), *_COMMON)
    if _compiles(command, wanted):
        return Toolchain(command, identity, wanted, cpu)
    if not _compiles(command, _REQUIRED):
        return None
    flags = _REQUIRED
    for flag in wanted[len(_REQUIRED):]:
        flags = (*flags, flag) if _compiles(command, (*flags, flag)) else flags
    return Toolchain(command, identity, flags, cpu)


def cpu_identity() -> str:
    """Architecture, model and instruction sets of this CPU, from /proc/cpuinfo where there is one."""
    wanted = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")
    found: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() in wanted:
            found.setdefault(name.strip(), " ".join(sorted(value.split())))
    return "\n".join((platform.machine(), *(f"{name}: {value}" for name, value in sorted(found.items()))))


def _machine_flags(cpu: str) -> tuple[str, ...]:
    machine, words = cpu.partition("\n")[0], cpu.split()
    if machine in {"x86_64", "AMD64"}:
        return ("-march=native", "-mprefer-vector-width=512") if "avx512f" in words else ("-march=native",)
    return ("-mcpu=native",) if machine in {"aarch64", "arm64"} else ()


def _version_text(command: tuple[str, ...]) -> str:
    return subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=120).stdout.strip()


def _compiles(command: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory(prefix="thruway-") as folder:
        source, library = Path(folder, "trial.c"), Path(folder, "trial.so")
        source.write_text(_TRIAL)
        line = Toolchain(command, "", flags, "").command_line(source, library)
        return subprocess.run(line, capture_output=True, timeout=120).returncode == 0 and library.exists()
