"""`apply` of a custom torch.autograd.Function. Where no gradient is wanted its forward is captured like any other code. Where one is, the
call stays whole in the graph, so that torch's autograd meets the backward: capture only looks at the forward for metadata and effects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from thruway.capture.breaks import unsupported
from thruway.capture.effects import Effects
from thruway.capture.known_calls.torch_state import set_grad_enabled
from thruway.capture.state import State, UserRaise
from thruway.capture.tensors import add_node, call_torch, result_value, run_trace
from thruway.capture.values.attribute import get_attribute
from thruway.capture.values.base import FALSE, Constant, DictValue, ObjectValue, SizeValue, TensorValue, TupleValue, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.compare import boolean
from thruway.capture.values.constants import from_python
from thruway.shapes.trace_tensor import TraceTensor, from_meta

Args = list[Value]
Kwargs = dict[str, Value]


def apply(state: State, args: Args, kwargs: Kwargs) -> Value:
    cls, *inputs = args
    has_setup = cls.value.setup_context is not torch.autograd.Function.setup_context
    if has_setup:
        inputs = _with_defaults(state, cls, inputs, kwargs)
    elif kwargs:
        raise unsupported(state, "TW101", f"{cls.value.__qualname__}.apply with keywords")
    tensors = [one for one in inputs if isinstance(one, TensorValue)]
    if state.transforms or torch.is_grad_enabled() and any(one.trace.requires_grad for one in tensors):
        return _whole(state, cls, inputs, has_setup)
    result, ctx = _forward(state, cls, inputs, has_setup)
    dirty = _noted(ctx, "dirty_tensors")
    outputs = tuple(_given_back(state, cls, one, inputs, dirty) for one in _as_tuple(result))
    return TupleValue(outputs) if isinstance(result, TupleValue) else outputs[0]


def _with_defaults(state: State, cls: Constant, inputs: Args, kwargs: Kwargs) -> Args:
    bound = inspect.signature(cls.value.forward).bind(*inputs, **kwargs)
    bound.apply_defaults()
    return [one if isinstance(one, Value) else from_python(state, one) for one in bound.args]


def _as_tuple(result: Value) -> tuple[Value, ...]:
    return result.items if isinstance(result, TupleValue) and result.cls is tuple else (result,)


def _forward(state: State, cls: Constant, inputs: Args, has_setup: bool) -> tuple[Value, ObjectValue]:
    """The forward without gradients, as torch runs it, and its context."""
    ctx = ObjectValue(state.class_of(FunctionCtx, None))
    needs = tuple(boolean(isinstance(one, TensorValue) and one.trace.requires_grad) for one in inputs)
    ctx.attributes = DictValue({"needs_input_grad": (Constant("needs_input_grad"), TupleValue(needs))})
    before = torch.is_grad_enabled()
    set_grad_enabled(state, [FALSE], {})
    try:
        forward = run_inline(state, get_attribute(state, cls, "forward"))
        result = state.call(forward, inputs if has_setup else [ctx, *inputs])
        if has_setup:
            state.call(run_inline(state, get_attribute(state, cls, "setup_context")), [ctx, TupleValue(tuple(inputs)), result])
    except UserRaise:
        set_grad_enabled(state, [boolean(before)], {})
        raise
    set_grad_enabled(state, [boolean(before)], {})
    if ctx.exposed or not all(isinstance(one, TensorValue | Constant) for one in _as_tuple(result)):
        raise unsupported(state, "TW101", f"{cls.value.__qualname__}.apply")
    return result, ctx


def _noted(ctx: ObjectValue, name: str) -> tuple[Value, ...]:
    """Tensors that the forward marked on its context."""
    found = ctx.attributes.items.get(name)
    return found[1].items if found is not None else ()


def _given_back(state: State, cls: Constant, output: Value, inputs: Args, dirty: tuple[Value, ...]) -> Value:
    """An input that the forward returns comes out as an alias of it, unless it was written."""
    if not isinstance(output, TensorValue) or output in dirty:
        return output
    if output in inputs:
        return call_torch(state, torch.Tensor.detach, [output], {}) if output.trace.requires_grad \
            else call_torch(state, torch.Tensor.view_as, [output, output], {})
    if output.source is not None:
        raise unsupported(state, "TW101", f"{cls.value.__qualname__}.apply, which returns a tensor of its own")
    return output


def _whole(state: State, cls: Constant, inputs: Args, has_setup: bool) -> Value:
    """The call as one node."""
    name = f"{cls.value.__qualname__}.apply"
    if not all(isinstance(one, TensorValue | SizeValue) or isinstance(one, Constant) and _is_plain(one.value) for one in inputs):
        raise unsupported(state, "TW101", f"{name} with a container")
    result, ctx = looked_at(state, name, lambda: _forward(state, cls, inputs, has_setup))
    if _noted(ctx, "dirty_tensors"):
        raise unsupported(state, "TW101", f"{name}, which writes its inputs")
    constant = _noted(ctx, "non_differentiable")
    traces = tuple(_output_trace(state, one, inputs, one in constant) if isinstance(one, TensorValue) else one.value for one in _as_tuple(result))
    node = add_node(state, _applier(cls.value), inputs, {})
    return result_value(state, node, traces if isinstance(result, TupleValue) else traces[0])


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.device, torch.memory_format, torch.layout))


def looked_at(state: State, name: str, run: Callable[[], Any]) -> Any:
    """What `run` gives, whose nodes are taken back. Unsupported where it has effects, or writes tensors that others hold."""
    effects: Effects = state.effects
    mark, last, known, written = effects.mark(), state.graph._root._prev, set(state.by_trace), set(state.written)
    result = run()
    if len(effects.steps) > mark[0]:
        raise unsupported(state, "TW101", f"{name}, which has effects")
    if (state.written - written) & known:
        raise unsupported(state, "TW101", f"{name}, which writes tensors")
    effects.rollback(mark)
    while state.graph._root._prev is not last and state.graph._root._prev.op != "placeholder":
        state.graph.erase_node(state.graph._root._prev)
    return result


def _output_trace(state: State, output: TensorValue, inputs: Args, is_constant: bool) -> TraceTensor:
    """Metadata of an output of the whole call: part of autograd's graph, unless the forward marked it as not differentiable."""
    trace = output.trace
    differentiable = not is_constant and not state.transforms and (trace.is_floating_point() or trace.is_complex())
    if output in inputs:
        return run_trace(state, torch.Tensor.view_as if differentiable else torch.Tensor.detach, [trace, trace] if differentiable else [trace], {})
    made = from_meta(replace(trace.meta, requires_grad=differentiable), None, state.facts)
    if differentiable:
        with torch.enable_grad():
            made = made.view_as(made)
    made.root = made if trace.root is trace else trace.root
    return made


def _applier(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    def applied(*args: Any) -> Any:
        return cls.apply(*args)

    applied.__name__ = f"{cls.__name__}_apply"
    return applied


_APPLY = inspect.getattr_static(torch.autograd.Function, "apply")
ROWS = {getattr(_APPLY, "__func__", _APPLY): apply}
