"""What each slot of a concrete launch list is, and how long it is needed. Both executors read this page.

Takes a concrete launch list; gives `Slots`. Raises CompilerBug for a list that breaks the rules of core/launch.py, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from thruway.core.errors import CompilerBug
from thruway.core.launch import Allocate, Call, Kernel, LaunchList, Slot, TensorSpec, View, defines, uses

PERSISTENT = frozenset({"constant", "derived", "arena"})     # the same from call to call, within one frame


@dataclass(frozen=True, slots=True)
class Slots:
    """Per slot: `kind` of the memory ("input", "constant", "derived", "arena", "fresh", "returned", or "" where unused), `root` at the
    end of its chain of views, `spec` where known. `objects`: slots that need a tensor, not just an address. `real_views`: views that leave the call
    or are written through. `drops[i]`: slots whose tensors go after step i."""

    kind: tuple[str, ...]
    root: tuple[Slot, ...]
    spec: tuple[TensorSpec | None, ...]
    objects: frozenset[Slot]
    real_views: frozenset[Slot]
    drops: tuple[tuple[Slot, ...], ...]

    def is_per_call(self, slot: Slot) -> bool:
        """Whether the slot's tensor is made anew in each call."""
        return self.kind[slot] in {"fresh", "returned"} or (self.kind[slot] == "input" and self.root[slot] != slot)


def examine(launch: LaunchList) -> Slots:
    kind, root, spec = _sort_slots(launch)
    objects = _needed_objects(launch)
    written = {slot for step in launch.steps if isinstance(step, Call) and step.writes_input for slot in uses(step)}
    views = {step.slot for step in launch.steps if isinstance(step, View)}
    slots = Slots(tuple(kind), tuple(root), tuple(spec), frozenset(objects), frozenset(views & (written | set(launch.outputs))), ())
    _verify(launch, slots)
    return Slots(slots.kind, slots.root, slots.spec, slots.objects, slots.real_views, _drops(launch, slots))


def _sort_slots(launch: LaunchList) -> tuple[list[str], list[Slot], list[TensorSpec | None]]:
    kind, root, spec = [""] * launch.slots, list(range(launch.slots)), [None] * launch.slots
    for slot, one_kind, one_spec in _definitions(launch):
        kind[slot], spec[slot] = one_kind, one_spec
    for step in launch.steps:
        if isinstance(step, View):
            kind[step.slot], root[step.slot], spec[step.slot] = kind[step.base], root[step.base], step.spec
    return kind, root, spec


def _definitions(launch: LaunchList) -> Iterator[tuple[Slot, str, TensorSpec | None]]:
    yield from ((each.slot, "input", each.spec) for each in launch.inputs)
    yield from ((slot, "constant", spec) for slot, spec, _ in launch.constants)
    yield from ((slot, "derived", None) for slot in launch.derived_slots)
    for step in launch.steps:
        match step:
            case Allocate(slot, spec, arena):
                yield slot, "fresh" if arena is None else "arena", spec
            case Call(outs=outs, out_specs=specs):
                yield from ((slot, "returned", specs[i] if specs else None) for i, slot in enumerate(outs))


def _needed_objects(launch: LaunchList) -> set[Slot]:
    needed = set(launch.outputs).union(*(uses(step) for step in launch.steps if isinstance(step, Call)))
    for step in reversed(launch.steps):
        if isinstance(step, View) and step.slot in needed:
            needed.add(step.base)
    return needed


def _verify(launch: LaunchList, slots: Slots) -> None:
    for i, each in enumerate(launch.inputs):
        if each.slot != i:
            raise CompilerBug("runtime", f"input {i} has slot {each.slot}")
    for slot in launch.outputs:
        if slots.kind[slot] in {"arena", ""}:
            raise CompilerBug("runtime", f"output slot {slot} is {slots.kind[slot] or 'never defined'}")
    wrote = False
    for step in launch.steps:
        undefined = [slot for slot in uses(step) if not slots.kind[slot]]
        if undefined:
            raise CompilerBug("runtime", f"{step} uses slots that nothing defines: {undefined}")
        if isinstance(step, Kernel) and step.checks and wrote:
            raise CompilerBug("runtime", f"kernel {step.symbol} checks after an input was written")
        wrote |= isinstance(step, Kernel | Call) and step.writes_input


def _drops(launch: LaunchList, slots: Slots) -> tuple[tuple[Slot, ...], ...]:
    kept = {slots.root[slot] for slot in launch.outputs}
    last: dict[Slot, int] = {}
    members: dict[Slot, set[Slot]] = {}
    for i, step in enumerate(launch.steps):
        for slot in (*uses(step), *defines(step)):
            if slots.is_per_call(slot) and slots.root[slot] not in kept:
                last[slots.root[slot]] = i
                members.setdefault(slots.root[slot], set()).add(slot)
    drops: list[tuple[Slot, ...]] = [()] * len(launch.steps)
    for root, i in last.items():
        drops[i] += tuple(sorted(slot for slot in members[root] if slot in slots.objects or slot == root))
    return tuple(drops)
