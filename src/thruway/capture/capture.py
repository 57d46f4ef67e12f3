"""The door of this room: a Python function and its bound arguments in, `Captured` out."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from thruway.capture.captured import Captured, GraphInput
from thruway.capture.emit import argument_names, emit
from thruway.capture.interpreter import finish_inline, program, resume_generator, run, run_call
from thruway.capture.known_calls import KNOWN
from thruway.capture.breaks import unsupported
from thruway.capture.state import Frame, Input, Namespace, State, UserRaise
from thruway.capture.values.base import TensorValue, Value
from thruway.capture.wrap import cell_value, wrap
from thruway.core.errors import Unsupported
from thruway.core.settings import Settings
from thruway.frame.guard import GlobalState, GuardSet
from thruway.frame.source import Attr, Cell, DictAttr, Global, Item, Local, Source
from thruway.shapes.trace_tensor import TraceMode

GENERATORS = 0x20 | 0x80 | 0x200     # generator, coroutine, asynchronous generator


def capture(
    function: types.FunctionType,
    arguments: Sequence[Any],
    modes: GlobalState,
    settings: Settings,
    dynamic: Iterable[tuple[Source, int]] = (),
    compile_function: Callable[[types.FunctionType], Callable[..., Any]] | None = None,
) -> Captured:
    """Captures one call of `function`. `arguments` are bound, in co_varnames order (*args as a tuple, **kwargs as a dict).

    `dynamic` dimensions become symbolic. Unsupported where the frame must run eager whole. Nothing that a user could see happens,
    torch's modes included. `Captured.finish` takes the arguments, the function's closure cells, and the graph's outputs.
    """
    if function.__code__.co_flags & GENERATORS:
        raise Unsupported("TW113", f"generators and coroutines as compiled functions are left to Python: {function.__name__}")
    state = State(function, wrap, KNOWN, program, run_call, finish_inline, resume_generator, frozenset(dynamic))
    grad = torch.is_grad_enabled()
    try:
        with TraceMode():
            result = _run_top(state, first_frame(state, function, arguments))
    finally:
        torch._C._set_grad_enabled(grad)
    finish, outputs, single = emit(state, function, result)
    return _captured(state, function, modes, finish, outputs, single)


def first_frame(state: State, function: types.FunctionType, arguments: Sequence[Any]) -> Frame:
    """The frame of the compiled call: arguments by Local sources, closure cells by Cell sources."""
    code = function.__code__
    space = Namespace(function.__globals__, Global)
    state.namespaces[id(function.__globals__)] = space
    frame = Frame(code, None, program(code), space)
    frame.locals = LazyLocals(state, {name: (value, Local(name, i)) for i, (name, value) in enumerate(zip(argument_names(code), arguments))})
    for i, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or ())):
        frame.cells[name] = cell_value(state, cell, Cell(name, i))
    return frame


class LazyLocals(dict):
    """Arguments become Values, guarded, when they are first read: an argument that nobody reads guards nothing."""

    def __init__(self, state: State, pending: dict[str, tuple[Any, Source]]):
        super().__init__()
        self.state, self.pending = state, pending

    def get(self, name: str, default: Value | None = None) -> Value | None:
        if name in self.pending and not dict.__contains__(self, name):
            self[name] = wrap(self.state, *self.pending.pop(name))
        return super().get(name, default)

    def pop(self, name: str, default: Value | None = None) -> Value | None:
        found = self.get(name, default)
        super().pop(name, None)
        return found

    def __setitem__(self, name: str, value: Value) -> None:
        self.pending.pop(name, None)
        super().__setitem__(name, value)

    def items(self):
        for name in tuple(self.pending):
            self.get(name)
        return super().items()


def _run_top(state: State, frame: Frame) -> Value:
    try:
        return run(state, frame)
    except UserRaise as raised:
        cls = getattr(raised.value, "cls", None)
        raise unsupported(state, "TW107", f"{cls.value.__name__ if cls else 'an exception'}{_arguments(raised.value)}") from None


def _arguments(error: Value) -> str:
    return ": " + ", ".join(str(getattr(a, "value", "…")) for a in getattr(error, "new_args", ())) if getattr(error, "new_args", ()) else ""


def _captured(state: State, function: types.FunctionType, modes: GlobalState, finish: Any, outputs: list, single: bool) -> Captured:
    graph = state.graph
    graph.output(tuple(outputs))
    kept_inputs = []
    written = _written_inputs(state)
    for one in state.inputs:
        if one.node.users:
            kept_inputs.append(_graph_input(one, written))
        else:
            graph.erase_node(one.node)
    has_calls = any(node.op not in ("placeholder", "output") for node in graph.nodes)
    module = torch.fx.GraphModule(torch.nn.Module(), graph) if has_calls or outputs else None
    guards = GuardSet(modes, tuple(state.guards.values()))
    return Captured(function.__qualname__, module, tuple(kept_inputs), guards, finish, single, tuple(state.kept))


def _graph_input(one: Input, written: set[Any]) -> GraphInput:
    value: TensorValue = one.value
    meta = value.trace.meta
    is_weight = is_module_tensor(value.source) and one.node not in written
    return GraphInput(one.node.name, value.source, replace(meta, requires_grad=value.real.requires_grad), is_weight)


def is_module_tensor(source: Source) -> bool:
    """Whether the tensor is reached through a module's `_parameters` or `_buffers`."""
    return isinstance(source, Item) and isinstance(source.base, DictAttr | Attr) and source.base.name in ("_parameters", "_buffers")


def _written_inputs(state: State) -> set[Any]:
    """Placeholders that an in-place call writes: the method or function ends in an underscore, is an in-place operator or setitem, or has out=."""
    written = set()
    views: dict[Any, Any] = {}
    for node in state.graph.nodes:
        root = node
        trace = node.meta.get("example_value")
        if trace is not None and hasattr(trace, "root"):
            views.setdefault(id(trace.root), root)
    roots = {id(one.value.trace.root): one.node for one in state.inputs}
    for node in state.graph.nodes:
        for target in _write_targets(node):
            trace = target.meta.get("example_value")
            root = roots.get(id(getattr(trace, "root", None)))
            if root is not None:
                written.add(root)
    return written


def _write_targets(node: torch.fx.Node) -> list[torch.fx.Node]:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    targets = []
    in_place = name.endswith("_") and not name.endswith("__") or name in IN_PLACE_OPERATORS or node.kwargs.get("inplace")
    if node.op in ("call_function", "call_method") and in_place and node.args:
        targets.append(node.args[0])
    targets += node.all_input_nodes if name in WRITES_ARGUMENTS else []
    if isinstance(node.kwargs.get("out"), torch.fx.Node):
        targets.append(node.kwargs["out"])
    return [t for t in targets if isinstance(t, torch.fx.Node)]


IN_PLACE_OPERATORS = frozenset("iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor setitem".split())
WRITES_ARGUMENTS = frozenset({"batch_norm"})
