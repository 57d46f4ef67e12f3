"""Runs a concrete launch list on one GPU, step by step on the current stream: kernels by the driver, library calls by torch.

Memory comes from torch's caching allocator, so a step list can be recorded into a CUDA graph as it is. An input whose address is no
multiple of 16 bytes is copied first, since kernels are compiled for aligned pointers; one that is written is copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from thruway.core.dtypes import ITEMSIZE
from thruway.core.launch import Allocate, Call, GpuKernel, Kernel, LaunchList, SlotRef, Step, TensorSpec, View
from thruway.native import RegionFailed
from thruway.runtime.cpu.launch import written_inputs
from thruway.runtime.cpu.tensors import view_tensor
from thruway.runtime.cuda.driver import Driver, Flag, Launch
from thruway.runtime.lifetime import examine
from thruway.runtime.resolve import dtype_of

ALIGNMENT = 16
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class HalfDone(Exception):
    """A step failed behind one that wrote something older than the call: `error` is for the user, and nobody runs the call again."""

    def __init__(self, error: Exception):
        super().__init__(str(error))
        self.error = error


class Frame:
    """What one run fills: a tensor (where a library call or the caller needs one) and an address per slot."""

    __slots__ = ("tensors", "addresses", "arena", "base", "stream", "grad")

    def __init__(self, slots: int):
        self.tensors: list[torch.Tensor | None] = [None] * slots
        self.addresses = [0] * slots


Run = Callable[[Frame], None]


class CudaProgram:
    """A launch list whose sizes are numbers, for one device. Called with inputs, it gives the tuple of outputs.

    `kernel_launches` counts kernels and library calls per run. RegionFailed is raised for a call that fails before anything older than
    the call was written, HalfDone behind that. A failed index check shows in `flag`, later: nobody waits for the GPU.
    """

    def __init__(
        self, launch: LaunchList, kernels: Mapping[str, GpuKernel], operators: Mapping[str, Callable[..., object]], device: torch.device,
        driver: Driver, flag: Flag | None,
    ):
        self.launch, self.kernels, self.operators, self.device = launch, kernels, operators, device
        self.driver, self.flag = driver, flag
        self.slots = examine(launch)
        self.functions: dict[str, object] = {}
        self.runs = [self._prepare(step) for step in launch.steps]
        self.drops = self.slots.drops
        self.kernel_launches = sum(isinstance(step, Kernel | Call) for step in launch.steps)
        self.written = sorted({slot for step in launch.steps for slot in self._written_by(step)})
        self.writes = [isinstance(step, Kernel | Call) and step.writes_input for step in launch.steps]
        self.draws = any(isinstance(step, Call) and draws(step) for step in launch.steps)
        self.read_inputs = [i for i in range(len(launch.inputs)) if launch.inputs[i].spec.device.startswith("cuda")]

    def __call__(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        frame = Frame(self.launch.slots)
        frame.tensors[:len(inputs)] = inputs
        moved = self._place_inputs(frame, inputs)
        frame.grad = torch.is_grad_enabled()
        autocast = torch.is_autocast_enabled("cuda")
        previous = torch.cuda._exchange_device(self.device.index)
        torch._C._set_grad_enabled(False)
        if autocast:
            torch.set_autocast_enabled("cuda", False)
        state = torch.cuda.get_rng_state(self.device) if self.draws and not torch.cuda.is_current_stream_capturing() else None
        try:
            self._run(frame, inputs, moved)
        except RegionFailed:
            if state is not None:
                torch.cuda.set_rng_state(state, self.device)
            raise
        finally:
            torch._C._set_grad_enabled(frame.grad)
            if autocast:
                torch.set_autocast_enabled("cuda", True)
            torch.cuda._maybe_exchange_device(previous)
        return tuple([inputs[slot] if slot < len(inputs) else frame.tensors[slot] for slot in self.launch.outputs])

    def _place_inputs(self, frame: Frame, inputs: Sequence[torch.Tensor]) -> list[int]:
        """Addresses of the inputs; those at odd ones are copied and listed."""
        moved = []
        for i in self.read_inputs:
            address = inputs[i].data_ptr()
            if address % ALIGNMENT:
                moved.append(i)
                frame.tensors[i] = aligned(inputs[i])
                address = frame.tensors[i].data_ptr()
            frame.addresses[i] = address
        return moved

    def _run(self, frame: Frame, inputs: Sequence[torch.Tensor], moved: list[int]) -> None:
        size = self.launch.arena_bytes
        frame.arena = torch.empty(size, dtype=torch.uint8, device=self.device) if size else None
        frame.base = frame.arena.data_ptr() if size else 0
        frame.stream = current_stream(self.device.index)
        wrote = False
        tensors = frame.tensors
        for i, run in enumerate(self.runs):
            try:
                run(frame)
            except Exception as error:
                raise (HalfDone if wrote else RegionFailed)(error) from error
            wrote = wrote or self.writes[i]
            for slot in self.drops[i]:
                tensors[slot] = None
        for i in moved:
            if i in self.written:
                inputs[i].copy_(tensors[i])

    def _written_by(self, step: Step) -> Sequence[int]:
        match step:
            case Kernel():
                return written_inputs(step, self.slots, self.launch)
            case Call(writes_input=True):
                return [self.slots.root[a.slot] for a in step.args[:1] if isinstance(a, SlotRef) and self.slots.kind[a.slot] == "input"]
            case _:
                return ()

    def _prepare(self, step: Step) -> Run:
        match step:
            case Allocate(slot, spec, None):
                return _fresh(slot, spec)
            case Allocate(slot, spec, int(place)):
                return _placed(slot, spec, place, slot in self.slots.objects)
            case View(slot, base, spec):
                return _view(slot, base, spec, slot in self.launch.outputs)
            case Kernel():
                return self._prepare_kernel(step)
            case Call():
                return self._prepare_call(step)
            case _:
                raise TypeError(f"not a step of a launch list: {step!r}")

    def _prepare_kernel(self, step: Kernel) -> Run:
        kernel = self.kernels[step.symbol]
        if step.symbol not in self.functions:
            self.functions[step.symbol] = self.driver.load(kernel)
        flag = self.flag.address if self.flag is not None else 0
        launch = Launch(self.driver, kernel, self.functions[step.symbol], step.sizes, flag, len(step.pointers))
        pointers, bumps = step.pointers, written_inputs(step, self.slots, self.launch)

        def run(frame: Frame) -> None:
            if bumps:
                torch._C._increment_version([frame.tensors[slot] for slot in bumps])
            addresses = frame.addresses
            launch.run([addresses[slot] for slot in pointers], frame.stream)
        return run

    def _prepare_call(self, step: Call) -> Run:
        operator, kwargs, outs = self.operators[step.op], dict(step.kwargs), step.outs
        specs = step.out_specs

        def run(frame: Frame) -> None:
            tensors = frame.tensors
            result = operator(*[_argument(a, tensors) for a in step.args], **{k: _argument(v, tensors) for k, v in kwargs.items()})
            values = result if isinstance(result, tuple | list) else (result,)
            for i, slot in enumerate(outs):
                value = values[i]
                if specs and value is not None and not _has_layout(value, specs[i]):
                    value = _restrided(value, specs[i])
                tensors[slot] = value
                frame.addresses[slot] = value.data_ptr() if value is not None else 0
        return run


def _fresh(slot: int, spec: TensorSpec) -> Run:
    dtype, sizes, strides, device = dtype_of(spec.dtype), spec.sizes, spec.strides, torch.device(spec.device)

    def run(frame: Frame) -> None:
        made = frame.tensors[slot] = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
        frame.addresses[slot] = made.data_ptr()
    return run


def _placed(slot: int, spec: TensorSpec, place: int, needs_tensor: bool) -> Run:
    dtype, sizes, strides, start = dtype_of(spec.dtype), spec.sizes, spec.strides, place // ITEMSIZE[spec.dtype]

    def run(frame: Frame) -> None:
        frame.addresses[slot] = frame.base + place
        if needs_tensor:
            frame.tensors[slot] = torch.empty(0, dtype=dtype, device=frame.arena.device).set_(frame.arena.untyped_storage(), start, sizes, strides)
    return run


def _view(slot: int, base: int, spec: TensorSpec, leaves: bool) -> Run:
    """A view that leaves the call is made in the caller's grad mode, as eager's is."""
    def run(frame: Frame) -> None:
        if leaves and frame.grad:
            with torch.enable_grad():
                made = view_tensor(frame.tensors[base], spec)
        else:
            made = view_tensor(frame.tensors[base], spec)
        frame.tensors[slot] = made
        frame.addresses[slot] = made.data_ptr()
    return run


def _argument(argument: object, tensors: list[torch.Tensor | None]) -> object:
    match argument:
        case SlotRef(slot):
            return tensors[slot]
        case list() | tuple():
            return [_argument(each, tensors) for each in argument]
        case _:
            return argument


def _has_layout(t: torch.Tensor, spec: TensorSpec) -> bool:
    return t.stride() == spec.strides or all(a == b or n == 1 for a, b, n in zip(t.stride(), spec.strides, spec.sizes, strict=True))


def _restrided(t: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    return torch.empty_strided(spec.sizes, spec.strides, dtype=t.dtype, device=t.device).copy_(t)


def aligned(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same layout at an aligned address."""
    with torch.no_grad():
        made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        dense(made).copy_(dense(t))
        return made


def dense(t: torch.Tensor) -> torch.Tensor:
    """`t` with expanded dimensions cut to one element, so that every element of the memory is named once."""
    for dim, (size, stride) in enumerate(zip(t.shape, t.stride())):
        if stride == 0 and size > 1:
            t = t.narrow(dim, 0, 1)
    return t


def draws(step: Call) -> bool:
    """Whether a call may draw random numbers. Attention draws for its dropout alone."""
    if "scaled_dot_product" in step.op and (step.args[4] if len(step.args) > 4 else dict(step.kwargs).get("dropout_p", 0.0)) == 0.0:
        return False
    return "nondeterministic_seeded" in tags(step.op)


def tags(op: str) -> frozenset[str]:
    """What torch says about an operator."""
    namespace, _, rest = op.partition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    return frozenset(tag.name for tag in found.tags)
