"""What eager left and what compiled code left, walked side by side: the first difference, or None.

The walk pairs objects: what is one object (or shares memory) on one side must be one on the other. Tensors compare by metadata, then by
value within eager's own error: where the dtype's tolerance is exceeded, a run in float64 says how far eager itself is off.
"""

from __future__ import annotations

import collections
import functools
import math
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from thruway.core.marks import is_compiled_type, original_of

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.complex64: 2e-5, torch.complex128: 1e-11}
NUMBERS = 2e-5                        # relative, for Python floats that were read from tensors
TIMES_EAGER = 4.0                     # how much further from float64 than eager a single call may be
ATOMS = (
    type(None), bool, int, complex, str, bytes, range, slice, type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.Size, types.CodeType,
)
Places = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Difference:
    """`place` says where, `what` the rest, with both sides."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(slots=True)
class Walk:
    """`wide` gives the tensors of a float64 run by place; None where there is none."""

    wide: Callable[[], Places | None] = lambda: None
    pairs: dict[int, tuple[Any, Any]] = field(default_factory=dict)          # id of eager's object → (it, ours)
    back: dict[int, Any] = field(default_factory=dict)
    storages: dict[tuple[str, int], int] = field(default_factory=dict)
    looks_at_values: bool = True                                             # of tensors

    def compare(self, eager: Any, ours: Any, place: str) -> Difference | None:
        """The first difference between two values."""
        if is_compiled_type(type(ours)) and not is_compiled_type(type(eager)):
            return self._compiled(eager, ours, place)
        if eager is ours or type(eager) is not type(ours):
            return None if eager is ours else Difference(place, f"eager gives {_short(eager)}, compiled code {_short(ours)}")
        if isinstance(eager, ATOMS):
            return None if eager == ours else Difference(place, f"eager gives {_short(eager)}, compiled code {_short(ours)}")
        if isinstance(eager, float):
            return self._floats(eager, ours, place)
        if type(eager) is not tuple and (known := self._known(eager, ours, place)) is not NEW:
            return known
        if isinstance(eager, torch.Tensor):
            return self._tensors(eager, ours, place)
        return self._parts(eager, ours, place)

    def _compiled(self, eager: Any, ours: Any, place: str) -> Difference | None:
        """A compiled object beside what it was compiled from: eager's copies hold the latter."""
        if not isinstance(eager, types.FunctionType):
            return self.compare(eager, original_of(ours), place)
        own = [{name: one for name, one in vars(side).items() if not name.startswith("__")} for side in (eager, ours)]
        return self.compare(*own, place)

    def _known(self, eager: Any, ours: Any, place: str) -> Any:
        first, second = self.pairs.get(id(eager)), self.back.get(id(ours))
        if first is None and second is None:
            self.pairs[id(eager)] = self.back[id(ours)] = (eager, ours)
            return NEW
        if first is not None and first[1] is ours:
            return None
        same = "eager" if first is not None else "compiled code"
        return Difference(place, f"in {same} this is the same object as another one, elsewhere it is not")

    def _floats(self, eager: float, ours: float, place: str) -> Difference | None:
        if eager == ours or (math.isnan(eager) and math.isnan(ours)) or math.isclose(eager, ours, rel_tol=NUMBERS):
            return None
        return Difference(place, f"eager gives {eager!r}, compiled code {ours!r}")

    def _parts(self, eager: Any, ours: Any, place: str) -> Difference | None:
        if isinstance(eager, numpy.ndarray):
            same = eager.shape == ours.shape and eager.dtype == ours.dtype and _same_elements(eager, ours)
            return None if same else Difference(place, f"eager gives {_short(eager)}, compiled code {_short(ours)}")
        left, right = list(_parts(eager)), list(_parts(ours))
        if [name for name, _ in left] != [name for name, _ in right]:
            return Difference(place, f"eager gives {_outline(left)}, compiled code {_outline(right)}")
        for (name, one), (_, other) in zip(left, right):
            if found := self.compare(one, other, place + name):
                return found
        return None

    # -- tensors -----------------------------------------------------------------------------------------------------------------------

    def _tensors(self, eager: torch.Tensor, ours: torch.Tensor, place: str) -> Difference | None:
        for name in ("dtype", "device", "shape", "layout", "requires_grad", "is_leaf"):
            one, other = getattr(eager, name), getattr(ours, name)
            if one != other:
                return Difference(place, f"{name} is {_plain(one)} in eager, {_plain(other)} in compiled code")
        if _strides(eager) != _strides(ours):
            return Difference(place, f"strides are {_strides(eager)} in eager, {_strides(ours)} in compiled code (shape {tuple(eager.shape)})")
        return self._memory(eager, ours, place) or self._values(eager, ours, place) or self._gradient(eager, ours, place)

    def _gradient(self, eager: torch.Tensor, ours: torch.Tensor, place: str) -> Difference | None:
        return self.compare(eager.grad, ours.grad, f"{place}.grad") if eager.is_leaf and ours.is_leaf else None

    def _memory(self, eager: torch.Tensor, ours: torch.Tensor, place: str) -> Difference | None:
        if not _has_memory(eager) or not _has_memory(ours):
            return None
        one, other = eager.untyped_storage().data_ptr(), ours.untyped_storage().data_ptr()
        if one == other or self.storages.setdefault(("eager", one), other) == other and self.storages.setdefault(("ours", other), one) == one:
            return None
        return Difference(place, "it shares memory with other tensors than in eager")

    def _values(self, eager: torch.Tensor, ours: torch.Tensor, place: str) -> Difference | None:
        if eager.is_meta or not self.looks_at_values or same_values(eager, ours):
            return None
        reference = (self.wide() or {}).get(place)
        if reference is not None and reference.shape == eager.shape and _is_as_good(eager, ours, reference):
            return None
        return Difference(place, describe(eager, ours))


NEW = object()


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, by name."""
    match value:
        case dict():
            keys = collections.OrderedDict.__iter__(value) if isinstance(value, collections.OrderedDict) else dict.__iter__(value)
            yield from ((f"[{_short(key)}]", dict.__getitem__(value, key)) for key in keys)
        case list() | tuple() | collections.deque():
            yield from ((f"[{i}]", one) for i, one in enumerate(value))
        case set() | frozenset():
            yield from ((f".{_short(one)}", None) for one in sorted(value, key=_short))
        case types.FunctionType():
            yield "()", value.__code__
            yield from ((f".{name}", getattr(value, name)) for name in ("__closure__", "__defaults__", "__kwdefaults__"))
            yield from ((f".{name}", one) for name, one in value.__dict__.items() if not name.startswith("__"))
        case types.MethodType():
            yield from ((f".{name}", getattr(value, name)) for name in ("__func__", "__self__"))
        case types.CellType():
            yield from ([] if _is_empty(value) else [("", value.cell_contents)])
        case functools.partial():
            yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
        case weakref.ref():
            yield "()", value()
        case BaseException():
            yield from ((f".{name}", getattr(value, name)) for name in ("args", "__cause__"))
        case _:
            pass
    if not isinstance(value, types.FunctionType | type | types.ModuleType):
        yield from ((f".{name}", one) for name, one in getattr(value, "__dict__", {}).items())


def tensors_in(value: Any, place: str, found: Places, seen: dict[int, Any]) -> Places:
    """Every tensor by the place that a walk gives it."""
    if isinstance(value, ATOMS) or id(value) in seen:
        return found
    seen[id(value)] = value
    if isinstance(value, torch.Tensor):
        found[place] = value
        return tensors_in(value.grad, f"{place}.grad", found, seen) if value.is_leaf else found
    for name, one in _parts(value):
        tensors_in(one, place + name, found, seen)
    return found


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def same_values(eager: torch.Tensor, ours: torch.Tensor) -> bool:
    """Whether the elements are equal, within the dtype's tolerance relative to the largest where they are floating."""
    eager, ours = _dense(eager), _dense(ours)
    if not eager.numel() or torch.equal(eager, ours):
        return True
    allowed = TOLERANCE.get(eager.dtype)
    if allowed is None:
        return False
    return torch.allclose(_wide(ours), _wide(eager), rtol=allowed, atol=allowed * _largest(eager), equal_nan=True)


def _is_as_good(eager: torch.Tensor, ours: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether ours is about as near to float64 as eager is."""
    eager, ours, reference = _dense(eager), _dense(ours), _dense(reference)
    if eager.dtype not in TOLERANCE:
        return int((ours != reference).sum()) <= int((eager != reference).sum())
    if not torch.equal(torch.isfinite(eager), torch.isfinite(ours)):
        return False
    finite = torch.isfinite(eager) & torch.isfinite(reference)
    mine, theirs = (_wide(ours) - _wide(reference))[finite].abs(), (_wide(eager) - _wide(reference))[finite].abs()
    return not mine.numel() or bool(mine.max() <= TIMES_EAGER * theirs.max() + TOLERANCE[eager.dtype] * _largest(reference))


def describe(eager: torch.Tensor, ours: torch.Tensor) -> str:
    """Where two tensors of one shape differ most."""
    eager, ours = _dense(eager), _dense(ours)
    away = eager != ours
    if eager.dtype in TOLERANCE:
        away = away & ~(torch.isnan(eager) & torch.isnan(ours))
        size = torch.nan_to_num((_wide(eager) - _wide(ours)).abs(), nan=math.inf)
        at = int(torch.where(away, size, -1).flatten().argmax())
    else:
        at = int(away.flatten().int().argmax())
    index = [int(one) for one in numpy.unravel_index(at, eager.shape)] if eager.dim() else []
    one, other = eager.flatten()[at].item(), ours.flatten()[at].item()
    return f"{int(away.sum())} of {eager.numel()} elements differ, most at {index}: eager {one!r}, compiled code {other!r}"


def _dense(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().resolve_conj().resolve_neg()
    t = t.dequantize() if t.is_quantized else t
    return (t.as_subclass(torch.Tensor) if t.layout is torch.strided else t.to_dense()).cpu()


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def _largest(t: torch.Tensor) -> float:
    finite = _wide(t).abs()[torch.isfinite(t)]
    return float(finite.max()) if finite.numel() else 0.0


def _strides(t: torch.Tensor) -> tuple[int, ...]:
    """Strides that matter: those of dimensions with more than one element, where there are elements."""
    return tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.layout is torch.strided and t.numel() else ()


def _has_memory(t: torch.Tensor) -> bool:
    return t.layout is torch.strided and t.numel() > 0 and not t.is_meta


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, torch.Size) else value


def _outline(parts: list[tuple[str, Any]]) -> str:
    return _clipped(f"{len(parts)} parts {', '.join(name for name, _ in parts)}")


def _same_elements(eager: numpy.ndarray, ours: numpy.ndarray) -> bool:
    return numpy.allclose(eager, ours, rtol=NUMBERS, equal_nan=True) if eager.dtype.kind in "biufc" else numpy.array_equal(eager, ours)


def _short(value: Any) -> str:
    """A short text for messages and for the order of sets, that runs no code of the user's."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} {tuple(value.shape)}"
    if isinstance(value, (*ATOMS, float, type)):
        return _clipped(repr(value))
    if type(value) in (list, tuple, dict):
        return f"a {type(value).__name__} of {len(value)}"
    return _clipped(f"{type(value).__name__}({value})" if isinstance(value, BaseException) else f"a {type(value).__qualname__}")


def _clipped(text: str) -> str:
    return text if len(text) <= 160 else text[:159] + "…"
