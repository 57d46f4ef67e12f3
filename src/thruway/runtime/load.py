"""From an artifact, or a launch list and its compiled libraries, to something to call.

Takes plain data; gives a `Runnable` whose `call(*tensors)` returns a tuple of tensors. Kernels and operators are found once, here; sizes are
evaluated once per shape. Inputs must be as the graph's guards promise: nothing about their layout is checked again.
A call raises RegionFailed where a check of a kernel or an operator failed before any input was written: the caller runs eager.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from thruway import native
from thruway.artifact.artifact import Artifact
from thruway.artifact.workers import Note, Workers
from thruway.core.errors import CompilerBug
from thruway.core.launch import LaunchList
from thruway.runtime.cpu.flatten import native_program
from thruway.runtime.cpu.launch import PythonProgram
from thruway.runtime.cpu.tensors import bump_version, make_arena
from thruway.runtime.derived import Derivation, Report, watched_inputs
from thruway.runtime.evaluate import concrete
from thruway.runtime.first import derives_much, interleaved, keep_freed_memory
from thruway.runtime.launcher import PythonLauncher
from thruway.runtime.resolve import find_code, open_library

Call = Callable[..., tuple[torch.Tensor, ...]]
RETRIES = 3                                  # a full store, and several writers of it


@dataclass(frozen=True, slots=True)
class Runnable:
    """`call` runs the graph. `derivation` is None where nothing is derived."""

    call: Call
    derivation: Derivation | None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.call(*tensors)

    @property
    def derived_bytes(self) -> int:
        """What derived values hold beyond the weights; 0 before the first call."""
        return self.derivation.nbytes if self.derivation else 0

    def release(self) -> None:
        """Lets go of arenas, derived values and programs; the next call makes them again."""
        self.call.release()


def load(
    launch: LaunchList, libraries: Sequence[Path | ctypes.CDLL], *, report: Report | None = None, plain: Call | None = None, is_native: bool | None = None
) -> Runnable:
    """`report` hears when derived values are made again. `plain` computes the same from weights as they are: it is used while a weight changes at
    every call. `is_native` picks the executor: True the C one, False Python, None what there is."""
    opened = [each if isinstance(each, ctypes.CDLL) else open_library(each) for each in libraries]
    code = find_code(launch, opened)
    core = None if is_native is False else native_core()
    if core is None and is_native:
        raise CompilerBug("runtime", "the native core was asked for and is not there")

    def prepare(launch: LaunchList, *values: int):
        sized = concrete(launch, {binding.name: value for binding, value in zip(launch.symbols, values)})
        return native_program(core, sized, code) if core else PythonProgram(sized, code)

    def launcher(launch: LaunchList, **more: object) -> Call:
        return (core.Launcher if core else PythonLauncher)(
            inputs=len(launch.inputs), symbols=tuple((binding.input, binding.dim) for binding in launch.symbols),
            prepare=functools.partial(prepare, launch), **more,
        )

    if not launch.derived:
        return Runnable(launcher(launch, watched=()), None)
    first = None
    if derives_much(launch):
        keep_freed_memory()
        first = launcher(interleaved(launch), watched=())
    derivation = Derivation(launch, code, report)
    return Runnable(launcher(launch, watched=watched_inputs(launch), derive=derivation, plain=plain, first=first), derivation)


def load_artifact(
    artifact: Artifact, workers: Workers | None, *, report: Report | None = None, plain: Call | None = None, note: Note | None = None,
) -> Runnable:
    """Compiles what the store lacks, then loads. `workers` may be None where the artifact has no kernels. `note` hears what the store had."""
    waiting = [workers.submit(source, note) for source in artifact.sources] if workers else []
    libraries = [_open(each.library(), workers, each.source) for each in waiting]
    return load(artifact.launch, libraries, report=report, plain=plain)


def native_core() -> ModuleType | None:
    """The native core, bound to this torch and able to launch; None where it is not."""
    if not native.prepare() or not hasattr(native._core, "bind_launch"):
        return None
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    found = native._core.bind_launch(torch.as_strided, bump_version, make_arena, autocast.raw_repr())
    return native._core if found else None


def _open(path: Path, workers: Workers, source: str) -> ctypes.CDLL:
    for _ in range(RETRIES):
        try:
            return open_library(path)
        except OSError:                      # the store was trimmed between its check and now
            path = workers.submit(source).library()
    return open_library(path)
