"""What differs between the calls that an entry is for and one that missed it: the sizes and numbers that the next capture keeps symbolic."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import FunctionType

import torch

from thruway.core.marks import STATIC
from thruway.frame.check import compile_check
from thruway.frame.entries import Record
from thruway.frame.guard import Guard, GuardSet, Holds
from thruway.frame.source import Length, Made, Source, is_module_tensor, root_of
from thruway.frame.state import read_state

Change = tuple[Source, int | None]       # a tensor's dimension, or None: the number, which may be a length, at the source
NUMBERS = (int, float)
CONTAINERS = (list, deque, dict)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What a capture keeps symbolic: what has changed, or every size of a tensor but a module's own. False where that is nothing."""

    changed: frozenset[Change] = frozenset()
    all_sizes: bool = False

    def __contains__(self, change: Change) -> bool:
        source, dim = change
        return change in self.changed or (self.all_sizes and dim is not None and not is_module_tensor(source))

    def __bool__(self) -> bool:
        return self.all_sizes or bool(self.changed)


def changes(record: Record, function: FunctionType, arguments: tuple[object, ...]) -> set[Change]:
    """Everything that a guard of `record` fixes to a number and that is another one in this call."""
    containers = {guard.source: guard.expected for guard in record.guards.guards if guard.kind == "type" and any(guard.expected is one for one in CONTAINERS)}
    guards = [guard for guard in record.guards.guards if _fixes_number(guard) and (guard.kind != "length" or guard.source in containers)]
    found: set[Change] = set()
    values = _load(guards, function, arguments)
    with torch._C.DisableTorchFunctionSubclass():                # the user's `__torch_function__` is not asked about these questions
        for guard, value in zip(guards, values):
            if guard.kind != "length" or type(value) is containers[guard.source]:
                found |= _differences(guard, value)
    return found


def _fixes_number(guard: Guard) -> bool:
    if isinstance(root_of(guard.source), Made):
        return False
    return guard.kind in ("tensor", "length") or isinstance(guard.expected, Holds) or (guard.kind == "equal" and type(guard.expected) in NUMBERS)


def _load(guards: list[Guard], function: FunctionType, arguments: tuple[object, ...]) -> tuple[object, ...]:
    """The values at the guards' sources; nothing where one of them is gone."""
    loads = compile_check(GuardSet(read_state(), ()), [guard.source for guard in guards]).program
    return loads.check(function, arguments) or ()


def _differences(guard: Guard, value: object) -> set[Change]:
    match guard.kind:
        case "tensor" if isinstance(value, torch.Tensor) and value.dim() == len(guard.expected.sizes):
            sizes = zip(guard.expected.sizes, value.shape)
            static = getattr(value, STATIC, ())
            return {(guard.source, dim) for dim, (old, new) in enumerate(sizes) if type(old) is int and old != new and dim not in static}
        case "equal" if type(value) is type(guard.expected) and value != guard.expected:
            return {(guard.source, None)}
        case "answer" if isinstance(value, torch.Tensor) and value.numel() == 1 and not guard.expected(value):
            return {(guard.source, None)}
        case "length" if len(value) != guard.expected:
            return {(Length(guard.source, type(value).__name__), None)}
        case _:
            return set()
