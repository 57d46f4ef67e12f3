"""The plain executor: runs a concrete launch list step by step in Python. Slow, and the meaning that the native one is held against."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from thruway.core.launch import Allocate, Call, Kernel, LaunchList, Slot, SlotRef, Step, View
from thruway.native import RegionFailed
from thruway.runtime.cpu.tensors import bump_version, make_arena, make_constants, persistent_tensors, view_tensor
from thruway.runtime.lifetime import Slots, examine
from thruway.runtime.resolve import Code, dtype_of

Tensors = list[torch.Tensor | None]


class PythonProgram:
    """A launch list whose sizes are numbers. Called with inputs and derived values, it gives the tuple of outputs."""

    def __init__(self, launch: LaunchList, code: Code):
        self.launch = launch
        self.code = code
        self.slots = examine(launch)
        self.constants = make_constants(launch)

    def __call__(self, inputs: Sequence[torch.Tensor], derived: Sequence[torch.Tensor] = ()) -> tuple[torch.Tensor, ...]:
        tensors = self._frame(derived)
        tensors[:len(inputs)] = inputs
        wrote = False
        for i, step in enumerate(self.launch.steps):
            try:
                self._run(step, tensors)
            except Exception as error:
                if wrote or _may_have_written(step) or isinstance(error, RegionFailed):
                    raise
                raise RegionFailed(error) from error
            wrote |= isinstance(step, Kernel | Call) and step.writes_input
            for slot in self.slots.drops[i]:
                tensors[slot] = None
        return tuple(tensors[slot] for slot in self.launch.outputs)

    def _frame(self, derived: Sequence[torch.Tensor]) -> Tensors:
        try:
            return persistent_tensors(self.launch, self.slots, make_arena(self.launch.arena_bytes), self.constants, derived)
        except Exception as error:
            raise RegionFailed(error) from error

    def _run(self, step: Step, tensors: Tensors) -> None:
        match step:
            case Allocate(slot, spec, None):
                tensors[slot] = torch.empty_strided(spec.sizes, spec.strides, dtype=dtype_of(spec.dtype), device=spec.device)
            case View(slot, base, spec) if self.slots.is_per_call(slot):
                with torch.set_grad_enabled(torch.is_grad_enabled() and slot in self.launch.outputs):
                    tensors[slot] = view_tensor(tensors[base], spec)
            case Allocate() | View():
                pass                         # persistent: made before the first step
            case Kernel():
                _run_kernel(self.code, step, tensors, written_inputs(step, self.slots, self.launch))
            case Call():
                _run_call(self.code, step, tensors)
            case _:
                raise TypeError(f"not a step of a launch list: {step!r}")


def _may_have_written(step: Step) -> bool:
    """Whether a step that failed may have written half of an input."""
    return isinstance(step, Call) and step.writes_input


def written_inputs(step: Kernel, slots: Slots, launch: LaunchList) -> tuple[Slot, ...]:
    """The inputs whose version a kernel moves."""
    if not step.writes_input:
        return ()
    written = step.writes or tuple(slot for slot in step.pointers if slots.kind[slot] == "input" and not launch.inputs[slots.root[slot]].weight)
    return tuple(dict.fromkeys(slots.root[slot] for slot in written if slots.kind[slot] == "input"))


def _run_kernel(code: Code, step: Kernel, tensors: Tensors, bumps: Sequence[Slot]) -> None:
    pointers = (ctypes.c_void_p * len(step.pointers))(*(tensors[slot].data_ptr() for slot in step.pointers))
    sizes = (ctypes.c_longlong * len(step.sizes))(*step.sizes)
    for slot in bumps:
        bump_version(tensors[slot])
    failed = code.kernels[step.symbol](pointers, sizes)
    if failed:
        raise RegionFailed(f"check {failed} of {step.symbol} failed")


def _run_call(code: Code, step: Call, tensors: Tensors) -> None:
    args = [_argument(each, tensors) for each in step.args]
    kwargs = {name: _argument(each, tensors) for name, each in step.kwargs}
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        result = code.operators[step.op](*args, **kwargs)
    values = result if isinstance(result, tuple | list) else (result,)
    for i, slot in enumerate(step.outs):
        if step.out_specs and values[i] is not None and not _is_expected(values[i], step.out_specs[i]):
            raise RegionFailed(f"{step.op} gave another layout than the plan counts on")
        tensors[slot] = values[i]


def _is_expected(tensor: torch.Tensor, spec) -> bool:
    strides = all(mine == planned or size <= 1 for mine, planned, size in zip(tensor.stride(), spec.strides, spec.sizes))
    return tuple(tensor.shape) == spec.sizes and tensor.dtype == dtype_of(spec.dtype) and strides


def _argument(argument: object, tensors: Tensors) -> object:
    match argument:
        case SlotRef(slot):
            return tensors[slot]
        case list() | tuple():
            return [_argument(each, tensors) for each in argument]
        case _:
            return argument
