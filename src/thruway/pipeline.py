"""The page to read first: what happens at a call that no entry answers, as straight lists of named stages.

`compile_callable` makes the object that users call. At a miss it runs `compile_frame`: capture → backend → entry. The backend
"thruway" is `compile_graph`: retrace → graph passes → lower → plan → generate → compile → load. Whatever fails on the way is
recorded in the journal and the call runs eager; only fullgraph=True turns a reason into an error.
"""

from __future__ import annotations

import os
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.fx import GraphModule

from thruway import native
from thruway.capture.capture import capture
from thruway.capture.captured import Captured
from thruway.core.ambient import settings as ambient
from thruway.core.errors import BreakReason, CompilerBug, FullGraphError, Unsupported
from thruway.core.journal import Journal
from thruway.core.options import CompileOptions
from thruway.core.settings import Settings
from thruway.frame.entries import Entries, Record, explain_miss, make_entry
from thruway.frame.guard import Guard, GuardSet
from thruway.frame.source import Local
from thruway.frame.state import is_outside_torch_transforms, read_state
from thruway.native.fallback import bind_arguments
from thruway.graph_compiler import GraphCompiler
from thruway.shapes.trace_tensor import meta_of

ENTRY_BYTES = 64 << 10             # what an entry holds besides guards and kernels, roughly

journal = Journal()
_functions: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
_graphs = GraphCompiler(journal)


def compile_callable(function: Callable[..., Any], options: CompileOptions) -> Any:
    """Something with `function`'s signature that compiles at its first call. A bound method stays bound to the same object."""
    if isinstance(function, MethodType):
        return compile_callable(function.__func__, options).__get__(function.__self__)
    return CompiledFunction(function, options).compiled


def compile_graph(graph: GraphModule, example_inputs: Sequence[torch.Tensor], options: CompileOptions) -> Callable[..., Any]:
    """`graph`, as another capture made it, behind thruway's compiler; run by torch's operators where thruway cannot."""
    settings = options.settings(ambient.current())
    metas = [meta_of(each) if isinstance(each, torch.Tensor) else each for each in example_inputs]
    weights = [isinstance(each, torch.nn.Parameter) for each in example_inputs]
    name = graph.__class__.__name__
    try:
        return _graphs.compile(graph, metas, weights, name, settings)
    except Unsupported as failure:
        journal.add("eager", name, reason=failure.reason)
    return graph


def reset() -> None:
    """Forgets every entry of every compiled function, and the journal."""
    for each in list(_functions):
        each.entries.clear()
    journal.clear()


class CompiledFunction:
    """The compiler's side of one compiled function: its entries, and what to do at a miss. The native object calls `miss`."""

    def __init__(self, function: FunctionType, options: CompileOptions):
        self.function, self.options = function, options
        self.name = function.__qualname__
        self.lock = threading.RLock()
        self.compiled = native.core().Compiled(function, self.miss)
        self.entries = Entries(self.compiled, ambient.current().entry_limit_mb << 20)
        _functions.add(self)

    def miss(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The entry for this call, or None: run the function."""
        if not is_outside_torch_transforms():
            return None
        seen = len(self.entries)
        with self.lock:
            if len(self.entries) != seen:
                for record in self.entries:                     # another thread compiled while this one waited
                    if explain_miss(record, self.function, args, kwargs) is None:
                        return record.entry
            self._note_recompile(args, kwargs)
            record = self.compile_frame(args, kwargs)
            if record is not None:
                self.entries.add(record)
            return record.entry if record is not None else None

    def compile_frame(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Record | None:
        settings = self.options.settings(ambient.current())
        try:
            with journal.time("capture", self.name):
                captured = self._capture(args, kwargs, settings)
            journal.add("capture", self.name)
            self._note_captured(captured)
            graph = self._backend(captured, settings)
            with journal.time("guards", self.name):
                return self._entry(captured, graph)
        except Unsupported as failure:
            return self._leave_eager(failure.reason, args, kwargs)
        except FullGraphError:
            raise
        except Exception as failure:                            # ours: the user's code has not run yet
            journal.add("bug", self.name, _last_place(failure))
            return self._leave_eager(BreakReason("TW900", f"a fault of thruway itself: {_last_place(failure)}"), args, kwargs)

    def _capture(self, args: tuple[Any, ...], kwargs: dict[str, Any], settings: Settings) -> Captured:
        """One capture; continuations after a break become compiled functions of their own."""
        arguments = bind_arguments(self.function, args, kwargs)
        if arguments is None:
            raise Unsupported("TW115", "the arguments do not fit the signature")
        rest = None if self.options.fullgraph else lambda function: compile_callable(function, self.options)
        return capture(self.function, arguments, read_state(), settings, compile_function=rest)

    def _leave_eager(self, reason: BreakReason, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Record | None:
        """An entry that runs the function itself for arguments of these types, so that a hopeless capture is not tried at every call."""
        if self.options.fullgraph:
            raise FullGraphError(reason)
        journal.add("eager", self.name, reason=reason, where=reason.where)
        arguments = bind_arguments(self.function, args, kwargs)
        if arguments is None:
            return None
        names = self.function.__code__.co_varnames
        guards = tuple(Guard("type", Local(names[i], i), type(value)) for i, value in enumerate(arguments))
        return make_entry(self.name, GuardSet(read_state(), guards), (), None)

    def _note_recompile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for record in self.entries:
            why = explain_miss(record, self.function, args, kwargs)
            journal.add("recompile", self.name, str(why), where=why.guard.why if why and why.guard else None)
            return

    def _note_captured(self, captured: Captured) -> None:
        for reason in captured.break_reasons:
            if self.options.fullgraph:
                raise FullGraphError(reason)
            journal.add("graph_break", self.name, reason=reason, where=reason.where)
        journal.offer("captured", self.name, lambda: str(captured.graph.graph) if captured.graph else "(no graph)")
        journal.offer("guards", self.name, lambda: "\n".join(map(str, captured.guards.guards)))

    def _backend(self, captured: Captured, settings: Settings) -> Callable[..., Any] | None:
        """What runs the captured graph, or None where there is none."""
        if captured.graph is None:
            return None
        operators = tuple(str(node.target) for node in captured.graph.graph.nodes if node.op.startswith("call"))
        if self.options.backend == "thruway" and not _wants_gradient(captured):
            graph = self._thruway(captured, settings)
        elif callable(self.options.backend):
            graph = _flat(self.options.backend(captured.graph, [_example(each) for each in captured.inputs]))
        else:
            graph = captured.graph.forward
        journal.add("graph", self.name, items=operators)
        return graph

    def _thruway(self, captured: Captured, settings: Settings) -> Callable[..., Any]:
        metas, weights = [each.meta for each in captured.inputs], [each.weight for each in captured.inputs]
        try:
            return _graphs.compile(captured.graph, metas, weights, self.name, settings, captured.guards.state.default_dtype)
        except Unsupported as failure:
            journal.add("eager", self.name, "the captured graph runs by torch's operators", reason=failure.reason)
        except CompilerBug as failure:
            journal.add("bug", self.name, str(failure))
        return captured.graph.forward

    def _entry(self, captured: Captured, graph: Callable[..., Any] | None) -> Record:
        return make_entry(
            captured.name, captured.guards, [each.source for each in captured.inputs], graph, captured.finish,
            single_output=captured.single_output, kept=captured.kept, nbytes=ENTRY_BYTES,
        )


def _last_place(failure: Exception) -> str:
    """The error and the line of ours that raised it."""
    last = traceback.extract_tb(failure.__traceback__)[-1]
    return f"{type(failure).__name__}: {failure} ({os.path.basename(last.filename)}:{last.lineno})"


def _wants_gradient(captured: Captured) -> bool:
    return captured.guards.state.grad_enabled and any(getattr(each.meta, "requires_grad", False) for each in captured.inputs)


def _flat(graph: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """A backend's callable, giving a tuple as entries want it."""
    def call(*inputs: Any) -> tuple[Any, ...]:
        return tuple(graph(*inputs))

    return call
