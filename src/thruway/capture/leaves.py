"""What autograd takes a tensor for: what hangs on that is guarded where it is asked or written, not for every parameter."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from thruway.capture.state import State
from thruway.shapes.trace_tensor import TraceTensor


def autograd_kind(tensor: torch.Tensor) -> str:
    """"leaf", "view of a leaf" that requires grad, or "result". RuntimeError where torch refuses to say: of one of several views whose base was
    written."""
    if tensor.is_leaf:
        return "leaf"
    base = tensor._base
    return "view of a leaf" if base is not None and base.is_leaf and base.requires_grad else "result"


@dataclass(frozen=True, slots=True)
class IsKind:
    """Whether autograd takes a tensor for a `key`."""

    key: str

    def __call__(self, tensor: torch.Tensor) -> bool:
        try:
            return autograd_kind(tensor) == self.key
        except RuntimeError:
            return False


def guard_kind(state: State, trace: TraceTensor) -> None:
    """Guards the kind of the tensors found outside whose memory `trace` shows; those that want no gradient are all leaves."""
    for found in state.by_trace.values():
        if found.source is not None and found.known_trace is not None and found.known_trace.root is trace.root and found.known_trace.requires_grad:
            state.guard("answer", found.source, IsKind(autograd_kind(found.real)))
