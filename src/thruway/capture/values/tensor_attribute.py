"""Attributes of tensors: rows for metadata, rows that are operators, methods bound to the tensor."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.leaves import guard_kind
from thruway.capture.state import Inline, State
from thruway.capture.tensors import call_torch, record_result, run_trace
from thruway.capture.values.base import NONE, Constant, MethodValue, TensorValue, Value
from thruway.capture.values.constants import from_python
from thruway.capture.values.errors import raise_missing
from thruway.capture.values.overriding import modes_on
from thruway.capture.values.torch_function import overridden_call
from thruway.capture.wrap import wrap
from thruway.frame.source import Attr, Grad, PlainTensor

METADATA = frozenset(
    "dtype device requires_grad ndim layout is_cuda is_cpu is_meta is_mps is_xpu is_sparse is_sparse_csr is_quantized is_nested is_leaf itemsize "
    "nbytes is_mkldnn is_ipu is_mtia is_vulkan is_maia is_xla is_ort names".split())
OPERATORS = frozenset("T mT H mH real imag data".split())


def tensor_attribute(state: State, value: TensorValue, name: str) -> Value | Inline:
    if state.overrides and modes_on(state) and (answer := _overridden(state, value, name)) is not None:
        return answer
    if name in OF_THE_OBJECT and isinstance(value.source, PlainTensor):
        raise unsupported(state, "TW102", name, "a tensor of a class of its own")
    row = ROWS.get(name)
    if row is not None:
        return row(state, value)
    found = _find(type(value.real) if value.real is not None else torch.Tensor, name)
    if isinstance(found, types.MethodDescriptorType | types.FunctionType | types.WrapperDescriptorType):
        return MethodValue(Constant(found), value)
    if found is None and value.real is not None and name in value.real.__dict__:
        return wrap(state, value.real.__dict__[name], Attr(value.source, name))
    if found is None:
        if value.source is not None:
            state.guard("has_not", value.source, name)
        raise_missing(state, value, name, torch.Tensor if value.real is None else type(value.real))
    raise unsupported(state, "TW102", name, "Tensor")


def _overridden(state: State, value: TensorValue, name: str) -> Value | None:
    """What function modes make of reading the attribute."""
    getter = getattr(_find(torch.Tensor, name), "__get__", None)
    return None if getter is None else overridden_call(state, Constant(getter), getter, [value], {})


OF_THE_OBJECT = frozenset("grad grad_fn is_leaf _base _grad _backward_hooks retains_grad output_nr".split())


def _find(cls: type, name: str) -> Any:
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)


def _metadata(name: str) -> Callable[[State, TensorValue], Value]:
    def row(state: State, value: TensorValue) -> Value:
        return from_python(state, getattr(value.trace, name))
    return row


def is_leaf(state: State, value: TensorValue) -> Value:
    guard_kind(state, value.trace)
    return from_python(state, value.trace.is_leaf)


def _operator(name: str) -> Callable[[State, TensorValue], Value]:
    getter = getattr(torch.Tensor, name).__get__

    def row(state: State, value: TensorValue) -> Value:
        result = run_trace(state, getter, [value.trace], {})
        return record_result(state, getattr, [value, Constant(name)], {}, result, False)
    return row


def shape(state: State, value: TensorValue) -> Value:
    return call_torch(state, torch.Tensor.size, [value], {})


def _grad(state: State, value: TensorValue) -> Value:
    if value.real is None:
        return NONE
    return wrap(state, value.real.grad, Grad(value.source))


def _grad_fn(state: State, value: TensorValue) -> Value:
    guard_kind(state, value.trace)
    if value.trace.grad_fn is None:
        return NONE
    raise unsupported(state, "TW102", "grad_fn", "Tensor")


def _class(state: State, value: TensorValue) -> Value:
    return state.class_of(torch.Tensor if value.real is None else type(value.real), value.source)


ROWS: dict[str, Callable[[State, TensorValue], Value]] = {
    **{name: _metadata(name) for name in METADATA if hasattr(torch.Tensor, name)},
    **{name: _operator(name) for name in OPERATORS},
    "shape": shape, "is_leaf": is_leaf, "grad": _grad, "grad_fn": _grad_fn, "__class__": _class,
}
