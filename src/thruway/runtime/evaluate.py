"""Puts numbers for the size symbols of a launch list: the same list, every size an int."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from thruway.core.launch import Allocate, Call, Input, Kernel, LaunchList, SizeRef, Step, TensorSpec, View
from thruway.core.sizes import SizeLike, evaluate

Values = Mapping[str, int]


def bind_symbols(launch: LaunchList, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
    return {binding.name: inputs[binding.input].size(binding.dim) for binding in launch.symbols}


class _Numbers(dict[SizeLike, int]):
    """What each size is for these values. A launch list holds few sizes and many times each, and a call with new sizes waits for this."""

    def __init__(self, values: Values):
        super().__init__()
        self.values_by_name = values

    def __missing__(self, size: SizeLike) -> int:
        number = self[size] = evaluate(size, self.values_by_name)
        return number


def concrete(launch: LaunchList, values: Values) -> LaunchList:
    """`launch` with every size evaluated; SizeRefs become integers. KeyError names a symbol without a value."""
    numbers = _Numbers(values)
    return replace(
        launch,
        inputs=tuple(_input(each, numbers) for each in launch.inputs),
        derived=tuple(_step(step, numbers) for step in launch.derived),
        steps=tuple(_step(step, numbers) for step in launch.steps),
        arena_bytes=numbers[launch.arena_bytes],
    )


def derivation(launch: LaunchList) -> LaunchList:
    """The derived values of a launch list as a list of its own, with the derived slots as outputs."""
    return replace(launch, derived=(), derived_slots=(), steps=launch.derived, outputs=launch.derived_slots)


def _input(each: Input, numbers: _Numbers) -> Input:
    spec = _spec(each.spec, numbers)
    return each if spec is each.spec else Input(each.slot, spec, each.weight)


def _spec(spec: TensorSpec, numbers: _Numbers) -> TensorSpec:
    """`spec` itself where it holds numbers already."""
    sizes, strides, offset = _each(spec.sizes, numbers), _each(spec.strides, numbers), numbers[spec.offset]
    if sizes == spec.sizes and strides == spec.strides and offset == spec.offset:
        return spec
    return TensorSpec(spec.dtype, sizes, strides, spec.device, offset)


def _each(sizes: Sequence[SizeLike], numbers: _Numbers) -> tuple[int, ...]:
    return tuple([numbers[size] for size in sizes])


def _step(step: Step, numbers: _Numbers) -> Step:
    match step:
        case Allocate(slot, spec, place):
            return Allocate(slot, _spec(spec, numbers), None if place is None else numbers[place])
        case View(slot, base, spec):
            return View(slot, base, _spec(spec, numbers))
        case Kernel(sizes=()):
            return step
        case Kernel():
            return replace(step, sizes=_each(step.sizes, numbers))
        case Call():
            return replace(
                step,
                args=tuple(_argument(each, numbers) for each in step.args),
                kwargs=tuple((name, _argument(each, numbers)) for name, each in step.kwargs),
                out_specs=tuple(_spec(each, numbers) for each in step.out_specs),
            )
        case _:
            raise TypeError(f"not a step of a launch list: {step!r}")


def _argument(argument: object, numbers: _Numbers) -> object:
    match argument:
        case SizeRef(size):
            return numbers[size]
        case list() | tuple():
            return type(argument)(_argument(each, numbers) for each in argument)
        case _:
            return argument
