"""torch.compile wraps `__init__` and `__setstate__` of torch.nn.Module once per process, to count the modules that are made.

What the two do stays the same, so the wrapped functions stand for themselves: code compiled before torch.compile was first used is
still right after it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

NAMES = frozenset({"__init__", "__setstate__"})
_MODULE, _PLACE = "torch._dynamo.mutation_guard", "install_generation_tagging_init.<locals>.patched_"


def _inside(found: Any) -> Any:
    """What torch.compile's wrapper `found` calls; `found` where it is none."""
    if type(found) is not FunctionType or found.__module__ != _MODULE or not found.__qualname__.startswith(_PLACE):
        return found
    (cell,) = found.__closure__ or ()
    return cell.cell_contents


_own = tuple(_inside(torch.nn.Module.__dict__[name]) for name in sorted(NAMES))


def is_taggable(found: Any) -> bool:
    """Whether `found` is one of the two functions, as torch wrote them."""
    return any(found is each for each in _own)


def untagged(found: Any) -> Any:
    """`found`, or the function of torch.nn.Module that it tags."""
    inner = _inside(found)
    return inner if is_taggable(inner) else found


def is_still(wanted: Any) -> Callable[[Any], bool]:
    """A predicate for guards: whether what stands there now is `wanted`, tagged or not."""
    return lambda found: untagged(found) is wanted
