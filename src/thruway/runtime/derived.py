"""Derived values: what is folded or packed from weights, made at the first call and again when a weight changed.

`Derivation` is the function that the Launcher calls for it. Whether a weight changed is seen at every call by identity, data pointer,
version and a few cache lines: optimizers with fused kernels and writes through `.data` or numpy leave the version alone.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence

import torch

from thruway.core.launch import LaunchList, Slot, uses
from thruway.runtime.cpu.launch import PythonProgram
from thruway.runtime.evaluate import bind_symbols, concrete, derivation
from thruway.runtime.lifetime import examine
from thruway.runtime.resolve import Code

SAMPLES, LINE = 4, 64                        # as in native/launch.c
Report = Callable[[str], None]


class Derivation:
    """Derives the values of `launch` from its inputs; `report` hears of every time but the first. `nbytes` is what they hold, once made."""

    def __init__(self, launch: LaunchList, code: Code, report: Report | None):
        self.launch = derivation(launch)
        self.code = code
        self.report = report or (lambda text: None)
        self.times = 0
        self.nbytes = 0

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        program = PythonProgram(concrete(self.launch, bind_symbols(self.launch, inputs)), self.code)
        with torch.inference_mode(False), torch.no_grad():
            derived = program(inputs)
        self.times += 1
        self.nbytes = _new_bytes(derived, inputs)
        if self.times > 1:
            self.report(f"a weight changed: {len(derived)} derived values made again, for the {self.times}th time")
        return derived


def watched_inputs(launch: LaunchList) -> tuple[Slot, ...]:
    """The inputs that derived values depend on."""
    inner = derivation(launch)
    slots = examine(inner)
    used = {slots.root[slot] for step in inner.steps for slot in uses(step)} | {slots.root[slot] for slot in inner.outputs}
    return tuple(slot for slot in sorted(used) if slots.kind[slot] == "input")


class Watch:
    """What the weights looked like when values were derived from them: the twin of native/launch.c's."""

    def __init__(self, weights: Sequence[torch.Tensor]):
        self.references = [weakref.ref(weight) for weight in weights]
        self.looks = [_look(weight) for weight in weights]

    def is_same(self, weights: Sequence[torch.Tensor]) -> bool:
        same = all(reference() is weight for reference, weight in zip(self.references, weights))
        return same and all(look == _look(weight) for look, weight in zip(self.looks, weights))


def _look(weight: torch.Tensor) -> tuple[object, ...]:
    span = _span(weight)
    at = weight.data_ptr()
    version = -1 if weight.is_inference() else weight._version
    lines = tuple(ctypes.string_at(at + start, min(LINE, span)) for start in _sample_starts(span)) if at else ()
    return at, version, span, lines


def _sample_starts(span: int) -> tuple[int, ...]:
    return tuple((span - LINE) * i // (SAMPLES - 1) for i in range(SAMPLES)) if span > LINE else (0,)


def _span(weight: torch.Tensor) -> int:
    if weight.numel() == 0:
        return 0
    return (sum((size - 1) * stride for size, stride in zip(weight.shape, weight.stride())) + 1) * weight.itemsize


def _new_bytes(derived: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> int:
    """Bytes of the derived values' storages that are no input's; what has no storage (opaque layouts) counts by its elements."""
    old = {each.untyped_storage().data_ptr() for each in inputs if each.layout == torch.strided}
    found: dict[int, int] = {}
    for value in derived:
        if value.layout == torch.strided:
            found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        else:
            found[id(value)] = value.numel() * value.itemsize
    return sum(size for at, size in found.items() if at not in old)
