"""Replays a whole step as one CUDA graph, and knows when that is not safe.

`Replay` stands around a CudaProgram. The first call runs it step by step (libraries then choose their algorithms), the second records
it. What may change between calls decides how each input is treated: weights and tensors that the step writes keep their addresses, and a
moved one leads to a new recording; every other input is copied into a static one. Outputs are copied out of the graph's memory, so nothing that the
user keeps is ever overwritten. Recordings share one memory pool per device: they run one after the other, and nothing in the pool outlives a replay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

from thruway.core.launch import Call
from thruway.runtime.cuda.launch import CudaProgram

RECORDINGS = 8             # per program: a step whose weights keep moving is not worth recording
WARM_RUNS = 1

_pools: dict[int, tuple[int, int]] = {}


def refusal(program: CudaProgram, inputs: Sequence[torch.Tensor]) -> str | None:
    """Why this step cannot be one CUDA graph, in plain words; None where it can."""
    if program.kernel_launches < 2:
        return "one launch is as quick by itself"
    if not all(t.is_cuda for t in inputs):
        return "an input is in CPU memory, which a graph would read once and for all"
    if len({t.device for t in inputs}) > 1:
        return "inputs are on several devices"
    for step in program.launch.steps:
        if isinstance(step, Call) and any(tag in _tags(program.operators[step.op]) for tag in ("data_dependent_output", "dynamic_output_shape")):
            return f"{step.op} waits for the GPU"
    if any(program.slots.kind[s] == "input" and s >= len(inputs) for s in program.launch.outputs):
        return "an output is a view of an input"
    return None


class Replay:
    """A CudaProgram behind CUDA graphs. Same call, same meaning."""

    def __init__(self, program: CudaProgram):
        self.program = program
        self.runs = 0
        self.recordings: OrderedDict[tuple[int, ...], _Recording] = OrderedDict()
        fixed = set(program.written) | {i for i, each in enumerate(program.launch.inputs) if each.weight}
        self.fixed = sorted(fixed)
        self.moving = [i for i in range(len(program.launch.inputs)) if i not in fixed]
        self.recorded = 0

    def __call__(self, inputs: Sequence[torch.Tensor], derived: Sequence[torch.Tensor] = ()) -> tuple[torch.Tensor, ...]:
        self.runs += 1
        if self.runs <= WARM_RUNS or self.recorded > RECORDINGS or torch.cuda.is_current_stream_capturing():
            return self.program(inputs, derived)
        key = tuple([inputs[i].data_ptr() for i in self.fixed] + [t.data_ptr() for t in derived])
        recording = self.recordings.get(key)
        if recording is None:
            recording = self._record(key, inputs, derived)
        return recording.replay(inputs)

    def failed(self) -> bool:
        return self.program.failed()

    def _record(self, key: tuple[int, ...], inputs: Sequence[torch.Tensor], derived: Sequence[torch.Tensor]) -> _Recording:
        while len(self.recordings) >= RECORDINGS:
            self.recordings.popitem(last=False)
        self.recorded += 1
        recording = self.recordings[key] = _Recording(self.program, inputs, derived, self.moving)
        return recording


class _Recording:
    """One CUDA graph with its static inputs."""

    def __init__(self, program: CudaProgram, inputs: Sequence[torch.Tensor], derived: Sequence[torch.Tensor], moving: Sequence[int]):
        self.moving = moving
        device = program.device
        with torch.inference_mode(False), torch.no_grad():
            static = list(inputs)
            for i in moving:
                static[i] = _empty_like(inputs[i])
            self.static = [static[i] for i in moving]
            if moving:
                torch._foreach_copy_(self.static, [inputs[i] for i in moving])
            self.graph = torch.cuda.CUDAGraph()
            index = device.index if device.index is not None else torch.cuda.current_device()
            pool = _pools.setdefault(index, torch.cuda.graph_pool_handle())
            with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
                outputs = program(static, derived)
        self.slots, self.written = program.launch.outputs, program.written
        self.own = [None if slot < len(inputs) else out for slot, out in zip(self.slots, outputs)]     # None: the output is an input
        self.kept = (tuple(t for i, t in enumerate(inputs) if i not in moving), tuple(derived))     # fixed addresses stay valid
        self.last_stream: int | None = None
        self.done = torch.cuda.Event()

    def replay(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        stream = torch.cuda.current_stream()
        if self.last_stream not in (None, stream.cuda_stream):
            stream.wait_event(self.done)                          # static inputs are shared between streams
        if self.moving:
            torch._foreach_copy_(self.static, [inputs[i] for i in self.moving])
        self.graph.replay()
        if self.written:
            torch._C._increment_version([inputs[i] for i in self.written])
        fresh = [own if own is None else _empty_like(own) for own in self.own]
        if any(own is not None for own in self.own):
            torch._foreach_copy_([new for new in fresh if new is not None], [own for own in self.own if own is not None])
        self.last_stream = stream.cuda_stream
        self.done.record(stream)
        return tuple(inputs[slot] if new is None else new for new, slot in zip(fresh, self.slots))


def _empty_like(t: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)


def _tags(operator: object) -> tuple[str, ...]:
    return tuple(tag.name for tag in getattr(operator, "tags", ()))
