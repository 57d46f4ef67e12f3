"""Tensors of a launch list: makes those that stay from call to call (constants, views of arena, constants and derived values), and views."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thruway.core.dtypes import ITEMSIZE
from thruway.core.errors import CompilerBug
from thruway.core.launch import Allocate, LaunchList, TensorSpec, View
from thruway.native import RegionFailed
from thruway.runtime.lifetime import PERSISTENT, Slots
from thruway.runtime.resolve import dtype_of


def make_constants(launch: LaunchList) -> dict[int, torch.Tensor]:
    """The constants by slot, as ordinary tensors whatever mode the caller is in."""
    with torch.inference_mode(False), torch.no_grad():
        return {slot: _constant(spec, data) for slot, spec, data in launch.constants}


def make_arena(size: int) -> torch.Tensor:
    """Uninitialised bytes, 64-aligned as torch's allocator gives them; usable in every mode."""
    with torch.inference_mode(False):
        return torch.empty(size, dtype=torch.uint8, device="cpu")


def persistent_tensors(
    launch: LaunchList, slots: Slots, arena: torch.Tensor, constants: dict[int, torch.Tensor], derived: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """One tensor per persistent slot, None for the others. Arena tensors are no views, so that writing one marks none of the others."""
    with torch.inference_mode(False), torch.no_grad():
        tensors: list[torch.Tensor | None] = [constants.get(slot) for slot in range(launch.slots)]
        for slot, value in zip(launch.derived_slots, derived):
            tensors[slot] = value
        for step in launch.steps:
            match step:
                case Allocate(slot, spec, int(place)):
                    tensors[slot] = place_tensor(arena, place, spec)
                case View(slot, base, spec) if slots.kind[slot] in PERSISTENT:
                    tensors[slot] = view_tensor(tensors[base], spec)
        return tensors


def place_tensor(arena: torch.Tensor, place: int, spec: TensorSpec) -> torch.Tensor:
    """A tensor of layout `spec` at `place` bytes into `arena`."""
    size = ITEMSIZE[spec.dtype]
    if place % size or place + byte_span(spec) > arena.numel():
        raise CompilerBug("runtime", f"{spec} does not fit at byte {place} of an arena of {arena.numel()}")
    return torch.empty(0, dtype=dtype_of(spec.dtype), device="cpu").set_(arena.untyped_storage(), place // size, spec.sizes, spec.strides)


def view_tensor(base: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """`base`'s storage in layout `spec`, whose offset counts from `base`'s first element."""
    dtype = dtype_of(spec.dtype)
    if dtype == base.dtype:
        return torch.as_strided(base, spec.sizes, spec.strides, base.storage_offset() + spec.offset)
    start = base.storage_offset() * base.itemsize // dtype.itemsize + spec.offset
    return torch.empty(0, dtype=dtype, device=base.device).set_(base.untyped_storage(), start, spec.sizes, spec.strides)


def bump_version(tensor: torch.Tensor) -> None:
    """Tells autograd that `tensor` is written. RegionFailed where eager would refuse the write."""
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise RegionFailed("an inference tensor cannot be written outside inference mode")
    torch._C._increment_version([tensor])


def byte_span(spec: TensorSpec) -> int:
    """Bytes from the first to the end of the last element."""
    if 0 in spec.sizes:
        return 0
    return (sum((size - 1) * stride for size, stride in zip(spec.sizes, spec.strides)) + 1) * ITEMSIZE[spec.dtype]


def _constant(spec: TensorSpec, data: bytes) -> torch.Tensor:
    made = torch.empty(0, dtype=dtype_of(spec.dtype), device="cpu")
    if data:
        made = torch.frombuffer(bytearray(data), dtype=made.dtype)
    return torch.as_strided(made, spec.sizes, spec.strides, 0).to(spec.device)
