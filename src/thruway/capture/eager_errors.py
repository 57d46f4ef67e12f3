"""The error that eager raises where torch refuses a call over metadata, found by making the call on small stand-ins.

Only an error that does not hang on elements counts: the call is made twice, on zeros and on ones, and must fail alike. It is then an
exception of the user's own program, which an `except` of theirs may catch inside the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from thruway.capture.leaves import autograd_kind
from thruway.core.errors import Unsupported
from thruway.core.kept_warnings import kept_warnings
from thruway.shapes.floats import FloatNode
from thruway.shapes.names import torch_dtype
from thruway.shapes.trace_tensor import TraceTensor, non_leaf

LARGEST = 1 << 26            # bytes of one stand-in


class _NoStandIn(Exception):
    """Internal: an argument has none."""


def eager_error(target: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Exception | None:
    """What `target` raises for tensors with the metadata of these TraceTensors; None where it does not, or not always the same.
    Symbolic sizes and numbers in it are looked at, so that guards then hold them."""
    random = torch.random.get_rng_state()
    try:
        with _disable_current_modes():
            errors = [_error_on(fill, target, args, kwargs) for fill in (0, 1)]
    except (_NoStandIn, Unsupported):                  # a size that depends on elements has no value yet
        return None
    finally:
        torch.random.set_rng_state(random)
    first, second = errors
    if first is not None and "without overflow" in str(first):      # of a number: whatever the elements are
        return first
    return first if first is not None and type(first) is type(second) and str(first) == str(second) else None


def _error_on(fill: int, target: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Exception | None:
    stand_ins = _StandIns(fill)
    real_args = [_stand_in(each, stand_ins) for each in args]
    real_kwargs = {name: _stand_in(each, stand_ins) for name, each in kwargs.items()}
    try:
        with kept_warnings():
            target(*real_args, **real_kwargs)
    except Exception as error:
        error.__traceback__ = error.__context__ = None          # they would hold the frames of capture, and those the error
        return error
    return None


@dataclass(frozen=True, slots=True)
class _StandIns:
    """Those made for one call, by trace, and the memory of each storage: views of one show the same elements."""

    fill: int
    made: dict[int, torch.Tensor] = field(default_factory=dict)
    memory: dict[int, torch.UntypedStorage] = field(default_factory=dict)

    def storage(self, trace: TraceTensor, size: int) -> torch.UntypedStorage:
        """The trace's memory, of at least so many bytes."""
        found = self.memory.setdefault(id(trace.root), torch.UntypedStorage(0))
        if found.nbytes() < size:
            found.resize_(size)
            found.fill_(self.fill)
        return found


def _stand_in(value: Any, known: _StandIns) -> Any:
    if isinstance(value, TraceTensor):
        if id(value) not in known.made:
            known.made[id(value)] = _tensor(value, known)
        return known.made[id(value)]
    if type(value) in (list, tuple, torch.Size):
        return type(value)(_stand_in(one, known) for one in value)
    if isinstance(value, slice):
        return slice(*(_stand_in(one, known) for one in (value.start, value.stop, value.step)))
    if isinstance(value, dict):
        return {key: _stand_in(one, known) for key, one in value.items()}
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return _number(value)
    return value


def _number(value: torch.SymInt | torch.SymFloat) -> int | float:
    if isinstance(value.node, FloatNode) and value.node.is_element():
        raise _NoStandIn
    return int(value) if isinstance(value, torch.SymInt) else float(value)


def _kind(trace: TraceTensor) -> str:
    try:
        return autograd_kind(trace)
    except RuntimeError:
        raise _NoStandIn from None


def _tensor(trace: TraceTensor, known: _StandIns) -> torch.Tensor:
    sizes, strides, offset = [int(n) for n in trace.shape], [int(n) for n in trace.stride()], int(trace.storage_offset())
    dtype = torch_dtype(trace._meta.dtype)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)) if all(sizes) else 0
    if trace.device.type != "cpu" or (extent + offset) * dtype.itemsize > LARGEST:
        raise _NoStandIn
    kind = _kind(trace)
    if kind == "leaf" and not trace.requires_grad:
        return torch.empty(0, dtype=dtype).set_(known.storage(trace, (offset + extent) * dtype.itemsize), offset, sizes, strides)
    with torch.enable_grad():
        made = torch.empty(offset + extent, dtype=dtype) if offset or kind == "view of a leaf" else torch.empty_strided(sizes, strides, dtype=dtype)
        made.untyped_storage().fill_(known.fill)
        if kind == "result":
            made = non_leaf(made)
        elif kind == "view of a leaf":
            return made.requires_grad_().as_strided(sizes, strides, offset)
        if offset:
            made = made.as_strided(sizes, strides, offset)
    return made.requires_grad_() if trace.requires_grad else made
