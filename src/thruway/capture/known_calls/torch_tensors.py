"""Tensor calls that are not plain operators: sizes and metadata, values read in Python, constructors that take Python data."""

from __future__ import annotations

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import call_torch
from thruway.capture.values.base import Constant, TensorValue, Value
from thruway.capture.values.iterate import ListIterator, tensor_items
from thruway.capture.values.base import TupleValue

Args = list[Value]
Kwargs = dict[str, Value]


def needs_value(name: str):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        raise unsupported(state, "TW103", name)
    return handler


def requires_grad_(state: State, args: Args, kwargs: Kwargs) -> Value:
    """On a tensor made inside; on one found outside it would change the caller's tensor."""
    value: TensorValue = args[0]
    if value.real is not None:
        raise unsupported(state, "TW106", "requires_grad of a tensor found outside")
    wanted = args[1].value if len(args) > 1 else kwargs.get("requires_grad", Constant(True)).value
    value.trace.requires_grad_(wanted)
    node = state.graph.create_node("call_method", "requires_grad_", (value.node, wanted))
    node.meta["line"] = state.where()
    return value


def length(state: State, args: Args, kwargs: Kwargs) -> Value:
    return call_torch(state, torch.Tensor.size, [args[0], Constant(0)], {})


def iterate(state: State, args: Args, kwargs: Kwargs) -> Value:
    return ListIterator(TupleValue(tuple(tensor_items(state, args[0]))))


NEED_VALUES = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__contains__", "is_nonzero", "equal", "__array__")
ROWS = {
    **{getattr(torch.Tensor, name): needs_value(f"Tensor.{name}") for name in NEED_VALUES},
    torch.equal: needs_value("torch.equal"), torch.allclose: needs_value("torch.allclose"), torch.is_nonzero: needs_value("torch.is_nonzero"),
    torch.Tensor.requires_grad_: requires_grad_, torch.Tensor.__len__: length, torch.Tensor.__iter__: iterate,
}
