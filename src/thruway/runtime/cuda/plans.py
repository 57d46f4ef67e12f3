"""How long the steps of a launch list take on this GPU, so that plans which differ in what is a kernel and what a library call compare.

Kernels of ours count with the best of the configurations given, matrix products of libraries as they are called; other calls, which plans of
one graph share, count nothing. What was measured once is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from thruway.artifact.gpu_kernels import GpuKernels
from thruway.core.launch import Allocate, Call, Kernel, LaunchList, Slot, SlotRef, TensorSpec, View
from thruway.runtime.cuda.driver import Driver
from thruway.runtime.cuda.tune import Candidates, compiled, fits, measure, replayed
from thruway.runtime.resolve import dtype_of, find_operator

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "_addmm_activation"})


class PlanTimes:
    def __init__(self, kernels: GpuKernels, driver: Driver, device: torch.device):
        self.kernels, self.driver, self.device = kernels, driver, device
        self.known: dict[object, float] = {}

    def total(self, launch: LaunchList, candidates: Mapping[str, Candidates]) -> float:
        """Microseconds; infinite where something cannot be measured."""
        used = {step.symbol: candidates[step.symbol] for step in launch.steps if isinstance(step, Kernel)}
        unknown = {_name(each): each for each in used.values() if _name(each) not in self.known}
        for each, found in zip(unknown.values(), compiled([each.jobs for each in unknown.values()], self.kernels)):
            self.known[_name(each)] = min((self._kernel(kernel, each) for kernel in found.values()), default=math.inf)
        specs = slot_specs(launch)
        return sum(self.known[_name(used[step.symbol])] if isinstance(step, Kernel) else self._call(step, specs) if isinstance(step, Call) else 0.0
                   for step in launch.steps)

    def _kernel(self, kernel, candidates: Candidates) -> float:
        if not fits(candidates):
            return math.inf
        try:
            return measure(kernel, candidates.pointer_bytes, self.driver, self.device)
        except RuntimeError:
            return math.inf

    def _call(self, step: Call, specs: Mapping[Slot, TensorSpec]) -> float:
        if step.op.partition("::")[2].partition(".")[0] not in PRODUCTS:
            return 0.0
        shapes = tuple(specs.get(slot) for slot in _slots(step))
        key = step.op, _without_slots(step.args), tuple((s.sizes, s.strides, s.dtype) if s else None for s in shapes)
        if key not in self.known:
            self.known[key] = math.inf if None in shapes else self._time_call(step, specs)
        return self.known[key]

    def _time_call(self, step: Call, specs: Mapping[Slot, TensorSpec]) -> float:
        operator = find_operator(step.op)
        try:
            tensors = {slot: self._tensor(specs[slot]) for slot in _slots(step)}
            args = [tensors[a.slot] if isinstance(a, SlotRef) else a for a in step.args]
            kwargs = {name: tensors[a.slot] if isinstance(a, SlotRef) else a for name, a in step.kwargs}
            return replayed(lambda: operator(*args, **kwargs), self.device)
        except RuntimeError:
            return math.inf

    def _tensor(self, spec: TensorSpec) -> torch.Tensor:
        return torch.empty_strided(spec.sizes, spec.strides, dtype=dtype_of(spec.dtype), device=self.device).zero_()


def slot_specs(launch: LaunchList) -> dict[Slot, TensorSpec]:
    """The layout of what each slot holds."""
    specs = {each.slot: each.spec for each in launch.inputs} | {slot: spec for slot, spec, _ in launch.constants}
    for step in launch.steps:
        match step:
            case Allocate(slot, spec) | View(slot, _, spec):
                specs[slot] = spec
            case Call(outs=outs, out_specs=made):
                specs |= dict(zip(outs, made))
            case _:
                pass
    return specs


def _slots(step: Call) -> tuple[Slot, ...]:
    return tuple(a.slot for a in (*step.args, *(value for _, value in step.kwargs)) if isinstance(a, SlotRef))


def _without_slots(args: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(None if isinstance(a, SlotRef) else a for a in args)


def _name(candidates: Candidates) -> object:
    first = candidates.jobs[0]
    return first.text.partition(f"def {first.symbol}")[2], first.dtypes, candidates.pointer_bytes, len(candidates.jobs)
