"""From a launch list and its GPU kernels to something to call.

`GpuRunnable` picks the program of today's sizes, keeps derived values current, and replays CUDA graphs where that is safe and should pay.
A call that runs out of memory before it has written anything gives up recordings and cached memory and is tried once more, then left to
the caller as RegionFailed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch

from thruway.core.launch import Call, Kernel, LaunchList
from thruway.native import RegionFailed
from thruway.runtime.cuda import attention
from thruway.runtime.cuda.attention import find_attention
from thruway.runtime.cuda.cudagraph import ONE_LAUNCH, Replay
from thruway.runtime.cuda.derived import KeptValues
from thruway.runtime.cuda.driver import Flag, driver
from thruway.runtime.cuda.flatten import find_entrances, is_flat, native_launcher, without_arena
from thruway.runtime.cuda.launch import CudaProgram, HalfDone
from thruway.runtime.cuda.sized import SizedKernels
from thruway.runtime.evaluate import concrete
from thruway.runtime.load import native_core
from thruway.runtime.resolve import find_operator

SHAPE_LIMIT = 16
FEW_LAUNCHES = 3                   # from C they cost a microsecond or two each; a replay costs copies of what moves and of what comes out
MISSES = 4                         # calls that the native program may hand on before it goes
Note = Callable[[str, str], None]


def _operator(name: str) -> Callable[..., object]:
    return find_attention() if name == attention.NAME else find_operator(name)


class GpuRunnable:
    """Called with the graph's inputs, gives the tuple of its outputs. `kernels` gives those for the values of the launch list's symbols. `kept`
    makes further inputs from the weights, None where there are none."""

    def __init__(self, launch: LaunchList, kernels: SizedKernels, device: torch.device, graphs: bool, kept: KeptValues | None, note: Note):
        self.launch, self.kernels, self.device, self.graphs, self.kept, self.note = launch, kernels, device, graphs, kept, note
        self.operators = {step.op: _operator(step.op) for step in launch.steps if isinstance(step, Call)}
        self.symbols = tuple((binding.input, binding.dim) for binding in launch.symbols)
        self.names = tuple(binding.name for binding in launch.symbols)
        self.flag = Flag() if any(kernel.checks for kernel in kernels.usual.values()) else None
        if kept is not None:
            kept.replaced = self.release
        self.programs: OrderedDict[tuple[int, ...], Callable[..., tuple[torch.Tensor, ...]]] = OrderedDict()
        self.quick = self._native() if kept is None else None
        self.misses = 0

    def _native(self) -> Callable[..., tuple[torch.Tensor, ...]] | None:
        """The same in C, where launches are few, or no CUDA graph is wanted."""
        launches = sum(isinstance(step, Kernel) for step in self.launch.steps)
        launch = without_arena(self.launch) if launches <= FEW_LAUNCHES else self.launch
        if (launches > FEW_LAUNCHES and self.graphs) or not is_flat(launch, self.kernels.usual):
            return None
        core, entrances = native_core(), find_entrances(driver())
        if core is None or entrances is None:
            return None
        if self.graphs:
            self.note("cuda_graph_refused", ONE_LAUNCH if launches == 1 else f"{launches} launches from C are as quick by themselves")
        return native_launcher(core, launch, self.kernels, self.device, driver(), entrances)

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.quick is not None:
            try:
                return self.quick(*inputs)
            except RegionFailed:                 # an odd address, or no memory: what follows knows what to do
                self.misses += 1
                self.quick = self.quick if self.misses < MISSES else None
        if self.flag is not None and self.flag.take():
            raise IndexError("an index was out of range in an earlier call of this compiled function on the GPU")
        try:
            return self._run(inputs)
        except HalfDone as failure:
            raise failure.error from None
        except RegionFailed as failure:
            if not isinstance(failure.__cause__, torch.OutOfMemoryError):
                raise
        except torch.OutOfMemoryError:
            pass
        self.note("out_of_memory", "recordings and cached memory were given up")
        self.release()
        torch.cuda.empty_cache()
        try:
            return self._run(inputs)
        except HalfDone as failure:
            raise failure.error from None
        except torch.OutOfMemoryError as error:
            raise RegionFailed(error) from error

    def release(self) -> None:
        """Lets go of programs and their recordings; the next call makes them again."""
        self.programs.clear()
        if self.quick is not None:
            self.quick.release()

    def _run(self, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        if self.kept is not None:
            inputs = (*inputs, *self.kept(inputs))
        values = tuple([inputs[i].size(dim) for i, dim in self.symbols])
        program = self.programs.get(values)
        if program is None:
            program = self.programs[values] = self._prepare(values)
            if len(self.programs) > SHAPE_LIMIT:
                self.programs.popitem(last=False)
        return program(inputs)

    def _prepare(self, values: tuple[int, ...]) -> Callable[..., tuple[torch.Tensor, ...]]:
        by_name = dict(zip(self.names, values))
        sized = concrete(self.launch, by_name)
        with torch.cuda.device(self.device):
            program = CudaProgram(sized, self.kernels(by_name), self.operators, self.device, driver(), self.flag)
        given = len(self.launch.inputs) - (len(self.kept.values) if self.kept is not None else 0)
        return Replay(program, given, self.note) if self.graphs else program
