"""Takes a launch list and gives it with outputs whose strides are eager's in dimensions of size 1 too, where they mean nothing to kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thruway.core.launch import Allocate, Call, LaunchList, Slot, SlotRef, Step, TensorSpec, View


def declare_strides(launch: LaunchList, wanted: Mapping[int, TensorSpec]) -> LaunchList:
    """`wanted`: output → its sizes and strides. Memory that only kernels use is declared so; what operators read gets a view."""
    for output, spec in wanted.items():
        slot = launch.outputs[output]
        at = next((k for k, step in enumerate(launch.steps) if isinstance(step, Allocate | View) and step.slot == slot), None)
        if at is not None and not any(_mentions(step, slot) for step in launch.steps):
            made = launch.steps[at]
            steps = (*launch.steps[:at], replace(made, spec=replace(made.spec, strides=spec.strides)), *launch.steps[at + 1:])
            launch = replace(launch, steps=steps)
        else:
            outputs = (*launch.outputs[:output], launch.slots, *launch.outputs[output + 1:])
            launch = replace(launch, steps=(*launch.steps, View(launch.slots, slot, spec)), outputs=outputs, slots=launch.slots + 1)
    return launch


def _mentions(step: Step, slot: Slot) -> bool:
    """Whether an operator is called on the tensor."""
    return isinstance(step, Call) and (slot in step.outs or _holds((step.args, step.kwargs), slot))


def _holds(argument: object, slot: Slot) -> bool:
    match argument:
        case SlotRef(slot=found):
            return found == slot
        case tuple() | list():
            return any(_holds(one, slot) for one in argument)
        case _:
            return False
