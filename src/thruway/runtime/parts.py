"""Runs the parts of a graph over several devices, one after the other, each on its device's current stream.

A part that gives up wrote nothing older than itself, so torch's operators run it instead. An error of theirs is eager's own: the caller
runs the function itself, unless a part has written one of its arguments by then, the failing one included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from thruway.native import RegionFailed
from thruway.runtime.plain import random_state, set_random_state

Run = Callable[..., Sequence[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Step:
    """`run` makes the values named `outputs` of those named `inputs`. `writes`: one of those that it is given."""

    run: Run
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    writes: bool


class PartsRunnable:
    """Called with the values named `inputs`, gives `outputs`, names or constants. `draws`: some step draws random numbers."""

    def __init__(self, steps: Sequence[Step], inputs: Sequence[str], outputs: Sequence[object], draws: bool):
        self.steps, self.inputs, self.outputs, self.draws = tuple(zip(steps, _last_uses(steps, outputs))), tuple(inputs), outputs, draws

    def __call__(self, *inputs: torch.Tensor) -> tuple[object, ...]:
        values: dict[object, object] = dict(zip(self.inputs, inputs))
        state = random_state() if self.draws else None
        wrote = False
        for step, dead in self.steps:
            given = [values[name] for name in step.inputs]
            before = _versions(given) if step.writes else None
            try:
                made = step.run(*given)
            except Exception as error:
                if wrote or step.writes and (before is None or before != _versions(given)):
                    raise
                if state is not None:
                    set_random_state(state)
                raise RegionFailed(error) from error
            wrote |= step.writes
            values.update(zip(step.outputs, made))
            for name in dead:
                del values[name]
        return tuple([values[one] if type(one) is str else one for one in self.outputs])


def or_by_torch(compiled: Run, by_torch: Run) -> Run:
    """`compiled`, or `by_torch` for the calls that it gives up."""
    def part(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        try:
            return compiled(*inputs)
        except RegionFailed:
            return by_torch(*inputs)

    return part


def _versions(given: Sequence[torch.Tensor]) -> list[int] | None:
    """How often each was written; None where some do not count."""
    return None if any(each.is_inference() for each in given) else [each._version for each in given]


def _last_uses(steps: Sequence[Step], outputs: Sequence[object]) -> list[list[str]]:
    """For each step the names that nothing after it reads."""
    seen = set(outputs)
    found: list[list[str]] = []
    for step in reversed(steps):
        found.append([name for name in dict.fromkeys((*step.inputs, *step.outputs)) if name not in seen])
        seen.update(found[-1])
    return found[::-1]
