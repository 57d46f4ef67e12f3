"""Tensor calls that are not plain operators: sizes and metadata, values read in Python, constructors that take Python data."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import add_node, call_torch
from thruway.capture.values.base import FALSE, NONE, Constant, ListValue, ObjectValue, SizeValue, TensorValue, TupleValue, Value
from thruway.capture.values.compare import boolean
from thruway.capture.values.constants import from_python, specialize
from thruway.capture.values.iterate import ListIterator, tensor_items
from thruway.capture.values.number_index import number_of, read_number
from thruway.capture.values.numbers import is_element, kept_condition, size_tensor, truth_value
from thruway.shapes.known_elements import known_list, known_number
from thruway.shapes.nodes import make_node
from thruway.shapes.ranges import fits
from thruway.shapes.symbolic import SizeNode

Args = list[Value]
Kwargs = dict[str, Value]


def needs_value(name: str):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        raise unsupported(state, "TW103", name)
    return handler


def item(state: State, args: Args, kwargs: Kwargs) -> Value:
    """The number stays in the graph; Python gets it where it must be known, or where the call is over."""
    trace = args[0].trace
    if (found := known_number(trace)) is not None:
        return Constant(found)
    held = kept_condition(state, args[0]) if trace.dtype is torch.bool else None
    if held is not None:
        return truth_value(state, held)
    if any(type(size) is not int for size in trace.shape) or trace.numel() != 1 or not (trace.is_floating_point() or trace.dtype in INTEGERS):
        raise unsupported(state, "TW103", "Tensor.item")
    return read_number(state, args[0], trace.is_floating_point())


def to_list(state: State, args: Args, kwargs: Kwargs) -> Value:
    """Lists of numbers that stay in the graph, where their lengths are known and short."""
    trace = args[0].trace
    if (found := known_list(trace)) is not None:
        return from_python(state, found)
    if any(type(size) is not int for size in trace.shape) or trace.numel() > LONGEST or not (trace.is_floating_point() or trace.dtype in INTEGERS):
        raise unsupported(state, "TW103", "Tensor.tolist")
    if not trace.dim():
        return item(state, args, kwargs)
    node = add_node(state, torch.Tensor.tolist, args[:1], {})
    node.meta["opaque"] = True
    return _rows(state, node, tuple(trace.shape), trace.is_floating_point())


def _rows(state: State, node: torch.fx.Node, shape: tuple[int, ...], is_float: bool) -> Value:
    if not shape:
        return number_of(state, node, is_float)
    parts = [make_node(state.graph, "call_function", operator.getitem, (node, i)) for i in range(shape[0])]
    for part in parts:
        part.meta["line"] = node.meta["line"]
    return ListValue([_rows(state, part, shape[1:], is_float) for part in parts])


LONGEST = 64


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


def as_tensor(state: State, args: Args, kwargs: Kwargs) -> Value:
    """A tensor as it is, or in the dtype and on the device that are asked for; a new one from numbers."""
    given = {name: one for name, one in zip(("data", "dtype", "device"), args)} | kwargs
    data = given.pop("data")
    given = {name: one for name, one in given.items() if not (isinstance(one, Constant) and one.value is None)}
    if state.devices and "device" not in given:
        given["device"] = Constant(state.devices[-1])
    if not isinstance(data, TensorValue):
        result = new_tensor(state, [data], given)
    else:
        result = call_torch(state, torch.Tensor.to, [data], given) if given else data
    if result is None:
        raise unsupported(state, "TW101", "torch.as_tensor")
    return result


def new_tensor(state: State, args: Args, kwargs: Kwargs) -> Value:
    """torch.tensor(…): of a list of tensors with one element each, those elements."""
    data = args[0] if args else kwargs.get("data")
    items = data.items if isinstance(data, ListValue | TupleValue) else ()
    if items and all(map(_is_plain_number, items)) and len({one.trace.dtype for one in items}) == 1 and kwargs.keys() <= {"dtype"} and not state.devices:
        parts = [call_torch(state, torch.Tensor.detach, [one], {}) for one in items]
        made = call_torch(state, torch.stack, [ListValue(parts)], {})
        return call_torch(state, torch.Tensor.to, [made], kwargs) if kwargs else made
    if isinstance(data, SizeValue) and type(data.size.node) is SizeNode and not is_element(data) and kwargs.keys() <= {"data", "dtype"} and not state.devices:
        given = kwargs.get("dtype", NONE)
        dtype = getattr(given, "value", None) or torch.int64
        if fits(data.size, torch.int64 if dtype.is_floating_point else dtype):          # too large ones become infinite in float16
            made = size_tensor(state, data)
            return made if given is NONE else call_torch(state, torch.Tensor.to, [made, given], {})
        args, kwargs = [specialize(state, data)], {} if given is NONE else {"dtype": given}
    result = call_torch(state, torch.tensor, args, kwargs)
    if result is None:
        raise unsupported(state, "TW101", "torch.tensor")
    return result


def _is_plain_number(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.trace.dim() == 0 and value.trace.device.type == "cpu"


def custom_operator(state: State, args: Args, kwargs: Kwargs) -> Value:
    """An operator made by `torch.library.custom_op`, which is called as an object."""
    found, *rest = args
    if not isinstance(getattr(found, "real", None), CustomOpDef) or found.source is None:
        raise unsupported(state, "TW101", "a custom operator")
    state.guard("identity", found.source, found.real)
    result = call_torch(state, found.real._opoverload, rest, kwargs)
    if result is None:
        raise unsupported(state, "TW101", found.real._qualname)
    return result


def max_pool1d(function: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """Without gradients and indices torch has a kernel of its own for one dimension, of floats, whose result is contiguous whatever its input."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        inputs = list(args)
        no_indices = len(args) < 7 and kwargs.get("return_indices", FALSE) is FALSE
        if no_indices and args and isinstance(args[0], TensorValue) and not (torch.is_grad_enabled() and args[0].trace.requires_grad):
            if not args[0].trace.dtype.is_floating_point:
                raise unsupported(state, "TW101", "torch.max_pool1d of integers")
            inputs[0] = call_torch(state, torch.Tensor.contiguous, [args[0]], {})
        result = call_torch(state, function, inputs, kwargs)
        if result is None:
            raise unsupported(state, "TW101", "torch.max_pool1d")
        return result
    return handler


def is_inference(state: State, args: Args, kwargs: Kwargs) -> Value:
    """Of a tensor found outside its guarded keys say it; one made here outside inference mode is none, unless it is a view."""
    trace = args[0].trace
    if isinstance(args[0].real, torch.Tensor):
        return boolean(args[0].real.is_inference())
    if torch.is_inference_mode_enabled() or trace.root is not trace:
        raise unsupported(state, "TW101", "Tensor.is_inference")
    return FALSE


@dataclass(frozen=True, slots=True)
class LiesAt:
    """Whether a tensor begins at element `key` of its storage."""

    key: int

    def __call__(self, tensor: torch.Tensor) -> bool:
        return tensor.storage_offset() == self.key


def counting_from_storage(function: Callable[..., Any], default_at: int | None) -> Callable[[State, Args, Kwargs], Value]:
    """What counts elements from where the storage begins: of a tensor found outside its place there is guarded. `default_at`: the position of
    an argument without which it does not."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if isinstance(args[0], TensorValue) and (default_at is None or len(args) > default_at or "storage_offset" in kwargs):
            root = args[0].trace.root
            found = state.by_trace.get(id(root))
            if found is not None and found.source is not None:
                state.guard("answer", found.source, LiesAt(int(root.storage_offset())))
        result = call_torch(state, function, args, kwargs)
        if result is None:
            raise unsupported(state, "TW101", function.__name__)
        return result
    return handler


def length(state: State, args: Args, kwargs: Kwargs) -> Value:
    return call_torch(state, torch.Tensor.size, [args[0], Constant(0)], {})


def iterate(state: State, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], ObjectValue):
        return ListIterator(TupleValue(tuple(state.call(Constant(torch.Tensor.unbind), [args[0], Constant(0)]).items)))
    return ListIterator(TupleValue(tuple(tensor_items(state, args[0]))))


def converted(kind: type):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if (found := known_number(args[0].trace)) is None:
            raise unsupported(state, "TW103", f"{kind.__name__}() of a tensor")
        return Constant(kind(found))
    return handler


CONVERSIONS = {torch.Tensor.__int__: int, torch.Tensor.__float__: float, torch.Tensor.__index__: operator.index}
NEED_VALUES = ("numpy", "__contains__", "__array__")
ROWS = {
    **{getattr(torch.Tensor, name): needs_value(f"Tensor.{name}") for name in NEED_VALUES},
    **{method: converted(kind) for method, kind in CONVERSIONS.items()},
    CustomOpDef.__call__: custom_operator, torch.as_tensor: as_tensor, torch.tensor: new_tensor, torch.Tensor.tolist: to_list, torch.Tensor.item: item,
    torch.Tensor.requires_grad_: requires_grad_, torch.Tensor.__len__: length, torch.Tensor.__iter__: iterate,
    torch.max_pool1d: max_pool1d(torch.max_pool1d), torch.nn.functional.max_pool1d: max_pool1d(torch.nn.functional.max_pool1d),
    torch.Tensor.is_inference: is_inference, torch.is_inference: is_inference,
    torch.Tensor.storage_offset: counting_from_storage(torch.Tensor.storage_offset, None),
    **{function: counting_from_storage(function, 3) for function in (torch.Tensor.as_strided, torch.as_strided, torch.Tensor.as_strided_, torch.as_strided_)},
    **{function: counting_from_storage(function, 4) for function in (torch.Tensor.as_strided_scatter, torch.as_strided_scatter)},
}
