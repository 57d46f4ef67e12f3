"""What an operator does to its arguments, read once from its schema: writes, aliases, whether it is a view or a composite."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch._ops import OpOverload

from thruway.core.random import RANDOM

# In-place operators that change sizes and strides but no element.
METADATA_INPLACE = frozenset({
    "aten::t_", "aten::transpose_", "aten::squeeze_", "aten::squeeze_.dim", "aten::squeeze_.dims", "aten::unsqueeze_", "aten::as_strided_",
    "aten::swapdims_", "aten::swapaxes_", "aten::detach_", "aten::resize_", "aten::resize_as_", "aten::set_", "aten::set_.source_Tensor",
    "aten::set_.source_Storage", "aten::set_.source_Storage_storage_offset", "aten::set_.source_Tensor_storage_offset",
})
# Schemas that say nothing of the alias or the write.
_UNSAID_FRESH = frozenset({"aten::lift_fresh"})
# Their schema says fresh tensors, since autograd need not know; their memory is their argument's.
UNSAID_VIEWS = frozenset({"aten::unsafe_chunk", "aten::unsafe_split.Tensor", "aten::unsafe_split_with_sizes"})


@dataclass(frozen=True, slots=True)
class Traits:
    """`writes`: indices or names of arguments written. `inplace`: writes its first argument and returns it. `view_of`: index of the
    argument that every result aliases without a write. `outs`: names of out= arguments."""

    writes: tuple[int | str, ...]
    inplace: bool
    view_of: int | None
    outs: tuple[str, ...]
    composite: bool
    random: bool
    changes_metadata: bool

    @property
    def functional(self) -> bool:
        return not self.writes and self.view_of is None


@cache
def traits_of(op: OpOverload) -> Traits:
    schema = op._schema
    writes: list[int | str] = []
    outs: list[str] = []
    view_of = None
    aliases = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    for i, arg in enumerate(schema.arguments):
        if arg.alias_info is None:
            continue
        if arg.alias_info.is_write:
            writes.append(arg.name if arg.kwarg_only else i)
            if arg.is_out:
                outs.append(arg.name)
        elif aliases and view_of is None:
            view_of = i
    inplace = bool(writes) and writes[0] == 0 and bool(schema.returns) and schema.returns[0].alias_info is not None
    if op._name in UNSAID_VIEWS:
        view_of = 0
    return Traits(tuple(writes), inplace and not outs, None if op._name in _UNSAID_FRESH else view_of, tuple(outs), _is_composite(op),
                  schema.name.split("::")[1] in RANDOM, op._name in METADATA_INPLACE)


def _is_composite(op: OpOverload) -> bool:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return torch._C._dispatch_has_kernel(op._name) and has_kernel(op._name, "CompositeImplicitAutograd")


_FORMS = {"aten::normal_": "normal_functional.default", "aten::bernoulli_.float": "bernoulli.p"}


@cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """The operator that returns what `op` (in place, or with out=) would write; None where torch has none."""
    space, _, name = op._schema.name.partition("::")
    traits = traits_of(op)
    if op._name in _FORMS:
        name, _, overload = _FORMS[op._name].partition(".")
        return getattr(getattr(torch.ops.aten, name), overload)
    if traits.outs:
        candidates = getattr(torch.ops, space), name
    elif traits.inplace and name.endswith("_"):
        candidates = getattr(torch.ops, space), name[:-1]
    else:
        return None
    packet = getattr(*candidates, None)
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if a.name not in traits.outs]
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        arguments = [(a.name, str(a.type)) for a in found._schema.arguments]
        if arguments == wanted and torch._C._dispatch_has_kernel(found._name) and traits_of(found).functional:
            return found
    return None
