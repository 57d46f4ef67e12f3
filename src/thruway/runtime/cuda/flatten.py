"""Launch lists of kernels and fresh tensors alone as native Programs: a call then runs no Python at all.

Lists with library calls, views, an arena or checks stay with `CudaProgram`: they replay as CUDA graphs, or need a look before the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch

from thruway.core.launch import Allocate, GpuKernel, Kernel, LaunchList
from thruway.native import RegionFailed
from thruway.runtime.cpu.flatten import DROP, LAUNCH, Row, fresh_row, make_program
from thruway.runtime.cpu.launch import written_inputs
from thruway.runtime.cuda.driver import Driver, Launch
from thruway.runtime.cuda.sized import SizedKernels
from thruway.runtime.evaluate import concrete
from thruway.runtime.lifetime import examine


class Entrances(NamedTuple):
    """Addresses of what C calls: torch's function that gives the current stream of a device, and the driver's cuCtxGetCurrent,
    cuCtxPushCurrent, cuCtxPopCurrent and cuLaunchKernel."""

    stream: int
    current: int
    push: int
    pop: int
    launch: int


def is_flat(launch: LaunchList, kernels: Mapping[str, GpuKernel]) -> bool:
    """Whether a native Program can run it."""
    plain = all(isinstance(step, Kernel) or isinstance(step, Allocate) and step.arena is None for step in launch.steps)
    return plain and not launch.constants and launch.arena_bytes == 0 and not any(kernel.checks for kernel in kernels.values())


def without_arena(launch: LaunchList) -> LaunchList:
    """Every temporary in memory of its own, as a flat list wants it."""
    return replace(launch, arena_bytes=0, steps=tuple(replace(step, arena=None) if isinstance(step, Allocate) else step for step in launch.steps))


def find_entrances(driver: Driver) -> Entrances | None:
    """None where this torch does not offer its stream to C."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
        stream = library.aoti_torch_get_current_cuda_stream
    except (OSError, AttributeError):
        return None
    functions = (stream, driver.cuda.cuCtxGetCurrent, driver.cuda.cuCtxPushCurrent_v2, driver.cuda.cuCtxPopCurrent_v2, driver.launch_kernel)
    return Entrances(*(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in functions))


def native_launcher(
    core: ModuleType, launch: LaunchList, kernels: SizedKernels, device: torch.device, driver: Driver, entrances: Entrances,
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Called with the graph's inputs, gives the tuple of outputs. RegionFailed where an input's address is no multiple of 16 bytes."""
    functions: dict[tuple[str, bool], ctypes.c_void_p] = {}

    def function(kernel: GpuKernel) -> ctypes.c_void_p:
        key = kernel.symbol, kernel.wide
        if key not in functions:
            functions[key] = driver.load(kernel)
        return functions[key]

    def prepare(*values: int) -> object:
        by_name = {binding.name: value for binding, value in zip(launch.symbols, values)}
        sized, chosen = concrete(launch, by_name), kernels(by_name)
        try:
            return made(sized, chosen)
        except torch.OutOfMemoryError as error:              # the driver had no memory for the code
            raise RegionFailed(error) from error

    def made(sized: LaunchList, chosen: Mapping[str, GpuKernel]) -> object:
        with torch.cuda.device(device):
            launches = {i: Launch(driver, chosen[step.symbol], function(chosen[step.symbol]), step.sizes, 0, len(step.pointers))
                        for i, step in enumerate(sized.steps) if isinstance(step, Kernel)}
        return flat_program(core, sized, launches, device.index, driver.context(device.index).value or 0, entrances)

    return core.Launcher(inputs=len(launch.inputs), symbols=tuple((each.input, each.dim) for each in launch.symbols), prepare=prepare, watched=())


def flat_program(
    core: ModuleType, launch: LaunchList, launches: Mapping[int, Launch], device: int, context: int, entrances: Entrances,
) -> object:
    """The native Program of a concrete launch list; `launches` by step, `context` the one of GPU `device`."""
    slots = examine(launch)
    rows: list[Row] = []
    for i, step in enumerate(launch.steps):
        match step:
            case Allocate(slot, spec, None):
                rows.append(fresh_row(slot, spec))
            case Kernel(symbol, pointers):
                one, bumps = launches[i], written_inputs(step, slots, launch)
                rows.append((LAUNCH, symbol, tuple(entrances), context, one.function.value, one.programs, one.threads, one.kernel.shared, device,
                             pointers, one.words, bumps, step.writes_input))
            case _:
                raise TypeError(f"not a step of a flat launch list: {step!r}")
        if slots.drops[i]:
            rows.append((DROP, slots.drops[i]))
    return make_program(core, launch, slots, rows)
