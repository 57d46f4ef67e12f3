"""The door of this room: a Python function and its bound arguments in, `Captured` out."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

from thruway.capture.breaks import unsupported
from thruway.capture.captured import Captured, GraphInput
from thruway.capture.emit import argument_names, emit
from thruway.capture.interpreter import BreakHere, finish_inline, program, resume_generator, run_call, run_top
from thruway.capture.known_calls import KNOWN
from thruway.capture.known_calls.torch_functions import restore_overriding
from thruway.capture.known_calls.torch_modes import restore_devices, restore_modes
from thruway.capture.leaves import guard_kind
from thruway.capture.links import Reconsider, check_links
from thruway.capture.locals import LazyLocals
from thruway.capture.overlap import hangs_on_order
from thruway.capture.resume import DRAWN, Break, emit_break
from thruway.capture.selectable import note_operator, refuse_older_writes
from thruway.capture.state import Frame, Input, Namespace, State
from thruway.capture.values.answers import guard_cells_apart
from thruway.capture.values.base import ArrayValue, SizeValue, TensorValue
from thruway.capture.values.effect import is_shown
from thruway.capture.values.generators import refuse_dropped
from thruway.capture.wrap import cell_value, wrap
from thruway.core.errors import BreakReason, FullGraphError, Unsupported
from thruway.core.settings import Settings
from thruway.frame.guard import GlobalState, GuardSet
from thruway.frame.modes import autocast_devices, present, present_devices, put_back, without_device_mode
from thruway.frame.source import Attr, Cell, Global, Item, Local, Own, Source, is_module_tensor, tell
from thruway.shapes.floats import FloatNode
from thruway.shapes.raising import raises_by_elements
from thruway.shapes.symbolic import bare
from thruway.shapes.trace_tensor import TraceMode, TraceTensor
from thruway.shapes.traits import METADATA_INPLACE, Traits, traits_of

GENERATORS = 0x20 | 0x80 | 0x200     # generator, coroutine, asynchronous generator


def capture(
    function: types.FunctionType,
    arguments: Sequence[Any],
    modes: GlobalState,
    settings: Settings,
    dynamic: Container[tuple[Source, int | None]] = frozenset(),
    compile_function: Callable[[types.FunctionType], Callable[..., Any]] | None = None,
    is_continuation: bool = False,
    hides_compiling: bool = False,
    may_wait: bool = False,
    found_by_code: bool = False,
) -> Captured:
    """Captures one call of `function`. `arguments` are bound, in co_varnames order (*args as a tuple, **kwargs as a dict).

    `dynamic` dimensions, and numbers (None in place of a dimension), become symbolic. At an instruction that cannot be captured, `finish`
    runs it in plain Python and carries on in continuations, each passed through `compile_function`; without that (fullgraph), and where
    the frame's state cannot be rebuilt, Unsupported says that the frame must run eager whole. Nothing that a user could see happens,
    torch's modes included. `is_continuation`: `function` came to `compile_function` itself. `Captured.finish` takes the arguments, the
    function's closure cells, and the graph's outputs. Code that asks whether it is
    being compiled, and then raises, is captured as code that hears that it is not (`hides_compiling`, which then holds for continuations).
    `may_wait`: NotNow may ask for another call. `found_by_code`: the entry is for every function of this code and these globals, so what is
    read through `function`'s own cells is guarded as that of any function found outside.
    """
    if function.__code__.co_flags & GENERATORS:
        raise Unsupported("TW113", f"generators and coroutines as compiled functions are left to Python: {function.__name__}")
    caution: dict[Any, int] = {}
    while True:
        state = State(function, wrap, KNOWN, program, run_call, finish_inline, resume_generator, dynamic, is_continuation=is_continuation,
                      is_function_off=not torch._C._is_torch_function_enabled(),
                      hides_compiling=hides_compiling, caution=caution, may_wait=may_wait, found_by_code=found_by_code,
                      drawn=getattr(function, DRAWN, frozenset()))
        try:
            captured = _capture(state, function, arguments, modes, settings, compile_function)
        except Reconsider as found:
            caution |= {site: caution.get(site, 0) + 1 for site in found.sites}
            continue
        finally:
            state.let_go()
        if captured is not None:
            return captured
        hides_compiling = True


def _capture(
    state: State, function: types.FunctionType, arguments: Sequence[Any], modes: GlobalState, settings: Settings,
    compile_function: Callable[[types.FunctionType], Callable[..., Any]] | None,
) -> Captured | None:
    """One capture; None where the code raises after it heard that it is being compiled."""
    before, devices = present(), present_devices()
    state.devices = list(devices)
    broken = None
    try:
        with unseen_by_saved_tensors_hooks(), without_device_mode(), WriteRecorder(state):
            frame = first_frame(state, function, arguments)
            try:
                result = run_top(state, frame)
            except BreakHere as stop:
                if state.heard_compiling and _raised(stop):
                    return None
                if compile_function is None:
                    raise stop.error from None
                if state.strict[-1] if state.strict else settings.error_on_break:
                    raise FullGraphError(stop.error.reason) from None
                if stop.error.reason.code == "TW107":
                    return _left_to_python(state, function, modes, stop.error.reason)
                broken = Break(stop.frames, stop.index, stop.error.reason, stop.keyword_names)
            restore_modes(state, before)
            restore_devices(state, devices)
            restore_overriding(state)
            if broken is None:
                finish, outputs, single = emit(state, function, result)
                refuse_dropped(state)
            else:
                finish, outputs = emit_break(state, function, broken, compile_function)
                single = False
            check_links(state, outputs)
    finally:
        put_back(before)
    return _captured(state, function, modes, finish, outputs, single, (broken.reason,) if broken else ())


def _raised(stop: BreakHere) -> bool:
    """Whether an error of the code's own is on its way, or being handled."""
    handled = [error for frame in stop.frames for error in frame.handled]
    return stop.error.reason.code == "TW107" or any(error.source is None for error in handled)


def _left_to_python(state: State, function: types.FunctionType, modes: GlobalState, reason: BreakReason) -> Captured:
    """A call whose code raises runs as it stands: its traceback then has the user's frames, and nothing of it was done before."""
    _guard_facts(state)
    return Captured(function.__qualname__, None, (), GuardSet(modes, tuple(state.guards.values())), None, False, tuple(state.kept), (reason,),
                    hides_compiling=state.hides_compiling)


@contextlib.contextmanager
def unseen_by_saved_tensors_hooks() -> Iterator[None]:
    """What autograd saves of trace tensors is none of the user's hooks' business (activation checkpointing counts it)."""
    autograd = torch._C._autograd
    hooks = []
    while (top := autograd._top_saved_tensors_default_hooks(False)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


class WriteRecorder(TraceMode):
    """Notes whose storage the traced operators write."""

    def __init__(self, state: State):
        super().__init__()
        self.state = state
        state.tracing = self
        self.element_facts = state.facts
        self.autocast = autocast_devices()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if self.state.sides:
            refuse_older_writes(self.state, traits_of(func), _statistics_written(func, args), args, kwargs or {})
        if func._name in METADATA_INPLACE and isinstance(args[0], TraceTensor) and args[0]._symbolic:
            self._refuse_shown_sizes(args[0])
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _is_refused(self, root: TraceTensor) -> bool:
        """Whether torch writes it and then raises: an inference tensor, outside inference mode."""
        found = self.state.by_trace.get(id(root))
        real = found.real if found is not None else None
        return isinstance(real, torch.Tensor) and real.is_inference() and not torch.is_inference_mode_enabled()

    def _refuse_shown_sizes(self, trace: TraceTensor) -> None:
        """Sizes that change between calls are read from inputs behind the graph: those must still have them then."""
        if any(owner.known_trace is trace for owner, _ in self.state.symbols.values() if isinstance(owner, TensorValue)):
            raise unsupported(self.state, "TW106", "the sizes of a tensor of symbolic sizes")

    def record(self, op: Any, traits: Traits, args: tuple, kwargs: dict, result: object) -> None:
        if self.state.transforms and torch.Tag.nondeterministic_seeded in op.tags:
            self.state.draws += 1
        if self.state.sides:
            note_operator(self.state, op, traits, args, result)
        self.state.is_hanging |= raises_by_elements(op, getattr(getattr(result, "_meta", None), "dtype", ""))
        for name in (*traits.writes, *_statistics_written(op, args)):
            written = kwargs.get(name) if isinstance(name, str) else args[name] if name < len(args) else None
            for one in written if isinstance(written, list | tuple) else (written,):
                if isinstance(one, TraceTensor):
                    if self.state.effects.steps and is_shown(self.state, one.root):
                        raise unsupported(self.state, "TW106", "a tensor that a call before it looks at")
                    if self._is_refused(one.root):
                        raise unsupported(self.state, "TW106", "an inference tensor outside inference mode")
                    self.state.written.add(id(one.root))
                    self.writes = self.state.writes = self.state.writes + 1
                    if torch.is_grad_enabled():
                        guard_kind(self.state, one)
                    if hangs_on_order(one, (*args, *kwargs.values()), self.state.facts):
                        self.state.is_hanging = True                        # torch refuses many of these when they run
                        self.state.overlap = self.state.overlap or unsupported(self.state, "TW117", "a view", "itself or another operand").reason


def _statistics_written(op: Any, args: tuple) -> tuple[int, ...]:
    """Batch and instance norm write their running statistics in training, which their schemas do not say."""
    return (3, 4) if len(args) > 5 and args[5] is True and _keeps_statistics(op) else ()


@functools.cache
def _keeps_statistics(op: Any) -> bool:
    return [a.name for a in op._schema.arguments[3:5]] == ["running_mean", "running_var"]


def _guard_overlap(state: State) -> BreakReason | None:
    """What is written shares no memory with another input: metadata would not show it. The reason where it does: torch's operators,
    one after the other, then do what eager does."""
    if state.overlap is not None:
        return state.overlap
    for one in state.inputs:
        if isinstance(one.value, TensorValue) and id(one.value.trace.root) in state.written:
            for other in state.inputs:
                if other is not one and isinstance(other.value, TensorValue) and not _guard_apart(state, one.value, other.value):
                    return unsupported(state, "TW117", tell(one.value.source), tell(other.value.source)).reason
    return None


def _guard_apart(state: State, written: TensorValue, other: TensorValue) -> bool:
    if written.real.untyped_storage().data_ptr() == other.real.untyped_storage().data_ptr() and written.real.numel() and other.real.numel():
        return False
    state.guard("no_overlap", written.source, other.source)
    return True


def first_frame(state: State, function: types.FunctionType, arguments: Sequence[Any]) -> Frame:
    """The frame of the compiled call: arguments by Local sources, closure cells by Cell sources."""
    code = function.__code__
    space = Namespace(function.__globals__, Global)
    state.namespaces[id(function.__globals__)] = space
    frame = Frame(code, None, program(code), space)
    frame.locals = LazyLocals(state, {name: (value, Local(name, i)) for i, (name, value) in enumerate(zip(argument_names(code), arguments))})
    if state.found_by_code:
        state.guard("identity", Attr(Own(), "__globals__"), function.__globals__)
    for i, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or ())):
        frame.cells[name] = cell_value(state, cell, Item(Attr(Own(), "__closure__"), i) if state.found_by_code else Cell(name, i))
    return frame


def _guard_facts(state: State) -> None:
    """What was assumed of symbolic sizes, and of cells: that those which are written are no others that are read."""
    guard_cells_apart(state)
    for fact in state.facts.recorded:
        value = next(value for value, _ in state.symbols.values() if value.source is not None)
        state.guard("relation", value.source, (fact.left, fact.operator, fact.right))
    for source in state.facts.fixed:
        state.guard("equal", source, state.number_inputs[source].size.node.hint)
    for source, truths in state.facts.truths.items():
        for one in truths:
            state.guard("answer", source, one)


def _captured(state: State, function: types.FunctionType, modes: GlobalState, finish: Any, outputs: list, single: bool,
              reasons: tuple[BreakReason, ...]) -> Captured:
    graph = state.graph
    if any(id(root) in state.written for root in state.array_roots):
        raise unsupported(state, "TW106", "the memory of an array found outside")
    graph.output(tuple(outputs))
    for node in reversed(list(graph.nodes)):                # what branches chose and nobody read
        if "spare" in node.meta and not node.users:
            graph.erase_node(node)
    for node in state.facts.used:
        node.meta["opaque"] = True
    _guard_facts(state)
    overlap = _guard_overlap(state)
    kept_inputs = []
    for one in state.inputs:
        if one.node.users:
            kept_inputs.append(_graph_input(state, one))
        else:
            graph.erase_node(one.node)
    has_calls = any(node.op not in ("placeholder", "output") for node in graph.nodes)
    # Lazy: it writes its Python code when somebody runs or reads it, and most graphs are compiled instead.
    module = _LazyGraphModule(torch.nn.Module(), graph) if has_calls or outputs else None
    guards = GuardSet(modes, tuple(state.guards.values()))
    return Captured(function.__qualname__, module, tuple(kept_inputs), guards, finish, single, tuple(state.kept), reasons, state.facts.as_known(),
                    state.hides_compiling, overlap, state.fails_behind_write, state.has_warned)


def _graph_input(state: State, one: Input) -> GraphInput:
    value = one.value
    if isinstance(value, ArrayValue):
        return GraphInput(one.node.name, value.source, object)
    if isinstance(value, SizeValue):
        is_data = isinstance(value.size.node, FloatNode)
        return GraphInput(one.node.name, value.source, bare(value.size) if not is_data else int if isinstance(value.size, torch.SymInt) else float)
    meta = value.found_meta
    is_written = id(value.trace.root) in state.written
    is_weight = is_module_tensor(value.source) and not is_written
    return GraphInput(one.node.name, value.source, replace(meta, requires_grad=value.real.requires_grad), is_weight, is_written)
