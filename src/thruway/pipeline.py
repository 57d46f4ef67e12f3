"""The page to read first: what happens at a call that no entry answers, as straight lists of named stages.

`compile_callable` makes the object that users call. At a miss it runs `compile_frame`: capture → backend → entry. The backend
"thruway" is `compile_graph`: retrace → graph passes → lower → plan → generate → compile → load. Whatever fails on the way, or later
in a run, is recorded in the journal and answered by torch's operators or by the function itself; only fullgraph=True turns a reason
into an error, and only a backend of the user's own may raise.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from thruway import native
from thruway.capture.capture import capture
from thruway.capture.breaks import CATALOGUE
from thruway.capture.captured import Captured
from thruway.capture.conditional import is_raise_of_side
from thruway.core.ambient import settings as ambient
from thruway.core.collector import collector_paused
from thruway.core.errors import BackendError, BreakReason, CompilerBug, FullGraphError, NotNow, RecompileError, Unsupported
from thruway.core.journal import Journal
from thruway.core.kept_warnings import silent
from thruway.core.options import CompileOptions
from thruway.core.settings import Settings
from thruway.frame.changes import Change, Dynamic, changes
from thruway.frame import hook
from thruway.frame.entries import Entries, Miss, Patience, Record, explain_bound, explain_miss, make_entry
from thruway.frame.guard import Guard, GuardSet
from thruway.frame.modes import SETTERS, kept_modes, sets_modes, without_device_mode
from thruway.frame.show_guards import show_guards
from thruway.frame.source import Local
from thruway.frame.state import is_outside_torch_transforms, read_state
from thruway.frame.worth import is_leaf_of_torch, is_step_of_autograd, left_alone, reaches_tensors
from thruway.graph_compiler import GraphCompiler, note_unrecorded
from thruway.native.fallback import bind_arguments
from thruway.runtime.measure import Comparison, Verdict, is_comparable
from thruway.runtime.plain import calls_in, name_of, plain_region
from thruway.shapes.refuse import NO_RULE
from thruway.shapes.symbolic import Facts, is_symbolic
from thruway.shapes.trace_tensor import meta_of

ENTRY_BYTES = 64 << 10             # what an entry holds besides guards and kernels, roughly
WAITS = 4                          # calls that run as they are because a later one can be captured better
GPU_WARM_CALLS = 4                 # until a CUDA graph is recorded
CPU_WARM_CALLS = 2                 # until weights are packed
RAISES_IN_EAGER = frozenset({"TW107", "TW112", "TW302"})     # reasons that are errors of the user's own: running the function brings them up

UNREAD_LIST, LENGTHS = "TW119", 4
DTYPES = frozenset({torch.set_default_dtype})       # the compiler assumes one default dtype for a graph

journal = Journal()
_functions: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
graphs = GraphCompiler(journal)


def compile_callable(function: Callable[..., Any], options: CompileOptions) -> Any:
    """Something with `function`'s signature that compiles at its first call. A bound method stays bound to the same object."""
    if isinstance(function, MethodType):
        return compile_callable(function.__func__, options).__get__(function.__self__)
    return CompiledFunction(function, options).compiled


def compile_graph(graph: GraphModule, example_inputs: Sequence[torch.Tensor], options: CompileOptions) -> Callable[..., Any]:
    """`graph`, as another capture made it, behind thruway's compiler; run by torch's operators where thruway cannot."""
    settings = options.settings(ambient.current())
    name = options.name or graph.__class__.__name__
    journal.add("graph", name, items=tuple(name_of(node) for node in calls_in(graph.graph)))
    if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs):
        journal.add("eager", name, reason=BreakReason("TW804", "gradients are wanted: the graph runs by torch's operators"))
        return graph
    with collector_paused():
        compiled = _compile_or_none(
            graph, name, lambda: [meta_of(each) if isinstance(each, torch.Tensor) else each for each in example_inputs],
            [isinstance(each, torch.nn.Parameter) for each in example_inputs], settings, str(torch.get_default_dtype()).removeprefix("torch."), options.mode,
        )
    return graph if compiled is None else _or_graph(compiled, graph)


def reset() -> None:
    """Forgets every entry of every compiled function, and the journal."""
    for each in list(_functions):
        each.entries.clear()
    below.clear()
    journal.clear()


def follow_stance() -> None:
    """Tells every compiled function whether it is to run eager."""
    _all_eager(ambient.current().stance == "force_eager")


@contextlib.contextmanager
def all_eager() -> Iterator[None]:
    """Every compiled function runs eager meanwhile."""
    _all_eager(True)
    try:
        yield
    finally:
        follow_stance()


def _all_eager(flag: bool) -> None:
    for each in list(_functions):
        each.compiled.eager = flag
    hook.switch_off(flag)


class CompiledFunction:
    """The compiler's side of one compiled function: its entries, and what to do at a miss. The native object calls `miss`."""

    def __init__(self, function: FunctionType, options: CompileOptions, family: Continuations | None = None):
        self.function, self.options = function, options
        self.is_continuation, self.continuations = family is not None, family or Continuations(options)
        self.name = options.name or function.__qualname__
        self.lock = threading.RLock()
        self.told_modes = self.is_called = False
        self.waits = self.region = 0                             # region: of the frames that its entries answer, where they stand on code
        self.dynamic: set[Change] = set()                        # what changed between calls and is kept symbolic since
        self.compiled = native.core().Compiled(function, self.miss)
        self.entries, self.patience = Entries(self.compiled, ambient.current().entry_limit_mb << 20), Patience()
        self.compiled.eager = ambient.current().stance == "force_eager"
        _functions.add(self)

    def miss(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The entry for this call, or None: run the function."""
        if not is_outside_torch_transforms():
            self._note_modes()
            return None
        arguments = bind_arguments(self.function, args, kwargs)
        if arguments is None:
            return None                                          # the function itself says what is wrong with them
        if (stance := ambient.current().stance) != "default":
            return self._decline(stance, args, kwargs)
        with self.lock:
            if not self._is_worth_a_capture(args, kwargs):       # first, since a call that runs eager should not wait for a look at each entry
                return None
            for record in self.entries:                          # another thread compiled since this one looked
                if explain_miss(record, self.function, args, kwargs) is None:
                    return record.entry
            if not self.continuations.may_capture():
                return None
            self._note_recompile(args, kwargs)
            self._note_changes(arguments)
            try:
                with collector_paused(), torch.autograd.profiler.record_function("thruway: compile"):
                    record = self.compile_frame(arguments)
            except NotNow as why:
                self.waits += 1
                journal.add("postponed", self.name, str(why))
                return None
            except FullGraphError as refused:
                refusal = refused
            else:
                self.entries.add(record)
                self._await_first_call()
                return record.entry
        if refusal.reason.code in RAISES_IN_EAGER:
            self.function(*args, **kwargs)
        raise refusal.with_traceback(None)                       # it speaks of the user's line, not of the compiler's

    def _is_worth_a_capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Not where ever new entries answer one call each, unless the user wants no call to run eager."""
        if self._is_strict(ambient.current()) or self.patience.is_over(self.entries):
            return True
        if self.patience.misses == 1:
            why = next(filter(None, (explain_miss(record, self.function, args, kwargs) for record in self.entries)))
            where = why.guard.why if why.guard else None
            journal.add("eager", self.name, reason=BreakReason("TW812", f"calls keep missing by {why}", why.hint, where), where=where)
        return False

    def _note_modes(self) -> None:
        """Says once why calls run eager below modes of the user's own or inside torch's transforms."""
        if not self.told_modes:
            self.told_modes = True
            journal.add("eager", self.name, reason=BreakReason("TW118", *CATALOGUE["TW118"]))

    def _await_first_call(self) -> None:
        """At the first miss: the journal hears when the call is over."""
        if not self.is_called and not self.is_continuation:
            self.is_called = True
            self.compiled.after = functools.partial(journal.add, "called", self.name)

    def _decline(self, stance: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """No entry answers, and the user wants nothing compiled now."""
        if stance == "fail_on_recompile":
            why = next((explain_miss(record, self.function, args, kwargs) for record in self.entries), "nothing is compiled yet")
            raise RecompileError(f"{self.name} would be compiled, and the stance is {stance!r}: {why}")

    def compile_frame(self, arguments: tuple[Any, ...]) -> Record:
        if self.options.dynamic or (self.dynamic and self.options.dynamic is None):
            try:
                return self._compile_frame(arguments, Dynamic(frozenset(self.dynamic), bool(self.options.dynamic)))
            except _TooDynamic as failure:
                journal.add("static", self.name, str(failure))
        return self._compile_frame(arguments, Dynamic())

    def _compile_frame(self, arguments: tuple[Any, ...], dynamic: Dynamic) -> Record:
        settings = self.options.settings(ambient.current())
        try:
            with journal.time("capture", self.name):
                captured = self._capture(arguments, settings, dynamic)
            journal.add("capture", self.name)
            self._note_captured(captured)
            with without_device_mode():
                graph = self._backend(captured, arguments, settings)
            return self._checked_entry(captured, graph, arguments)
        except Unsupported as failure:
            return self._leave_eager(failure.reason, arguments)
        except (FullGraphError, BackendError, NotNow, _TooDynamic):
            raise
        except Exception as failure:                             # ours: the user's code has not run yet
            return self._leave_eager(_fault(self.name, failure), arguments)

    def _capture(self, arguments: tuple[Any, ...], settings: Settings, dynamic: Dynamic) -> Captured:
        """One capture; continuations after a break become compiled functions of their own."""
        settings = replace(settings, error_on_break=self._is_strict(settings))
        try:
            captured = capture(self.function, arguments, read_state(), settings, dynamic, self.continuations, self.is_continuation,
                               self.continuations.hides_compiling, self.waits < WAITS, bool(self.region))
            self.continuations.hides_compiling |= captured.hides_compiling
        except Unsupported as failure:
            if dynamic and failure.reason.code == NO_RULE:
                raise _TooDynamic(failure.reason.what) from failure
            raise
        if dynamic and any(reason.code == NO_RULE or self._may_read_list(reason) for reason in captured.break_reasons):
            raise _TooDynamic(captured.break_reasons[0].what)
        return captured

    def _is_strict(self, settings: Settings) -> bool:
        return self.options.fullgraph or settings.error_on_break

    def _leave_eager(self, reason: BreakReason, arguments: tuple[Any, ...]) -> Record:
        """An entry that runs the function itself for arguments of these types, so that a hopeless capture is not tried at every call."""
        if self._is_strict(ambient.current()):
            raise FullGraphError(reason)
        journal.add("eager", self.name, reason=reason, where=reason.where)
        names = self.function.__code__.co_varnames
        guards = tuple(Guard("type", Local(names[i], i), type(value)) for i, value in enumerate(arguments))
        hooked = hook.OFF if reason.code in RAISES_IN_EAGER else self.continuations.region()
        if hooked > 0:
            hook.skip(self.function.__code__)                    # the hook need not try what was refused here
        return make_entry(self.name, GuardSet(read_state(), guards), (), None, hooked=hooked)

    def _note_recompile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for record in self.entries:
            self._add_recompile(explain_miss(record, self.function, args, kwargs))
            return

    def _add_recompile(self, why: Miss | None) -> None:
        detail = f"{why}; {why.hint}" if why else "another entry would do"
        journal.add("recompile", self.name, detail, where=why.guard.why if why and why.guard else None)

    def _may_read_list(self, reason: BreakReason) -> bool:
        """Whether a list is read after all, one entry for each length: not in a loop, where it has ever new ones."""
        return reason.code == UNREAD_LIST and len(self.entries) < LENGTHS

    def _note_changes(self, arguments: tuple[Any, ...]) -> None:
        for record in self.entries:
            if found := changes(record, self.function, arguments):
                self.dynamic |= found
                return

    def _note_captured(self, captured: Captured) -> None:
        for reason in captured.break_reasons:
            journal.add("graph_break" if captured.finish else "eager", self.name, reason=reason, where=reason.where)
        if captured.finish is not None:
            journal.add("effects", self.name)
        journal.offer("captured", self.name, lambda: str(captured.graph.graph) if captured.graph else "(no graph)")
        journal.offer("guards", self.name, lambda: show_guards(captured.guards))

    def _backend(self, captured: Captured, arguments: tuple[Any, ...], settings: Settings) -> Callable[..., Any] | None:
        """What runs the captured graph, or None where there is none."""
        if captured.graph is None:
            return None
        if callable(self.options.backend):
            graph = self._by_callable(self.options.backend, captured, arguments)
        else:
            graph = None
            if captured.overlap:
                journal.add("eager", self.name, "the captured graph runs by torch's operators", reason=captured.overlap)
            elif self.options.backend == "thruway" and wants_gradient(captured):
                note_unrecorded(journal, self.name, [each.meta for each in captured.inputs], "gradients are wanted, so torch's operators run the graph")
            elif self.options.backend == "thruway" and not sets_modes(captured.graph.graph, DTYPES):
                graph = self._thruway(captured, settings)
                if graph is None and any(is_symbolic(each.meta) for each in captured.inputs):
                    raise _TooDynamic("the compiler wants fixed sizes for this graph")
            put_back = captured.written if captured.fails_behind_write and not graph else ()
            plain = plain_region(captured.graph.graph, captured.run if graph else captured.forward, put_back)
            if sets_modes(captured.graph.graph, SETTERS):
                plain = _keeping_modes(plain)
            if captured.has_warned:
                plain = silent(plain)
            graph = _compared(graph, plain, captured, settings) if graph else plain
        journal.add("graph", self.name, items=tuple(name_of(node) for node in calls_in(captured.graph.graph) if node.target not in SETTERS))
        return graph

    def _thruway(self, captured: Captured, settings: Settings) -> Callable[..., Any] | None:
        metas, weights = [each.meta for each in captured.inputs], [each.weight for each in captured.inputs]
        state = captured.guards.state
        return _compile_or_none(captured.graph, self.name, lambda: metas, weights, settings, state.default_dtype, self.options.mode, captured.facts)

    def _by_callable(self, backend: Callable[..., Any], captured: Captured, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The user's own backend on the graph and the tensors of this call. What it raises is the user's to see."""
        found = make_entry(self.name, captured.guards, [each.source for each in captured.inputs], None, kept=captured.kept)
        inputs = found.entry.guards.check(self.function, arguments)
        name = self.options.backend_name or getattr(backend, "__name__", backend)
        try:
            compiled = backend(captured.graph, list(inputs or ()))
        except Exception as error:
            raise BackendError(f"backend {name!r} failed on a graph of {self.name}: {type(error).__name__}: {error}") from error
        if not callable(compiled):
            raise BackendError(f"backend {name!r} gave {compiled!r} for a graph of {self.name}; it must give a callable")
        return _flat(compiled)

    def _checked_entry(self, captured: Captured, graph: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> Record:
        """The entry, once its guards are seen to hold for the call that it was made for."""
        with journal.time("guards", self.name):
            record = self._entry(captured, graph)
        if record.entry.guards.check(self.function, arguments) is None:
            raise RuntimeError("the guards do not hold for the call that they were made for")
        return record

    def _entry(self, captured: Captured, graph: Callable[..., Any] | None) -> Record:
        failed = functools.partial(self._leave_compiled, captured) if graph is not None else None
        record = make_entry(
            captured.name, captured.guards, [each.source for each in captured.inputs], _marked(graph, captured.graph), captured.finish,
            single_output=captured.single_output, kept=captured.kept, nbytes=ENTRY_BYTES, failed=failed,
            hooked=self._hooked(captured), below=self.region,
        )
        if isinstance(graph, Comparison):
            graph.end = functools.partial(self._keep_faster, record, captured.graph)
        return record

    def _hooked(self, captured: Captured) -> int:
        """The region in which what the graph leaves to Python runs. Code that raises only runs to raise."""
        if captured.break_reasons and captured.finish is None:
            return hook.OFF
        return self.continuations.region() if captured.break_reasons else 0

    def _keep_faster(self, record: Record, graph: GraphModule, verdict: Verdict) -> None:
        record.entry.graph = _marked(verdict.graph, graph)
        times = f"torch's operators took {verdict.eager * 1e3:.3g} ms a call, compiled code {verdict.compiled * 1e3:.3g} ms"
        if verdict.eager:
            journal.add("kept_eager" if verdict.won else "measured", self.name, times)

    def _leave_compiled(self, captured: Captured, failure: Exception) -> None:
        """The graph gave up in a call that the function itself answered: from now on the function answers all calls like it."""
        if is_raise_of_side(failure):
            return                                               # the next call may take the other side
        if isinstance(failure.__cause__, CompilerBug):
            journal.add("bug", self.name, str(failure))
        journal.add("eager", self.name, reason=BreakReason("TW811", f"a run of the graph gave up: {failure}"))
        with self.lock:
            for record in [each for each in self.entries if each.guards is captured.guards]:
                self.entries.remove(record)
            self.entries.add(make_entry(captured.name, captured.guards, (), None, kept=captured.kept, below=self.region))


class Marks:
    """What `explain` hangs around every graph, while it looks: `mark(graph, operators, writes)` gives what runs in its place."""

    mark: Callable[..., Callable[..., Any]] | None = None


marks = Marks()


def _marked(graph: Callable[..., Any] | None, captured: GraphModule) -> Callable[..., Any] | None:
    if marks.mark is None or graph is None:
        return graph
    return marks.mark(graph, sum(node.op.startswith("call") for node in captured.graph.nodes), not is_comparable(captured.graph))


class FrameBelow(CompiledFunction):
    """A function that plain Python calls below a break. Its entries stand on its code object, where the frame hook finds them for the frames of
    every function of that code; so it keeps none of these functions."""

    CAPTURES, CONTINUATIONS = 4, 12      # that it may cost, its own and those of what follows breaks in it

    def __init__(self, function: FunctionType, options: CompileOptions, region: int):
        code = function.__code__
        self.hollow = FunctionType(code, function.__globals__, function.__name__, None, tuple(CellType() for _ in code.co_freevars))
        self.hollow.__qualname__ = function.__qualname__
        super().__init__(self.hollow, options)
        self.left, self.region = self.CAPTURES, region
        self.continuations.left, self.continuations.spent, self.continuations.inside = self.CONTINUATIONS, self._give_up, region
        self.entries = Entries(hook.CodeTarget(code, region), ambient.current().entry_limit_mb << 20)

    def entry_for(self, function: FunctionType, arguments: tuple[Any, ...]) -> Any:
        """The entry for a frame of `function`; _NotWorth where it stays plain Python, NotNow where another thread is at it."""
        if not self.lock.acquire(blocking=False):
            raise NotNow("another thread captures it")
        try:
            if self.function is not self.hollow:
                raise NotNow("it is called by what compiles it")
            return self._entry_for(function, arguments)
        except NotNow:
            self.waits += 1
            raise
        except FullGraphError as refused:
            raise _NotWorth(refused.reason) from refused
        finally:
            self.lock.release()

    def _entry_for(self, function: FunctionType, arguments: tuple[Any, ...]) -> Any:
        misses = [explain_bound(record, function, arguments) for record in self.entries]
        if None in misses:
            return list(self.entries)[misses.index(None)].entry
        if not self.left:
            raise _NotWorth(BreakReason("TW132", f"{self.CAPTURES} captures did not settle it: {misses[0]}" if misses else "its graphs gave up"))
        self.left -= 1
        if misses:
            self._add_recompile(misses[0])
        self._note_changes(arguments)
        self.function = function
        try:
            with collector_paused(), torch.autograd.profiler.record_function("thruway: compile"):
                record = self.compile_frame(arguments)
        finally:
            self.function = self.hollow
        if record.entry.graph is None and not record.entry.hooked:
            raise _NotWorth(BreakReason("TW131", "no tensor operation is in it"))
        self.entries.add(record)
        return record.entry

    def _leave_eager(self, reason: BreakReason, arguments: tuple[Any, ...]) -> Record:
        raise _NotWorth(reason)

    def _give_up(self) -> None:
        """What follows breaks in it finds no end: from now on it runs as plain Python."""
        self.entries.clear()
        hook.skip(self.hollow.__code__)
        reason = BreakReason("TW132", f"{self.CONTINUATIONS} captures of what follows its breaks did not settle it")
        journal.add("skipped", self.name, reason=reason)


class _NotWorth(Exception):
    """A frame below a break stays plain Python."""

    def __init__(self, reason: BreakReason):
        super().__init__(reason.what)
        self.reason = reason


@dataclass(slots=True)
class Seen:
    """A code object whose frames came up below a break: calls with and without tensors in reach, and who compiles it, by region."""

    code: weakref.ref[CodeType]
    calls: int = 0
    without: int = 0
    compilers: dict[int, FrameBelow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Region:
    """What was compiled with the same options, which frames below it are then compiled with. It lives as long as any of that does."""

    number: int
    options: CompileOptions


class Below:
    """What the frame hook asks about a frame that no entry answers, in code that runs below a break. Nothing is raised but what a backend of
    the user's own raises: the frame is the user's."""

    CALLS = 2                            # before a function is worth a capture
    WITHOUT = 16                         # calls without a tensor in reach after which code is left alone
    FUNCTIONS = 500                      # that are captured at most: their code is kept

    def __init__(self) -> None:
        self.regions: weakref.WeakValueDictionary[int, Region] = weakref.WeakValueDictionary()
        self.numbers = itertools.count(1)
        self.is_installed = False
        self.seen: dict[int, Seen] = {}                          # by id: equal code objects are not the same
        self.told: set[str] = set()
        self.captured = 0

    def watch(self, options: CompileOptions) -> Region:
        """The region in which entries that run user code shall have the hook on; functions below are compiled with the same options."""
        asked = replace(options, name="", check=0)
        if not self.is_installed:
            hook.install(self.frame)
            self.is_installed = True
        return next((each for each in list(self.regions.values()) if each.options == asked), None) or self._new_region(asked)

    def _new_region(self, options: CompileOptions) -> Region:
        made = Region(next(self.numbers), options)
        self.regions[made.number] = made
        weakref.finalize(made, self._end_region, made.number).atexit = False
        return made

    def _end_region(self, number: int) -> None:
        for seen in list(self.seen.values()):
            if compiler := seen.compilers.pop(number, None):
                self.captured -= 1
                compiler.entries.clear()

    def frame(self, code: CodeType, function: FunctionType, arguments: tuple[Any, ...]) -> Any:
        """An entry for this frame; None: ask no more for this code; True: for what it calls neither; False: only not this time; Ellipsis: nor for
        what it calls in this time."""
        try:
            return self._answer(code, function, arguments)
        except _NotWorth as left:
            journal.add("skipped", code.co_qualname, reason=left.reason, where=left.reason.where)
        except (NotNow, RecursionError, MemoryError) as why:
            journal.add("postponed", code.co_qualname, str(why))
            return ...
        except BackendError:
            raise
        except Exception as failure:
            journal.add("eager", code.co_qualname, reason=_fault(code.co_qualname, failure))
        return None

    def _answer(self, code: CodeType, function: FunctionType, arguments: tuple[Any, ...]) -> Any:
        if not is_outside_torch_transforms() or ambient.current().stance != "default":
            return False
        left = left_alone(code, function)
        if left is not None and (left.below or not left.package or left.package in self.told):
            return left.below or None
        seen = self._seen(code)
        if not reaches_tensors(function, arguments):
            seen.without += 1                                    # most of Python is about something else
            return None if seen.without > self.WITHOUT else False
        if left is not None:
            self.told.add(left.package)
            raise _NotWorth(BreakReason("TW133", f"functions of {left.package} start no graphs of their own"))
        if is_step_of_autograd(arguments):
            raise _NotWorth(BreakReason("TW133", "autograd calls it as a step of a custom autograd.Function"))
        if is_leaf_of_torch(function, arguments):
            return None
        seen.calls += 1
        return self._compiler(seen, function).entry_for(function, arguments) if seen.calls >= self.CALLS else False

    def _seen(self, code: CodeType) -> Seen:
        number = id(code)
        if number not in self.seen:
            self.seen[number] = Seen(weakref.ref(code, lambda _: self.seen.pop(number, None)))
        return self.seen[number]

    def _compiler(self, seen: Seen, function: FunctionType) -> FrameBelow:
        region = self.regions.get(hook.region())
        if region is None:
            raise NotNow("what was compiled with these options is gone")
        if region.number not in seen.compilers:
            if self.captured >= self.FUNCTIONS:
                raise _NotWorth(BreakReason("TW132", f"{self.FUNCTIONS} functions below breaks are captured already"))
            self.captured += 1
            seen.compilers[region.number] = FrameBelow(function, region.options, region.number)
        return seen.compilers[region.number]

    def clear(self) -> None:
        hook.forget()
        self.seen.clear()
        self.told.clear()
        self.captured = 0


below = Below()


class Continuations:
    """Compiles the continuations of one compiled function, and theirs: once per code, globals and closure, so that loops find them again."""

    def __init__(self, options: CompileOptions, make: Callable[..., CompiledFunction] | None = None):
        self.options, self.make = options, make or CompiledFunction
        self.left: int | None = None                             # captures that the family may still make; None: any number
        self.spent: Callable[[], None] = lambda: None            # called where there are none left
        self.hides_compiling = False                             # what code of this family hears that asks whether it is being compiled
        self.inside = 0                                          # the region whose frames this family answers
        self.held: Region | None = None                          # keeps the region alive in which others of its options run
        self.made: dict[tuple[Any, ...], Any] = {}

    def region(self) -> int:
        """The region in which what this family leaves to Python runs; 0: none."""
        if not self.options.settings(ambient.current()).capture_below or not hook.is_available():
            return 0
        if not self.inside:
            self.held = self.held or below.watch(self.options)
        return self.inside or self.held.number

    def may_capture(self) -> bool:
        if self.left is None:
            return True
        self.left -= 1
        if self.left == -1:
            self.spent()
        return self.left >= 0

    def __call__(self, function: FunctionType) -> Any:
        key = (function.__code__, id(function.__globals__), *map(id, function.__closure__ or ()))
        found = self.made.get(key)
        return found or self.made.setdefault(key, self.make(function, self.options, self).compiled)


class _TooDynamic(Exception):
    """Symbolic sizes or numbers are in the way of a graph that fixed ones would give."""


def _compared(compiled: Callable[..., Any], plain: Callable[..., Any], captured: Captured, settings: Settings) -> Callable[..., Any]:
    """`compiled`, compared with `plain` during the first calls where that is allowed and leaves no trace."""
    devices = {getattr(each.meta, "device", "cpu") for each in captured.inputs}
    gpus = sorted(device for device in devices if device.startswith("cuda"))
    allowed = settings.measure and len(gpus) + ("cpu" in devices) == len(devices) and not captured.guards.state.deterministic[0]
    if not allowed or not is_comparable(captured.graph.graph):
        return compiled
    if not gpus:
        return Comparison(compiled, plain, CPU_WARM_CALLS)
    return Comparison(compiled, plain, GPU_WARM_CALLS, functools.partial(_wait_for_streams, gpus), torch.cuda.is_current_stream_capturing)


def _wait_for_streams(gpus: Sequence[str]) -> None:
    """Not for the devices: another thread may be recording there, which that would spoil."""
    for gpu in gpus:
        torch.cuda.current_stream(torch.device(gpu)).synchronize()


def _keeping_modes(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, which sets modes and puts them back, also where it fails in between."""
    def call(*inputs: Any) -> Any:
        with kept_modes():
            return run(*inputs)

    return call


def wants_gradient(captured: Captured) -> bool:
    """Whether autograd must see the operators of the graph: also where an output is a detached view of a tensor with a gradient, which
    without autograd cannot be told from other views."""
    enabled = captured.guards.state.grad_enabled
    for node in calls_in(captured.graph.graph):
        enabled |= node.target is torch._C._set_grad_enabled and node.args[0] is True
        if node.kwargs.get("requires_grad") or name_of(node) == "requires_grad_":
            return True
    wanting = {each.name for each in captured.inputs if getattr(each.meta, "requires_grad", False)}
    return bool(wanting) and (enabled or _gives_detached(captured.graph.graph, wanting))


def _gives_detached(graph: Graph, wanting: set[str]) -> bool:
    """Whether the graph gives a view without gradient of one of the inputs named `wanting`."""
    examples = {node: node.meta.get("example_value") for node in graph.nodes}
    roots = {id(getattr(example, "root", None)) for node, example in examples.items() if node.op == "placeholder" and node.name in wanting}
    outputs = [examples.get(node) for node in graph.output_node().args[0]]
    return any(isinstance(one, torch.Tensor) and not one.requires_grad and id(getattr(one, "root", None)) in roots for one in outputs)


def _compile_or_none(
    graph: GraphModule, name: str, metas: Callable[[], list[Any]], weights: list[bool], settings: Settings, default_float: str, mode: str,
    facts: Facts | None = None,
) -> Callable[..., tuple[torch.Tensor, ...]] | None:
    """What the graph compiler makes of `graph`; None, with the reason in the journal, where it fails."""
    try:
        return graphs.compile(graph, metas(), weights, name, settings, default_float, mode, facts)
    except Unsupported as failure:
        journal.add("eager", name, "the captured graph runs by torch's operators", reason=failure.reason)
    except Exception as failure:
        journal.add("eager", name, "the captured graph runs by torch's operators", reason=_fault(name, failure))
    return None


def _fault(name: str, failure: Exception) -> BreakReason:
    """An error of ours, journalled as one, with the line of ours that raised it."""
    last = traceback.extract_tb(failure.__traceback__)[-1]
    what = f"{type(failure).__name__}: {failure} ({os.path.basename(last.filename)}:{last.lineno})"
    journal.add("bug", name, what)
    return BreakReason("TW900", f"a fault of thruway itself: {what}", "please report it; with THRUWAY_DUMP=folder the same run writes each stage before it")


def _flat(graph: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """A backend's callable, giving a tuple as entries want it."""
    def call(*inputs: Any) -> tuple[Any, ...]:
        return tuple(graph(*inputs))

    return call


def _or_graph(compiled: Callable[..., tuple[Any, ...]], graph: GraphModule) -> Callable[..., Any]:
    """`compiled`, or `graph` for the calls that a compiled region gives up."""
    def call(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except native.RegionFailed:
            return graph(*inputs)

    return call
