"""Tensor calls that are not plain operators: sizes and metadata, values read in Python, constructors that take Python data."""

from __future__ import annotations

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import add_node, call_torch
from thruway.capture.values.base import Constant, SizeValue, TensorValue, TupleValue, Value
from thruway.capture.values.iterate import ListIterator, tensor_items
from thruway.shapes.floats import element

Args = list[Value]
Kwargs = dict[str, Value]


def needs_value(name: str):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        raise unsupported(state, "TW103", name)
    return handler


def item(state: State, args: Args, kwargs: Kwargs) -> Value:
    """The number stays in the graph; Python gets it where it must be known, or where the call is over."""
    trace = args[0].trace
    if any(type(size) is not int for size in trace.shape) or trace.numel() != 1 or not (trace.is_floating_point() or trace.dtype in INTEGERS):
        raise unsupported(state, "TW103", "Tensor.item")
    node = add_node(state, torch.Tensor.item, args[:1], {})
    made = element(node, trace.is_floating_point(), state.facts)
    return SizeValue(torch.SymFloat(made) if trace.is_floating_point() else torch.SymInt(made))


INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


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


NEED_VALUES = ("tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__contains__", "is_nonzero", "equal", "__array__")
ROWS = {
    **{getattr(torch.Tensor, name): needs_value(f"Tensor.{name}") for name in NEED_VALUES},
    torch.equal: needs_value("torch.equal"), torch.allclose: needs_value("torch.allclose"), torch.is_nonzero: needs_value("torch.is_nonzero"),
    torch.Tensor.item: item, torch.Tensor.requires_grad_: requires_grad_, torch.Tensor.__len__: length, torch.Tensor.__iter__: iterate,
}
