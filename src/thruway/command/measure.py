"""One measurement in a process of its own: `python -m thruway.command.measure JOB`, JOB and each printed line being JSON.

Prints {"phase": …} lines while it works and one {"result": …} line at the end, or {"failed": …} where the model itself is at fault. The first
call counts from the call of `compile`; steady figures come from rounds in which eager, eager again (the noise) and compiled take turns, after
a warm-up that counts for nothing.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

import thruway
from thruway.command.works import WorkFailed, build, failing

WARMUP_CALLS = 3


@dataclass(frozen=True, slots=True)
class Job:
    """`batch` is None where the model has none to choose; `threads` 0 leaves torch's own number; `seconds` is for all rounds together."""

    model: str
    batch: int | None
    compiler: str
    mode: str | None
    device: str
    dtype: str
    threads: int
    rounds: int
    seconds: float


def measure(job: Job, say: Callable[[str], None]) -> dict[str, Any]:
    """The figures of one job; times in seconds or ms as named, memory in MB, `ratios` are eager over compiled per round."""
    if job.threads:
        torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    say("building the model")
    model, inputs = build(job.model, job.batch, job.device, job.dtype)
    with torch.no_grad():
        say("eager")
        with failing(f"{job.model} fails in eager"):
            expected = model(*inputs)
        _timed_calls(model, inputs, WARMUP_CALLS, job.device)
        eager_peak = _peak_mb(job.device)
        say("first compiled call")
        compiled, got, first = _first_call(job, model, inputs)
        say("measuring")
        times = _rounds({"eager": model, "again": model, "compiled": compiled}, inputs, job)
    return asdict(job) | first | summary(times) | _counts(job.compiler) | {
        "error": max_error(expected, got), "eager_peak_mb": eager_peak, "peak_mb": _peak_mb(job.device), "used_threads": torch.get_num_threads(),
    }


def _first_call(job: Job, model: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Callable[..., Any], Any, dict[str, float]]:
    words = {"mode": job.mode} if job.mode else {}
    start, cpu = time.perf_counter(), _cpu_seconds()
    compiled = (torch.compile if job.compiler == "torch" else thruway.compile)(model, **words)
    got = compiled(*inputs)
    _synchronize(job.device)
    return compiled, got, {"first_s": time.perf_counter() - start, "first_cpu_s": _cpu_seconds() - cpu}


def _rounds(calls: Mapping[str, Callable[..., Any]], inputs: Sequence[Any], job: Job) -> dict[str, list[float]]:
    """Milliseconds per call of each, round by round, the order turned around every second round."""
    for call in calls.values():
        _timed_calls(call, inputs, WARMUP_CALLS, job.device)
    once = sum(_timed_calls(call, inputs, 1, job.device) for call in calls.values())
    repeat = max(1, min(1000, int(job.seconds / job.rounds / max(once, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for turn in range(job.rounds):
            for name in list(calls)[:: 1 if turn % 2 else -1]:
                times[name].append(_timed_calls(calls[name], inputs, repeat, job.device) / repeat * 1e3)
    finally:
        gc.enable()
    return times


def _timed_calls(call: Callable[..., Any], inputs: Sequence[Any], repeat: int, device: str) -> float:
    _synchronize(device)
    start = time.perf_counter()
    for _ in range(repeat):
        call(*inputs)
    _synchronize(device)
    return time.perf_counter() - start


def summary(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Medians, and the median of the rounds' ratios with its 95 % interval; `aa` is eager over eager again."""
    ratios = [eager / compiled for eager, compiled in zip(times["eager"], times["compiled"])]
    low, high = median_interval(ratios)
    return {
        "eager_ms": statistics.median(times["eager"]), "compiled_ms": statistics.median(times["compiled"]),
        "speedup": statistics.median(ratios), "speedup_low": low, "speedup_high": high,
        "aa": statistics.median(eager / again for eager, again in zip(times["eager"], times["again"])), "ratios": ratios,
    }


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics: how many values lie below the median is binomial(n, 1/2).

    Below six values no such interval exists, and the whole range stands in for it.
    """
    ordered, n = sorted(values), len(values)
    tail, weight, cut = 0.0, 0.5**n, 0
    while cut < n // 2 and tail + weight <= 0.025:
        tail += weight
        weight *= (n - cut) / (cut + 1)
        cut += 1
    cut = max(cut, 1)
    return ordered[cut - 1], ordered[n - cut]


def max_error(expected: Any, got: Any) -> float:
    """The largest difference over all tensors, relative to the largest magnitude of the tensor it is in."""
    pairs = list(zip(tensors(expected), tensors(got)))
    return max((_error(a.double(), b.double()) for a, b in pairs if a.numel()), default=0.0)


def _error(expected: torch.Tensor, got: torch.Tensor) -> float:
    return ((got - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item()


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors inside nested tuples, lists and mappings."""
    match value:
        case torch.Tensor():
            yield value
        case Mapping():
            yield from (tensor for inner in value.values() for tensor in tensors(inner))
        case list() | tuple():
            yield from (tensor for inner in value for tensor in tensors(inner))


def _counts(compiler: str) -> dict[str, int | None]:
    if compiler == "thruway":
        metrics = thruway.metrics()
        return {name: metrics[name] for name in ("graphs", "graph_breaks", "recompiles", "eager", "kept_eager")}
    counters = sys.modules["torch._dynamo.utils"].counters            # loaded by torch.compile itself
    return {"graphs": counters["stats"]["unique_graphs"], "graph_breaks": sum(counters["graph_break"].values()), "recompiles": None}


def _cpu_seconds() -> float:
    """User and system time of this process and of the children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def _peak_mb(device: str) -> float:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    say = lambda phase: print(json.dumps({"phase": phase}), flush=True)
    try:
        said = {"result": measure(job, say)}
    except WorkFailed as failed:
        said = {"failed": str(failed)}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
