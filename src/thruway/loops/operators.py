"""What an operator of the graph is called and what its schema says about storage, read duck-typed and remembered per operator."""

from __future__ import annotations

from dataclasses import dataclass

from thruway.core.random import RANDOM


@dataclass(frozen=True, slots=True)
class Operator:
    """`name`: "aten.add.Tensor". `writes`: the arguments written in place, as (position, name). `fresh`: for each result whether it has
    storage of its own; `is_view` where the result shares an argument's storage without a write; `pinned` as in Extern."""

    name: str
    writes: tuple[tuple[int, str], ...] = ()
    fresh: tuple[bool, ...] = (True,)
    is_view: bool = False
    pinned: bool = False

    @property
    def functional_name(self) -> str:
        """ "aten.add.Tensor" of "aten.add_.Tensor"."""
        space, operator, overload = self.name.split(".", 2)
        return f"{space}.{operator.removesuffix('_')}.{overload}"

    @property
    def call_name(self) -> str:
        """ "aten::add.Tensor" of "aten.add.Tensor", "aten::mm" of "aten.mm.default"."""
        space, operator, overload = self.name.split(".", 2)
        return f"{space}::{operator}" + ("" if overload == "default" else f".{overload}")


_known: dict[object, Operator] = {}


def operator_of(target: object) -> Operator:
    if target not in _known:
        _known[target] = _read(target)
    return _known[target]


def _read(target: object) -> Operator:
    schema = getattr(target, "_schema", None)
    if schema is None:
        return Operator(getattr(target, "__name__", str(target)))
    writes = tuple([(k, a.name) for k, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write])
    fresh = tuple([r.alias_info is None for r in schema.returns])
    pinned = not fresh or str(target).split(".")[1] in RANDOM
    return Operator(str(target), writes, fresh, not writes and not all(fresh), pinned)
