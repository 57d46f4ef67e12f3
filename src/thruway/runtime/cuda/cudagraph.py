"""Replays a whole step as one CUDA graph, and knows when that is not safe.

`Replay` stands around a CudaProgram. The first runs go step by step (libraries then choose their algorithms), the next records.
What may change between calls decides how each input is treated: weights, tensors that the step writes and inputs that have not moved so far
are read where they are, and a moved one leads to a new recording; an input that is no weight and has moved is copied into a static one from then on.
Outputs are copied out of the graph's memory, so nothing that the user keeps is ever overwritten. Recordings share one memory pool per
device: they run one after the other, and nothing in the pool outlives a replay.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from thruway.core.launch import Call, uses
from thruway.native import RegionFailed
from thruway.runtime.cuda.launch import ALIGNMENT, CudaProgram, HalfDone, dense, tags
from thruway.runtime.cuda.recording import Recorded, is_alone, record, recover, watch

RECORDINGS = 8             # per program: a step whose weights keep moving is not worth recording
WARM_RUNS = 2
ATTEMPTS = 3                # another thread may spoil a recording, for instance by waiting for the whole device inside a library
ONE_LAUNCH = "one launch is as quick by itself"
OTHERS_MAY_DRAW = "it draws random numbers, which other threads could not do while it is recorded: it waits until none run"
MICROSECONDS_PER_LAUNCH = 4.0
COPY_MICROSECONDS, COPIED_BYTES_PER_MICROSECOND = 4.0, 2.0e6
_Made = TypeVar("_Made")
WAITING_TAGS = frozenset({"data_dependent_output", "dynamic_output_shape"})


class _Pool:
    """The graph memory of one device, its recording stream, and who used it last. `anchor` is a graph that stays: torch gives up a
    pool whose last graph is gone."""

    def __init__(self, device: torch.device):
        self.handle = torch.cuda.graph_pool_handle()
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.last_stream: int | None = None
        self.done = torch.cuda.Event()
        self.lock = threading.Lock()             # one thread records or replays at a time
        self.anchor, _ = self.record(lambda: torch.zeros(1, device=device))

    def record(self, run: Callable[[], _Made], draws: bool = False) -> tuple[Recorded, _Made]:
        """Records `run` on a stream of its own."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with self.lock:
            made = record(run, self.stream, self.handle, draws)
        current.wait_stream(self.stream)
        return made

    def follow(self, stream: torch.cuda.Stream) -> None:
        """What comes next on `stream` runs behind what last used graph memory and static inputs. The caller holds the lock until `used`."""
        if self.last_stream not in (None, stream.cuda_stream):
            stream.wait_event(self.done)

    def used(self, stream: torch.cuda.Stream) -> None:
        self.last_stream = stream.cuda_stream
        self.done.record(stream)


_pools: dict[int, _Pool] = {}


def refusal(program: CudaProgram, inputs: Sequence[torch.Tensor]) -> str | None:
    """Why this step cannot be one CUDA graph, in plain words; None where it can."""
    if program.kernel_launches < 2:
        return ONE_LAUNCH
    if not all(t.is_cuda for t in inputs):
        return "an input is in CPU memory, which a graph would read once and for all"
    if len({t.device for t in inputs}) > 1:
        return "inputs are on several devices"
    for step in program.launch.steps:
        if isinstance(step, Call) and WAITING_TAGS & tags(step.op):
            return f"{step.op} waits for the GPU"
    return _output_refusal(program, len(inputs)) or _overlap_refusal(program, inputs)


def _output_refusal(program: CudaProgram, inputs: int) -> str | None:
    outputs, slots = program.launch.outputs, program.slots
    if any(slots.kind[s] == "input" and s >= inputs for s in outputs):
        return "an output is a view of an input"
    roots = [slots.root[s] for s in set(outputs)]
    return "two outputs share memory" if len(roots) != len(set(roots)) else None


def _overlap_refusal(program: CudaProgram, inputs: Sequence[torch.Tensor]) -> str | None:
    if any(not _names_memory_once(dense(t)) for t in inputs):
        return "an input overlaps itself"
    return None


def _names_memory_once(t: torch.Tensor) -> bool:
    """No two elements at one address, by sorted strides; sure only for what it calls so."""
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(t.stride(), t.shape) if n > 1):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def predicted_gain(launches: int, moving_bytes: int, output_bytes: int) -> float:
    """Microseconds per call that a replay should save: launches against copies of moving inputs and of outputs."""
    copies = bool(moving_bytes) + bool(output_bytes)
    return (launches - 1) * MICROSECONDS_PER_LAUNCH - copies * COPY_MICROSECONDS - (moving_bytes + output_bytes) / COPIED_BYTES_PER_MICROSECOND


class Replay:
    """A CudaProgram behind CUDA graphs. Same call, same meaning. `note(kind, text)` hears what was decided, once.
    Inputs from number `constant` on keep their addresses for as long as this object lives."""

    def __init__(self, program: CudaProgram, constant: int, note: Callable[[str, str], None]):
        watch()
        self.program, self.note = program, note
        self.runs = self.recorded = self.failed = 0
        used = {program.slots.root[slot] for step in program.launch.steps for slot in uses(step)}
        self.used = [i for i in range(constant) if i in used]
        self.may_move = {i for i in self.used if not program.launch.inputs[i].weight} - set(program.written)
        self.moving: list[int] = []
        self.table = _Table(self.used)
        self.last: dict[int, int] = {}
        self.refused = False
        self.output_bytes = 0
        self.told: set[str] = set()
        self.deciding = threading.RLock()
        self.ran = threading.local()             # whether this thread has run the program itself: the libraries it calls are then ready

    def __call__(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        if self.refused or self.recorded > RECORDINGS or torch.cuda.is_current_stream_capturing():
            return self.program(inputs)
        if self.runs >= WARM_RUNS:
            table = self.table
            recording = table.recordings.get(table.key(inputs))
            if recording is not None:
                return recording.replay(inputs)
        with self.deciding:
            return self._warm_up(inputs) if self.runs < WARM_RUNS or not hasattr(self.ran, "once") else self._replay_new(inputs)

    def _warm_up(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        self.runs += 1
        outputs = self.program(inputs)
        self.ran.once = True
        self._see_moves(inputs)
        if self.runs == 1:
            self.output_bytes = sum(t.numel() * t.itemsize for t in outputs)
            self._decide(inputs)
        return outputs

    def _replay_new(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        recording = self.table.recordings.get(self.table.key(inputs)) or self._record(inputs)
        return recording.replay(inputs) if recording is not None else self.program(inputs)

    def _see_moves(self, inputs: Sequence[torch.Tensor]) -> None:
        """Inputs that have moved since the last look are copied from now on. Recordings that read them in place go."""
        now = {i: inputs[i].data_ptr() for i in self.may_move}
        moved = [i for i in sorted(now) if i not in self.moving and (now[i] != self.last.get(i, now[i]) or now[i] % ALIGNMENT)]
        if moved:
            self.moving = sorted([*self.moving, *moved])
            self.table = _Table([i for i in self.used if i not in self.moving])
        self.last = now

    def _decide(self, inputs: Sequence[torch.Tensor]) -> None:
        reason = refusal(self.program, inputs)
        if reason is None:
            gain = predicted_gain(self.program.kernel_launches, sum(inputs[i].numel() * inputs[i].itemsize for i in self.moving), self.output_bytes)
            if gain <= 0:
                reason = f"copies of inputs and outputs cost {-gain:.0f} µs more than the launches saved"
            else:
                self.note("predicted", f"one CUDA graph for {self.program.kernel_launches} launches saves {gain:.0f} µs of host time per call")
        if reason is not None:
            self.refused = True
            self.note("cuda_graph_refused", reason)

    def _record(self, inputs: Sequence[torch.Tensor]) -> _Recording | None:
        if self.program.draws and not is_alone():
            self.note_once("cuda_graph_refused", OTHERS_MAY_DRAW)
            return None
        before = self.moving
        self._see_moves(inputs)
        if self.moving is not before:
            self._decide(inputs)
            if self.refused:
                return None
        recordings = self.table.recordings
        while len(recordings) >= RECORDINGS:
            recordings.popitem(last=False)
        self.recorded += self.moving is before
        try:
            recording = recordings[self.table.key(inputs)] = _Recording(self.program, inputs, self.moving)
        except Exception as error:               # out of memory, or a library that cannot be recorded: the step itself still runs
            self._failed(error)
            return None
        if self.recorded > RECORDINGS:
            self.note("cuda_graph_refused", f"weights or written tensors moved {RECORDINGS} times")
        return recording

    def note_once(self, kind: str, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            self.note(kind, text)

    def _failed(self, error: Exception) -> None:
        self.failed += 1
        error = error.__cause__ if isinstance(error, RegionFailed | HalfDone) and isinstance(error.__cause__, Exception) else error
        text = f"recording failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self.program.draws = True                # should it have been that
        if self.failed < ATTEMPTS and not isinstance(error, torch.OutOfMemoryError):
            self.note("recording_again", text)
            return
        self.refused = True
        self.table = _Table(self.used)
        self.note("cuda_graph_refused", text)


class _Table:
    """The recordings that hold while the inputs `fixed` stand where they stood. Replaced as a whole: other threads look into it."""

    def __init__(self, fixed: Sequence[int]):
        self.fixed = fixed
        self.recordings: OrderedDict[tuple[int, ...], _Recording] = OrderedDict()

    def key(self, inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
        return tuple([inputs[i].data_ptr() for i in self.fixed])


class _Recording:
    """One CUDA graph with its static inputs."""

    def __init__(self, program: CudaProgram, inputs: Sequence[torch.Tensor], moving: Sequence[int]):
        self.moving = moving
        device = program.device
        if device.index not in _pools:
            _pools[device.index] = _Pool(device)
        self.pool = _pools[device.index]
        with torch.inference_mode(False), torch.no_grad():
            static = list(inputs)
            for i in moving:
                static[i] = empty_like(inputs[i])
            self.has_expanded = any(0 in static[i].stride() for i in moving)
            self.static = [dense(static[i]) for i in moving]
            self.stream = torch.cuda.current_stream(device)
            with self.pool.lock:
                self.pool.follow(self.stream)
                self._copy_inputs(inputs)
                self.pool.used(self.stream)              # another thread's replay may be the first
            try:
                self.graph, outputs = self.pool.record(lambda: program(static), program.draws)
            except Exception:
                if program.draws:
                    recover(device)
                _pools.pop(device.index, None)           # torch may think that it is still being filled
                raise
        self.slots, self.written = program.launch.outputs, program.written
        self.own = {slot: out for slot, out in zip(self.slots, outputs) if slot >= len(inputs)}
        self.own_dense = [dense(own) for own in self.own.values()]
        self.outputs_expanded = any(0 in own.stride() for own in self.own.values())

    def _copy_inputs(self, inputs: Sequence[torch.Tensor]) -> None:
        if self.moving:
            now = [inputs[i] for i in self.moving]
            copy_all(self.static, [dense(t) for t in now] if self.has_expanded else now)

    def _stay_for(self, stream: torch.cuda.Stream) -> None:
        """Another stream than the one that made the static inputs reads them: their memory is not given away before it has."""
        for t in self.static:
            t.record_stream(stream)

    def replay(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """One thread at a time: between the copy of its inputs and that of its outputs the graph's memory is its own."""
        pool = self.pool
        stream = torch.cuda.current_stream(pool.device)
        with torch.no_grad(), pool.lock:
            pool.follow(stream)
            if stream.cuda_stream != self.stream.cuda_stream:
                self._stay_for(stream)
            fresh = {slot: empty_like(own) for slot, own in self.own.items()}       # what can fail comes before what writes
            self._copy_inputs(inputs)
            self.graph.replay()
            if self.written:
                torch._C._increment_version([inputs[i] for i in self.written])
            if fresh:
                copy_all([dense(t) for t in fresh.values()] if self.outputs_expanded else list(fresh.values()), self.own_dense)
            pool.used(stream)
        return tuple([fresh[slot] if slot in fresh else inputs[slot] for slot in self.slots])


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """One launch for many, a plain copy for one."""
    if len(targets) == 1:
        targets[0].copy_(sources[0])
    else:
        torch._foreach_copy_(targets, sources)


def empty_like(t: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
