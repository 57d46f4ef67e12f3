"""Elements of small tensors that are made of constants alone (`torch.tensor(3)`, `torch.div(12, 4)`), so that code that reads them goes on.

They are computed by torch beside the metadata. A tensor whose storage is written keeps none. Of some tensors found outside (integers that a
module keeps as buffers) the elements are assumed: `assumed` are questions which, where Python reads what was made of them, guard that they are
the same, or say that they may not be.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._ops import OpOverload

from thruway.shapes.names import dtype_name
from thruway.shapes.traits import Traits

MOST = 64                                     # elements
READS = frozenset({"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal"})
PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class Unknown(Exception):
    """Internal: an argument is neither plain nor a tensor of known elements."""


def elements_of(trace: Any) -> torch.Tensor | None:
    """The elements of a traced tensor, where they are known."""
    found = getattr(trace, "elements", None)
    return None if found is None or trace.root.is_written else found


def _read_elements(trace: Any) -> torch.Tensor | None:
    """`elements_of` for Python to read."""
    found = elements_of(trace)
    return found if found is not None and all(ask() for ask in trace.assumed) else None


def known_number(trace: Any) -> int | float | bool | complex | None:
    """The only element, where it is known."""
    found = elements_of(trace)
    if found is None or found.numel() != 1 or _read_elements(trace) is None:
        return None
    with torch._C._DisableTorchDispatch():                    # a mode that traces may be on
        return found.item()


def known_list(trace: Any) -> list | int | float | bool | complex | None:
    """What `tolist` gives, where it is known."""
    found = _read_elements(trace)
    if found is None:
        return None
    with torch._C._DisableTorchDispatch():
        return found.tolist()


def is_assumed(trace: Any) -> bool:
    """Whether the elements are known by an assumption about a tensor found outside."""
    return bool(getattr(trace, "assumed", ())) and elements_of(trace) is not None


def read(op: OpOverload, args: tuple, kwargs: dict) -> Any:
    """What `op` reads from known elements; Unknown where it may not know."""
    if op._name not in READS or any(is_assumed(one) for one in args):
        raise Unknown
    return op(*_real(args), **_real(kwargs))


def follow(op: OpOverload, traits: Traits, args: tuple, kwargs: dict, made: Any) -> None:
    """Notes the elements of what `op` made, and which storages it wrote."""
    for name in traits.writes:
        written = kwargs.get(name) if isinstance(name, str) else args[name] if name < len(args) else None
        for one in written if isinstance(written, (list, tuple)) else (written,):
            if isinstance(one, torch.Tensor):
                one.root.is_written = True      # type: ignore[attr-defined]
    if traits.writes or traits.random or not op._name.startswith("aten::") or "empty" in op._name or not _is_small(made):
        return
    try:
        real = [_real(args), _real(kwargs)]
        with torch.no_grad():
            found = op(*real[0], **real[1])
    except (Unknown, RuntimeError, IndexError, ValueError, TypeError):
        return
    if tuple(found.shape) == made._meta.sizes and dtype_name(found.dtype) == made._meta.dtype and not found.requires_grad:
        made.elements, made.assumed = found, tuple(dict.fromkeys(_assumed([args, kwargs])))


def _is_small(made: Any) -> bool:
    meta = getattr(made, "_meta", None)
    return meta is not None and meta.device == "cpu" and all(type(n) is int for n in meta.sizes) and math.prod(meta.sizes) <= MOST


def _assumed(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return list(getattr(value, "assumed", ()))
    if isinstance(value, (list, tuple)):
        return [ask for one in value for ask in _assumed(one)]
    return _assumed(list(value.values())) if isinstance(value, dict) else []


def _real(value: Any) -> Any:
    """Arguments with known elements in place of traced tensors."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        found = elements_of(value)
        if found is None:
            raise Unknown
        return found
    if isinstance(value, (list, tuple)):
        return type(value)(_real(one) for one in value)
    if isinstance(value, dict):
        return {key: _real(one) for key, one in value.items()}
    raise Unknown
