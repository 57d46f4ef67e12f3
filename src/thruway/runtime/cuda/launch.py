"""Runs a concrete launch list on one GPU, step by step on the current stream: kernels by the driver, library calls by torch.

Memory comes from torch's caching allocator, so a step list can be recorded into a CUDA graph as it is. An input whose address is no
multiple of 16 bytes is copied first, since kernels are compiled for aligned pointers; one that is written is copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from thruway.core.launch import Allocate, Call, GpuKernel, Kernel, LaunchList, SlotRef, Step, View
from thruway.native import RegionFailed
from thruway.runtime.cpu.launch import written_inputs
from thruway.runtime.cpu.tensors import place_tensor, view_tensor
from thruway.runtime.cuda.driver import Driver, Launch, make_flag
from thruway.runtime.lifetime import examine
from thruway.runtime.resolve import dtype_of

ALIGNMENT = 16
Tensors = list[torch.Tensor | None]
Run = Callable[[Tensors], None]


class CudaProgram:
    """A launch list whose sizes are numbers, for one device. Called with inputs and derived values, it gives the tuple of outputs.

    `kernel_launches` counts kernels and library calls per run. RegionFailed is raised for a call that fails or gives an unexpected
    layout before anything older than the call was written. A failed index check shows at `failed()`, later: nobody waits for the GPU.
    """

    def __init__(self, launch: LaunchList, kernels: Mapping[str, GpuKernel], operators: Mapping[str, Callable[..., object]], device: torch.device):
        self.launch, self.kernels, self.operators, self.device = launch, kernels, operators, device
        self.slots = examine(launch)
        self.driver = Driver() if kernels else None
        self.flag = make_flag() if any(k.checks for k in kernels.values()) else None
        with torch.inference_mode(False), torch.no_grad():
            self.constants = {slot: _constant(spec, data, device) for slot, spec, data in launch.constants}
        self.runs = [self._prepare(step) for step in launch.steps]
        self.kernel_launches = sum(isinstance(step, Kernel | Call) for step in launch.steps)
        self.written = sorted({slot for step in launch.steps if isinstance(step, Kernel) for slot in written_inputs(step, self.slots, launch)}
                              | {s for step in launch.steps if isinstance(step, Call) and step.writes_input for s in self._call_targets(step)})

    def __call__(self, inputs: Sequence[torch.Tensor], derived: Sequence[torch.Tensor] = ()) -> tuple[torch.Tensor, ...]:
        tensors: Tensors = [None] * self.launch.slots
        tensors[:len(inputs)] = inputs
        moved = [i for i, t in enumerate(inputs) if t.is_cuda and t.data_ptr() % ALIGNMENT]
        for i in moved:
            tensors[i] = _aligned(inputs[i])
        for slot, value in (*self.constants.items(), *zip(self.launch.derived_slots, derived)):
            tensors[slot] = value
        with torch.no_grad():
            self.arena = torch.empty(self.launch.arena_bytes, dtype=torch.uint8, device=self.device) if self.launch.arena_bytes else None
            self.stream = torch.cuda.current_stream(self.device).cuda_stream
            wrote = False
            for i, run in enumerate(self.runs):
                try:
                    run(tensors)
                except Exception as error:
                    if wrote:
                        raise
                    raise RegionFailed(error) from error
                step = self.launch.steps[i]
                wrote |= isinstance(step, Kernel | Call) and step.writes_input
                for slot in self.slots.drops[i]:
                    tensors[slot] = None
            for i in moved:
                if i in self.written:
                    inputs[i].copy_(tensors[i])
        self.arena = None
        return tuple(inputs[slot] if slot < len(inputs) else tensors[slot] for slot in self.launch.outputs)

    def failed(self) -> bool:
        """Whether an index check failed in a run that the GPU has finished; asking clears it."""
        if self.flag is None or not int(self.flag):
            return False
        self.flag.zero_()
        return True

    def _call_targets(self, step: Call) -> list[int]:
        return [self.slots.root[a.slot] for a in step.args[:1] if isinstance(a, SlotRef) and self.slots.kind[a.slot] == "input"]

    def _prepare(self, step: Step) -> Run:
        match step:
            case Allocate(slot, spec, None):
                dtype = dtype_of(spec.dtype)

                def fresh(tensors: Tensors) -> None:
                    tensors[slot] = torch.empty_strided(spec.sizes, spec.strides, dtype=dtype, device=spec.device)
                return fresh
            case Allocate(slot, spec, int(place)):
                def placed(tensors: Tensors) -> None:
                    tensors[slot] = place_tensor(self.arena, place, spec)
                return placed
            case View(slot, base, spec):
                def view(tensors: Tensors) -> None:
                    tensors[slot] = view_tensor(tensors[base], spec)
                return view
            case Kernel():
                return self._prepare_kernel(step)
            case Call():
                return self._prepare_call(step)
            case _:
                raise TypeError(f"not a step of a launch list: {step!r}")

    def _prepare_kernel(self, step: Kernel) -> Run:
        kernel = self.kernels[step.symbol]
        launch = Launch(self.driver, kernel, self.driver.load(kernel), step.sizes, self.flag.data_ptr() if self.flag is not None else 0)
        launch.bind(len(step.pointers))
        pointers, bumps = step.pointers, written_inputs(step, self.slots, self.launch)

        def run(tensors: Tensors) -> None:
            if bumps:
                torch._C._increment_version([tensors[slot] for slot in bumps])
            launch.run([tensors[slot].data_ptr() for slot in pointers], self.stream)
        return run

    def _prepare_call(self, step: Call) -> Run:
        operator, kwargs = self.operators[step.op], dict(step.kwargs)

        def run(tensors: Tensors) -> None:
            result = operator(*[_argument(a, tensors) for a in step.args], **{k: _argument(v, tensors) for k, v in kwargs.items()})
            values = result if isinstance(result, tuple | list) else (result,)
            for i, slot in enumerate(step.outs):
                if step.out_specs and values[i] is not None and values[i].stride() != step.out_specs[i].strides and values[i].numel() > 1:
                    values = (*values[:i], _restrided(values[i], step.out_specs[i].strides), *values[i + 1:])
                tensors[slot] = values[i]
        return run


def _argument(argument: object, tensors: Tensors) -> object:
    match argument:
        case SlotRef(slot):
            return tensors[slot]
        case list() | tuple():
            return [_argument(each, tensors) for each in argument]
        case _:
            return argument


def _constant(spec, data: bytes, device: torch.device) -> torch.Tensor:
    made = torch.frombuffer(bytearray(data), dtype=dtype_of(spec.dtype)) if data else torch.empty(0, dtype=dtype_of(spec.dtype))
    return torch.as_strided(made, spec.sizes, spec.strides, 0).to(spec.device if spec.device != "cpu" else device)


def _aligned(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same layout at an aligned address."""
    with torch.no_grad():
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)


def _restrided(t: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(t.shape, strides, dtype=t.dtype, device=t.device).copy_(t)
