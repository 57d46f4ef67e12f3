"""Chooses among the configurations of printed kernels by measuring them, within a time budget; choices are kept in the store.

Each candidate runs on scratch memory of its buffers' sizes, as a CUDA graph of several launches, so that launch overhead does not count.
What the budget did not reach keeps the cost model's guess.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from thruway.artifact.gpu_kernels import GpuKernels, KernelJob, triton_version
from thruway.artifact.key import ABI, Key, fingerprint
from thruway.core.errors import CompilerBug
from thruway.core.launch import GpuKernel
from thruway.runtime.cuda.driver import Driver, Launch
from thruway.runtime.cuda.recording import record

BUDGET_SECONDS = 60.0
LAUNCHES, REPLAYS = 20, 5
SCRATCH_LIMIT = 2 << 30            # bytes of scratch that one kernel may be measured on


@dataclass(frozen=True, slots=True)
class Candidates:
    """One kernel's configurations as jobs, the guess first; the bytes behind each of its pointers, None where not known."""

    jobs: tuple[KernelJob, ...]
    pointer_bytes: tuple[int, ...] | None


def choose(candidates: Sequence[Candidates], kernels: GpuKernels, driver: Driver, device: torch.device, note: Callable[[str, str], None]) -> list[GpuKernel]:
    """The best kernel of each, measured now or in an earlier process."""
    deadline = time.perf_counter() + BUDGET_SECONDS
    keys = [_key(each, kernels.capability, device) for each in candidates]
    known = [kernels.store.get(key) for key in keys]
    wanted = [each.jobs if data is None else (each.jobs[int(data)],) for each, data in zip(candidates, known)]
    made = _compiled(wanted, kernels)
    chosen = []
    for each, key, data, found in zip(candidates, keys, known, made):
        if data is not None or each.pointer_bytes is None or len(found) == 1 or time.perf_counter() > deadline:
            chosen.append(found[0])
            continue
        times = _times(found, each.pointer_bytes, driver, device, deadline)
        best = min(range(len(times)), key=times.__getitem__)
        kernels.store.put(key, str(best).encode())
        note("measured", f"{found[best].symbol}: {times[best]:.2f} µs with {found[best].block} points and {found[best].warps} warps, guessed {times[0]:.2f} µs")
        chosen.append(found[best])
    return chosen


def measure(kernel: GpuKernel, pointer_bytes: Sequence[int], driver: Driver, device: torch.device) -> float:
    """Microseconds per launch, the median of several replays."""
    memory = [torch.zeros(max(16, size), dtype=torch.uint8, device=device) for size in pointer_bytes]
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    launch = Launch(driver, kernel, driver.load(kernel), (0,) * len(kernel.size_names), flag.data_ptr(), len(memory))
    addresses = [each.data_ptr() for each in memory]
    launch.run(addresses, torch.cuda.current_stream(device).cuda_stream)
    torch.cuda.synchronize(device)
    stream = torch.cuda.Stream(device)
    graph, _ = record(lambda: [launch.run(addresses, stream.cuda_stream) for _ in range(LAUNCHES)], stream)
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / LAUNCHES)
    return statistics.median(times)


def _times(found: Sequence[GpuKernel], pointer_bytes: Sequence[int], driver: Driver, device: torch.device, deadline: float) -> list[float]:
    times = []
    for kernel in found:
        late = times and time.perf_counter() > deadline
        try:
            times.append(float("inf") if late else measure(kernel, pointer_bytes, driver, device))
        except RuntimeError:                 # does not fit this GPU
            times.append(float("inf"))
    return times


def _compiled(wanted: Sequence[Sequence[KernelJob]], kernels: GpuKernels) -> list[list[GpuKernel]]:
    """All at once, so that they compile in parallel; only the guesses where a candidate does not compile."""
    try:
        flat = iter(kernels.get([job for jobs in wanted for job in jobs]))
    except CompilerBug:
        return [[kernel] for kernel in kernels.get([jobs[0] for jobs in wanted])]
    return [[next(flat) for _ in jobs] for jobs in wanted]


def _key(candidates: Candidates, capability: int, device: torch.device) -> Key:
    first = candidates.jobs[0]
    how = " ".join(f"{job.block} {job.warps}" for job in candidates.jobs)
    return Key("tune", (("source", fingerprint(first.text)), ("buffers", f"{first.dtypes} {candidates.pointer_bytes}"), ("configurations", how),
                        ("abi", ABI), ("triton", triton_version()), ("gpu", f"{torch.cuda.get_device_name(device)} {capability}")))
