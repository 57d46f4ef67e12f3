"""Puts numbers for the size symbols of a launch list: the same list, every size an int."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from thruway.core.launch import Allocate, Call, Kernel, LaunchList, SizeRef, Step, TensorSpec, View
from thruway.core.sizes import SizeLike, evaluate

Values = Mapping[str, int]


def bind_symbols(launch: LaunchList, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
    return {binding.name: inputs[binding.input].size(binding.dim) for binding in launch.symbols}


def concrete(launch: LaunchList, values: Values) -> LaunchList:
    """`launch` with every size evaluated; SizeRefs become integers. KeyError names a symbol without a value."""
    return replace(
        launch,
        inputs=tuple(replace(each, spec=_spec(each.spec, values)) for each in launch.inputs),
        derived=tuple(_step(step, values) for step in launch.derived),
        steps=tuple(_step(step, values) for step in launch.steps),
        arena_bytes=evaluate(launch.arena_bytes, values),
    )


def derivation(launch: LaunchList) -> LaunchList:
    """The derived values of a launch list as a list of its own, with the derived slots as outputs."""
    return replace(launch, derived=(), derived_slots=(), steps=launch.derived, outputs=launch.derived_slots)


def _numbers(sizes: Sequence[SizeLike], values: Values) -> tuple[int, ...]:
    return tuple(size if type(size) is int else evaluate(size, values) for size in sizes)


def _spec(spec: TensorSpec, values: Values) -> TensorSpec:
    return replace(spec, sizes=_numbers(spec.sizes, values), strides=_numbers(spec.strides, values), offset=evaluate(spec.offset, values))


def _step(step: Step, values: Values) -> Step:
    match step:
        case Allocate(arena=None):
            return replace(step, spec=_spec(step.spec, values))
        case Allocate(arena=place):
            return replace(step, spec=_spec(step.spec, values), arena=evaluate(place, values))
        case View():
            return replace(step, spec=_spec(step.spec, values))
        case Kernel():
            return replace(step, sizes=_numbers(step.sizes, values))
        case Call():
            return replace(
                step,
                args=tuple(_argument(each, values) for each in step.args),
                kwargs=tuple((name, _argument(each, values)) for name, each in step.kwargs),
                out_specs=tuple(_spec(each, values) for each in step.out_specs),
            )
        case _:
            raise TypeError(f"not a step of a launch list: {step!r}")


def _argument(argument: object, values: Values) -> object:
    match argument:
        case SizeRef(size):
            return evaluate(size, values)
        case list() | tuple():
            return type(argument)(_argument(each, values) for each in argument)
        case _:
            return argument
