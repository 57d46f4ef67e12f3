"""Custom operators: their own fake kernels run over TraceTensors, and may ask for sizes that only a run makes known."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._library import fake_impl
from torch._library.simple_registry import singleton
from torch._ops import OpOverload

from thruway.shapes.symbolic import Facts, symint


@cache
def _holder(name: str) -> Any:
    return singleton.find(name).fake_impl


def has_fake(op: OpOverload) -> bool:
    """Whether somebody registered a fake kernel for an operator that is not torch's own."""
    return op.namespace not in ("aten", "prims", "prim") and _holder(op._name).kernel is not None


class _Context:
    """What `torch.library.get_ctx()` gives to a fake kernel."""

    def __init__(self, facts: Facts):
        self.facts = facts

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> torch.SymInt:
        return symint(self.facts.fresh(min, max), self.facts)

    def create_unbacked_symint(self, *, min: int = 0, max: int | None = None) -> torch.SymInt:
        """The name of old, whose least size of 2 nobody keeps to."""
        return self.new_dynamic_size(max=max)


def run_fake(op: OpOverload, args: tuple, kwargs: dict, facts: Facts) -> Any:
    """What the fake kernel makes of TraceTensors."""
    with fake_impl.set_ctx_getter(lambda: _Context(facts)):
        return _holder(op._name).kernel(*args, **kwargs)
