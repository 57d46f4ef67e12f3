"""Machine code of printed GPU kernels: from the store, else compiled by Triton, several at a time.

Triton is imported only where something must be compiled: a warm start runs without it. What is stored is the cubin and what launching needs.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version

from thruway.artifact.key import ABI, Key, fingerprint
from thruway.artifact.store import Store
from thruway.core.errors import CompilerBug, Unsupported
from thruway.core.launch import GpuKernel
from thruway.core.sizes import SizeLike

Note = Callable[[str, str], None]
_STORED = ("entry", "shared", "extra")
_COMPILER = "thruway.artifact.cubin"         # needs triton at its import


@dataclass(frozen=True, slots=True)
class KernelJob:
    """One kernel to be had: its text and how it is launched. Fields as in `cubin.compile_kernel`."""

    text: str
    symbol: str
    dtypes: tuple[str, ...]
    aligned: tuple[bool, ...]
    checks: bool
    size_names: tuple[str, ...]
    wide: bool
    points: SizeLike
    block: int
    constants: tuple[tuple[str, int], ...]
    warps: int
    stages: int = 0
    floor_bytes: int | None = None


class GpuKernels:
    """The kernels of one kind of GPU. `capability`: 90 for compute capability 9.0."""

    def __init__(self, store: Store, capability: int, note: Note):
        self.store, self.capability, self.note = store, capability, note

    def get(self, jobs: Sequence[KernelJob]) -> list[GpuKernel]:
        """Unsupported where one must be compiled and there is no Triton; CompilerBug carries what Triton said."""
        keys = [self._key(job) for job in jobs]
        found = [self._stored(key, job) for key, job in zip(keys, jobs)]
        missing = [i for i, kernel in enumerate(found) if kernel is None]
        if missing:
            for i, kernel in zip(missing, self._compile([jobs[i] for i in missing])):
                self.note("cache_miss", keys[i].digest)
                self.store.put(keys[i], _pack(kernel))
                found[i] = kernel
        return found

    def _compile(self, jobs: Sequence[KernelJob]) -> list[GpuKernel]:
        if not has_triton():
            raise Unsupported("TW710", "GPU kernels need Triton, which is not installed", "pip install triton")
        compiler = importlib.import_module(_COMPILER)
        folder = self.store.folder / "triton"
        rows = [{f.name: getattr(job, f.name) for f in fields(job)} | {"capability": self.capability, "folder": folder} for job in jobs]
        try:
            return compiler.compile_all(rows)
        except MemoryError:
            raise
        except Exception as error:
            raise CompilerBug("artifact", f"Triton refused a generated kernel: {type(error).__name__}: {error}") from error

    def _key(self, job: KernelJob) -> Key:
        how = f"{job.symbol} {job.dtypes} {job.aligned} {job.checks} {job.size_names} {job.wide} {job.constants} {job.warps} {job.stages}"
        return Key("cubin", (("source", fingerprint(job.text)), ("launch", how), ("abi", ABI), ("triton", triton_version()),
                             ("capability", str(self.capability))))

    def _stored(self, key: Key, job: KernelJob) -> GpuKernel | None:
        data = self.store.get(key)
        if data is None:
            return None
        self.note("cache_hit", key.digest)
        head, _, cubin = data.partition(b"\n")
        known: Mapping[str, object] = json.loads(head)
        return GpuKernel(job.symbol, cubin, known["entry"], job.points, job.block, job.warps, known["shared"], job.checks, job.wide, known["extra"],
                         job.size_names, job.floor_bytes)


def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def triton_version() -> str:
    for name in ("triton", "pytorch-triton"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "none"


def _pack(kernel: GpuKernel) -> bytes:
    return json.dumps({name: getattr(kernel, name) for name in _STORED}).encode() + b"\n" + kernel.cubin
