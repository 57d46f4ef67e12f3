"""Chooses among the configurations of printed kernels by measuring them, within a time budget; choices are kept in the store.

Each candidate runs on scratch memory of its buffers' sizes, as a CUDA graph of several launches, so that launch overhead does not count.
What the budget did not reach keeps the cost model's guess.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from thruway.artifact.gpu_kernels import GpuKernels, KernelJob, triton_version
from thruway.artifact.key import ABI, Key, fingerprint
from thruway.core.errors import CompilerBug
from thruway.core.launch import GpuKernel
from thruway.runtime.cuda.driver import Driver, Launch
from thruway.runtime.cuda.recording import record

LAUNCHES, REPLAYS = 20, 5
AT_ONCE = 16                       # kernels whose configurations compile together; the budget is looked at before each is measured
SCRATCH_LIMIT = 2 << 30            # bytes of scratch that one kernel may be measured on


@dataclass(frozen=True, slots=True)
class Candidates:
    """One kernel's configurations as jobs, the guess first; the bytes behind each of its pointers, None where not known."""

    jobs: tuple[KernelJob, ...]
    pointer_bytes: tuple[int, ...] | None


def choose(
    candidates: Sequence[Candidates], kernels: GpuKernels, driver: Driver, device: torch.device, note: Callable[[str, str], None], seconds: float,
) -> list[GpuKernel]:
    """The best kernel of each, measured now or in an earlier process; once the seconds are spent, the guesses."""
    deadline = time.perf_counter() + seconds
    keys = [_key(each, kernels.capability, device) for each in candidates]
    known = [kernels.store.get(key) for key in keys]
    chosen = kernels.get([each.jobs[int(data or b"0")] for each, data in zip(candidates, known)])
    unknown = [i for i, each in enumerate(candidates) if known[i] is None and len(each.jobs) > 1 and fits(each)]
    for done, (i, found) in enumerate(_in_batches(unknown, candidates, kernels)):
        if time.perf_counter() > deadline:
            note("measured", f"{seconds:.0f} s are spent: {len(unknown) - done} kernels stay as guessed")
            break
        times = _times(found, candidates[i].pointer_bytes, driver, device)
        best = min(times, key=times.__getitem__, default=0)
        if times.get(best, math.inf) == math.inf:
            continue
        kernels.store.put(keys[i], str(best).encode())
        chosen[i] = found[best]
        note("measured", f"{chosen[i].symbol}: {times[best]:.2f} µs with {chosen[i].block} points and {chosen[i].warps} warps, "
                         f"guessed {times.get(0, math.inf):.2f} µs")
    return chosen


def fits(candidates: Candidates) -> bool:
    return candidates.pointer_bytes is not None and sum(candidates.pointer_bytes) <= SCRATCH_LIMIT


def _in_batches(which: Sequence[int], candidates: Sequence[Candidates], kernels: GpuKernels) -> Iterator[tuple[int, dict[int, GpuKernel]]]:
    """The candidates numbered `which`, compiled, some at a time."""
    for start in range(0, len(which), AT_ONCE):
        batch = which[start:start + AT_ONCE]
        yield from zip(batch, compiled([candidates[i].jobs for i in batch], kernels))


def measure(kernel: GpuKernel, pointer_bytes: Sequence[int], driver: Driver, device: torch.device) -> float:
    """Microseconds per launch, the median of several replays."""
    memory = [torch.zeros(max(16, size), dtype=torch.uint8, device=device) for size in pointer_bytes]
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    launch = Launch(driver, kernel, driver.load(kernel), (0,) * len(kernel.size_names), flag.data_ptr(), len(memory))
    addresses = [each.data_ptr() for each in memory]
    return replayed(lambda: launch.run(addresses, torch.cuda.current_stream(device).cuda_stream), device)


def replayed(run: Callable[[], object], device: torch.device) -> float:
    """Microseconds of what `run` launches on the current stream, inside a CUDA graph."""
    run()
    torch.cuda.synchronize(device)
    graph, _ = record(lambda: [run() for _ in range(LAUNCHES)], torch.cuda.Stream(device))
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / LAUNCHES)
    return statistics.median(times)


def _times(found: Mapping[int, GpuKernel], pointer_bytes: Sequence[int], driver: Driver, device: torch.device) -> dict[int, float]:
    times: dict[int, float] = {}
    for i, kernel in found.items():
        try:
            times[i] = measure(kernel, pointer_bytes, driver, device)
        except RuntimeError:                 # does not fit this GPU
            times[i] = math.inf
    return times


def compiled(wanted: Sequence[Sequence[KernelJob]], kernels: GpuKernels) -> list[dict[int, GpuKernel]]:
    """Those of each that compile, by number: all at once, so that they compile in parallel, or one by one where some do not."""
    try:
        flat = iter(kernels.get([job for jobs in wanted for job in jobs]))
        return [{i: next(flat) for i in range(len(jobs))} for jobs in wanted]
    except CompilerBug:
        return [{i: kernel for i, job in enumerate(jobs) for kernel in _one(job, kernels)} for jobs in wanted]


def _one(job: KernelJob, kernels: GpuKernels) -> list[GpuKernel]:
    try:
        return kernels.get([job])
    except CompilerBug:
        return []


def _key(candidates: Candidates, capability: int, device: torch.device) -> Key:
    first = candidates.jobs[0]
    how = " ".join(f"{job.constants} {job.warps} {job.stages}" for job in candidates.jobs)
    return choice_key(f"{first.text} {first.dtypes} {candidates.pointer_bytes} {how}", capability, device)


def choice_key(among: str, capability: int, device: torch.device) -> Key:
    """Names a choice that was measured on this kind of GPU; `among` says between what."""
    return Key("tune", (("among", fingerprint(among)), ("abi", ABI), ("triton", triton_version()), ("torch", torch.__version__),
                        ("gpu", f"{torch.cuda.get_device_name(device)} {capability}")))
