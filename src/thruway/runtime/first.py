"""The first call of a graph that keeps much: derived values are made where they are needed, and their memory is used again.

Folding and packing every weight takes fresh memory for all of it, which costs twice what the work itself does, and a graph that runs once
never earns it back. So the first call runs one list of steps in which the derived ones stand between the others; the second call
derives and keeps, as core/launch.py says. Both run the same kernels on the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from thruway.core.dtypes import ITEMSIZE
from thruway.core.launch import Allocate, Call, Kernel, LaunchList, Slot, Step, View, defines, uses
from thruway.core.sizes import product
from thruway.runtime.derived import watched_inputs

MUCH = 16 << 20                              # bytes of weights behind derived values
FREED = 31 << 20                             # glibc learns from blocks of up to 32 MB


def keep_freed_memory() -> None:
    """Makes glibc keep freed blocks for the next request, as it does by itself once a block of this size was freed: memory that went back to the
    system has to be cleared and mapped again. The block is never touched."""
    torch.empty(FREED, dtype=torch.uint8)


def derives_much(launch: LaunchList) -> bool:
    """Whether the first call should run `interleaved(launch)`: not for a few weights, and not where a derived step could fail after a write or
    shares its memory with later ones."""
    writes = any(step.writes_input for step in launch.steps if isinstance(step, Kernel | Call))
    in_arena = any(isinstance(step, Allocate) and step.arena is not None for step in launch.derived)
    total = sum(_bytes(launch, slot) for slot in watched_inputs(launch))
    return total >= MUCH and not writes and not in_arena and any(isinstance(step, Call) for step in launch.derived)


def interleaved(launch: LaunchList) -> LaunchList:
    """The same outputs from the same inputs with nothing kept: each derived step stands before the first step that needs it."""
    roots, steps, done = _roots(launch), list[Step](), set[int]()
    places = [_places(launch, roots, (*uses(step), *defines(step))) for step in launch.derived]
    written = [_places(launch, roots, defines(step)) if _is_pure(step) else places[i] for i, step in enumerate(launch.derived)]
    touching, writing = _by_place(places), _by_place(written)

    def add(i: int) -> None:
        if i in done:
            return
        done.add(i)
        for place in places[i]:
            for earlier in (writing if _is_pure(launch.derived[i]) else touching).get(place, ()):
                if earlier < i:
                    add(earlier)
        steps.append(launch.derived[i])

    for step in launch.steps:
        for place in _places(launch, roots, uses(step)):
            for i in writing.get(place, ()):
                add(i)
        steps.append(step)
    return replace(launch, derived=(), derived_slots=(), steps=tuple(steps))


def _is_pure(step: Step) -> bool:
    """Whether a step surely writes nothing but what it defines."""
    return not isinstance(step, Kernel) and not (isinstance(step, Call) and not step.outs)


def _places(launch: LaunchList, roots: dict[Slot, Slot], slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """The memory behind the slots, inputs aside: no derived step writes one."""
    return tuple(dict.fromkeys(place for slot in slots if (place := roots.get(slot, slot)) >= len(launch.inputs)))


def _by_place(places: Sequence[tuple[Slot, ...]]) -> dict[Slot, list[int]]:
    found: dict[Slot, list[int]] = {}
    for i, each in enumerate(places):
        for place in each:
            found.setdefault(place, []).append(i)
    return found


def _roots(launch: LaunchList) -> dict[Slot, Slot]:
    """What each view in the derived steps is a view of; a view of an input stands for itself."""
    roots: dict[Slot, Slot] = {}
    for step in launch.derived:
        if isinstance(step, View):
            base = roots.get(step.base, step.base)
            roots[step.slot] = step.slot if base < len(launch.inputs) else base
    return roots


def _bytes(launch: LaunchList, slot: Slot) -> int:
    spec = launch.inputs[slot].spec
    count = product(spec.sizes)
    return count * ITEMSIZE[spec.dtype] if type(count) is int else 0
