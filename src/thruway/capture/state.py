"""FrameState: everything that one capture changes as it goes. The only mutable value of this room.

Frames are symbolic: a list of Values as stack, a dict of locals, cells, and the exceptions being handled. A handler that calls
Python code returns `Inline(frame)`; nested calls in rare protocols go through `state.call`, which runs the loop until that frame ends.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

import torch

from thruway.bytecode.decode import ExceptionRange
from thruway.capture.effects import Effects
from thruway.capture.values.base import Constant, FunctionValue, ObjectValue, Value
from thruway.core.errors import BreakReason, UserLine, Unsupported
from thruway.frame.guard import MISSING, Guard
from thruway.frame.source import Attr, Made, Source, TypeOf
from thruway.frame.tagged import NAMES, untagged
from thruway.shapes.symbolic import Facts


class UserRaise(Exception):
    """The user's code raises `value` (an exception ObjectValue): unwound by the loop through symbolic exception tables."""

    def __init__(self, value: Value):
        super().__init__()
        self.value = value


class Frame:
    """One symbolic frame. `then` receives the result in place of the caller's stack; `pc` is the next instruction."""

    __slots__ = ("code", "function", "program", "exceptions", "namespace", "locals", "cells", "stack", "pc", "then", "keyword_names",
                 "handled", "generator", "caller", "stops", "missing")

    def __init__(self, code: CodeType, function: FunctionValue | None, program: Any, namespace: Any):
        self.code, self.function, self.namespace = code, function, namespace
        self.program, self.exceptions = program
        self.locals: dict[str, Value] = {}
        self.cells: dict[str, Any] = {}
        self.stack: list[Value] = []
        self.pc = 0
        self.then: Callable[[Any, Any, Value], Any] | None = None
        self.keyword_names: tuple[str, ...] = ()
        self.handled: list[Value] = []
        self.generator: Any = None
        self.caller: Frame | None = None
        self.stops: frozenset[int] = frozenset()    # instructions where a round of a loop ends
        self.missing: Missing | None = None

    def chain(self) -> tuple[Frame, ...]:
        """This frame and those that called it, outermost first."""
        frames = [self]
        while frames[-1].caller is not None:
            frames.append(frames[-1].caller)
        return tuple(reversed(frames))

    def handler(self) -> ExceptionRange | None:
        """Where Python goes on in this frame if the running instruction raises."""
        at = self.pc - 1
        return next((r for r in self.exceptions if r.start <= at < r.end), None)

    def line(self) -> int | None:
        _, instruction = self.program[max(self.pc - 1, 0)]
        return instruction.position[0]


@dataclass(frozen=True, slots=True)
class Missing:
    """Where a getter of `owner` raises AttributeError, its attribute `name` counts as missing, and `hook`, the class's `__getattr__`, is asked."""

    hook: Callable[..., Any]
    owner: Value
    name: str
    ask: Callable[[], Value]


@dataclass(slots=True)
class Inline:
    """Run `frame` next; its result goes on the caller's stack, or to `then(state, caller, value)`, which may return another Inline."""

    frame: Frame


@dataclass(slots=True)
class Return:
    """The running frame is done with this result."""

    value: Value


@dataclass(slots=True)
class Yield:
    """The running generator frame is suspended with this result."""

    value: Value


class Marker:
    """The state before the instruction that runs: enough to take it back."""

    __slots__ = ("frame", "stack", "pc", "effects", "last_node", "depth", "keyword_names")

    def __init__(self) -> None:
        self.frame: Frame | None = None

    def set(self, state: State, frame: Frame) -> None:
        self.frame, self.stack, self.pc = frame, frame.stack.copy(), frame.pc
        self.effects, self.last_node = state.effects.mark(), state.graph._root._prev
        self.keyword_names = frame.keyword_names

    def restore(self, state: State) -> tuple[Frame, ...]:
        """Takes back the instruction; gives the frames, outermost first."""
        frame = self.frame
        frame.stack, frame.pc = self.stack, self.pc
        state.effects.rollback(self.effects)
        while state.graph._root._prev is not self.last_node and state.graph._root._prev.op != "placeholder":
            state.graph.erase_node(state.graph._root._prev)
        return frame.chain()


class Namespace:
    """A module's globals as seen by capture: what was read, and writes that wait."""

    __slots__ = ("real", "source_of", "values", "missing", "module", "source", "place")

    def __init__(self, real: dict, source_of: Callable[[str], Source], module: str | None = None, source: Source | None = None):
        self.real, self.source_of, self.module, self.source = real, source_of, module, source
        self.values: dict[str, Value | None] = {}
        self.missing: set[str] = set()
        self.place: Source | None = None             # of the dict itself, once a guard asks for it


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What a lookup along a class's MRO finds where this capture wrote it."""

    value: Value


@dataclass(slots=True)
class Input:
    """A tensor or number found outside that the graph reads."""

    value: Any
    node: torch.fx.Node


@dataclass(slots=True)
class State:
    """`wrap`, `known` and `program` are functions and tables of later files, held here so that values need not import them."""

    function: Any
    wrap: Callable[..., Value]
    known: dict[Any, Callable[..., Any]]
    program: Callable[[CodeType], Any]
    runner: Callable[..., Value]
    finish_frame: Callable[..., Value]
    generator_runner: Callable[..., Value]
    dynamic: Container = frozenset()
    graph: torch.fx.Graph = field(default_factory=torch.fx.Graph)
    guards: dict[Any, Guard] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    by_id: dict[int, Value] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    generators: list[Any] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    namespaces: dict[int, Namespace] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    written: set[int] = field(default_factory=set)
    has_warned: bool = False                               # torch warned of a call, which every call of the entry repeats
    overlap: BreakReason | None = None                     # why the order of writes matters, so that torch's operators run the graph
    writes: int = 0                                     # by operators, so far
    symbols: dict[str, tuple[Any, int]] = field(default_factory=dict)
    size_nodes: dict[Any, torch.fx.Node] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    lines: dict[Any, UserLine] = field(default_factory=dict)
    marker: Marker | None = None
    is_continuation: bool = False
    drawn: frozenset[int] = frozenset()                 # parameters that hold what random generators gave
    may_wait: bool = False                              # whether this call may be left as it is, so that a later one is captured better
    found_by_code: bool = False                           # the function may be another one of the same code at the next call
    number_inputs: dict[Source, Any] = field(default_factory=dict)
    is_hanging: bool = False                              # elements decide whether what was traced last raises
    fails_behind_write: bool = False                      # elements decide whether an operator raises, once an input is written
    is_opaque: bool = False                               # what was traced last depends on elements: eager's kernels must run it
    lookups: dict[Any, Any] = field(default_factory=dict)
    class_writes: dict[tuple[type, str], Written] = field(default_factory=dict)
    by_trace: dict[int, Value] = field(default_factory=dict)
    hides_compiling: bool = False                         # code that asks whether it is being compiled hears no
    heard_compiling: bool = False                         # it asked, and heard yes
    tracing: Any = None                                   # the mode under which operators run over metadata
    draws: int = 0                                        # operators in functions of torch.func that draw random numbers
    transforms: int = 0                                   # of torch.func, whose function is being captured
    devices: list[torch.device] = field(default_factory=list)      # default devices set around, the last one counts
    sides: list[Any] = field(default_factory=list)        # the sides of branches being tried, innermost last
    expects: bool = False                                 # a branch was met whose other side raises
    turns: int = 0                                        # of loops since then
    caution: dict[Any, int] = field(default_factory=dict)  # branch → how far to go with it (see branches)
    relations: dict[int, Any] = field(default_factory=dict)   # trace of a truth value → the comparison of sizes that it answers
    counters: dict[str, Any] = field(default_factory=dict)    # symbol of a number that loops count → the tensor that holds it, how far a round went
    counted: dict[int, int] = field(default_factory=dict)     # trace of such a tensor → how far from what its round started with
    links: list[Any] = field(default_factory=list)        # tensors that are one in eager, on one side of a branch
    strict: list[bool] = field(default_factory=list)      # error_on_graph_break blocks entered here, and whether each is on
    array_roots: list[Any] = field(default_factory=list)  # traces of tensors that lie in arrays found outside
    overrides: bool = False                               # whether an object with `__torch_function__` or a function mode was met
    overriding: list[Any] = field(default_factory=list)   # function modes, and what switches `__torch_function__` off, entered here and not left
    is_function_off: bool = False                         # `__torch_function__` of arguments is off around the call
    deepest: int = field(default_factory=lambda: frames_left())   # how many frames Python would let the code have at once

    def where(self) -> UserLine | None:
        """The user's line being run: the innermost frame outside torch's files and ours, else the innermost."""
        if not self.frames:
            return None
        frame = next((f for f in reversed(self.frames) if not is_library(f.code.co_filename)), self.frames[-1])
        return self.line_of(frame)

    def line_of(self, frame: Frame) -> UserLine:
        number = frame.line() or frame.code.co_firstlineno
        key = (frame.code, number)
        line = self.lines.get(key)
        if line is None:
            text = linecache.getline(frame.code.co_filename, number).strip()
            line = self.lines[key] = UserLine(frame.code.co_filename, number, frame.code.co_qualname, text)
        return line

    def guard(self, kind: str, source: Source, expected: object) -> None:
        """Adds a guard once per (kind, source, expected where there may be several)."""
        key = (kind, source, expected[0] if kind == "type_lookup" else expected) if kind in SEVERAL else (kind, source)
        if key not in self.guards:
            self.guards[key] = Guard(kind, source, expected, self.where())

    def unsupported(self, code: str, what: str, hint: str = "") -> Unsupported:
        return Unsupported(code, what, hint, self.where())

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """Calls now, nested: for protocols where an inlined frame's result is needed at once."""
        return self.runner(self, function, args, kwargs or {})

    def finish_inline(self, result: Inline) -> Value:
        return self.finish_frame(self, result)

    def resume_generator(self, generator: Any, sent: Value, thrown: bool = False) -> Value:
        return self.generator_runner(self, generator, sent, thrown)

    def type_lookup(self, cls: Constant, name: str) -> Any:
        """What `name` is along the class's MRO (MISSING where nothing), guarded where the class was found outside."""
        if self.class_writes and (written := self._written_to_class(cls.value, name)) is not None:
            return written
        key = (cls.value, name)
        found = self.lookups.get(key, _UNSEEN)
        if found is _UNSEEN:
            found = next((base.__dict__[name] for base in cls.value.__mro__ if name in base.__dict__), MISSING)
            if name in NAMES:
                found = untagged(found)
            self.lookups[key] = found
            if cls.source is not None and not immutable(cls.value):
                if found is not MISSING and type(found) in PLAIN_DATA and type(cls.value) is type:          # its reader guards the content, which may change
                    self.guard("type", Attr(cls.source, name), type(found))
                else:
                    self.guard("type_lookup", cls.source, (name, found))
        return found

    def _written_to_class(self, cls: type, name: str) -> Written | None:
        for base in cls.__mro__:
            if (base, name) in self.class_writes:
                return self.class_writes[base, name]
            if name in base.__dict__:
                return None
        return None

    def class_of(self, cls: type, owner: Source | None) -> Constant:
        """The class as a value; reached through `owner` where it has no source yet."""
        value = self.by_id.get(id(cls))
        if value is None:
            value = self.by_id[id(cls)] = Constant(cls, TypeOf(owner) if owner is not None else None if immutable(cls) else self.made(cls))
            self.keep.append(cls)
        elif value.source is None and owner is not None:
            value.source = TypeOf(owner)
        return value


    def let_go(self) -> None:
        """After capture nothing here holds objects of the user's: Values and frames hang together in circles, which only the collector frees."""
        for value in self.by_id.values():
            for name in HOLDERS:
                if hasattr(value, name):
                    setattr(value, name, None)
        self.marker = self.tracing = None
        for held in (self.by_id, self.keep, self.by_trace, self.namespaces, self.frames, self.effects.undo, self.effects.steps):
            held.clear()

    def made(self, obj: Any) -> Made:
        """A source for an object that the entry keeps alive itself."""
        self.kept.append(obj)
        return Made(len(self.kept) - 1)


def frames_left() -> int:
    """How many more frames the recursion limit allows above those of the user that are running."""
    frame, running = sys._getframe(), 0
    while (frame := frame.f_back) is not None:
        running += not frame.f_code.co_filename.startswith(FOLDERS[1])
    return max(sys.getrecursionlimit() - running, 1)


_UNSEEN = object()
HOLDERS = ("real", "make_trace", "attributes", "storage", "found", "find", "memory")        # of Values: what they hold of an object found outside
SEVERAL = frozenset({"absent", "has_not", "type_lookup", "not_same_object", "no_overlap", "relation", "same_object", "answer"})
PLAIN_DATA = frozenset({int, float, str, list, tuple, dict, set, type(None), torch.Tensor})
FOLDERS = (torch.__path__[0], os.path.dirname(os.path.dirname(__file__)))
_IMMUTABLE_FLAG = 1 << 8      # Py_TPFLAGS_IMMUTABLETYPE


@lru_cache(maxsize=None)
def is_library(filename: str) -> bool:
    """Whether the file is torch's or ours. Asked for every frame, whenever something is guarded."""
    return filename.startswith(FOLDERS)


def immutable(cls: type) -> bool:
    return bool(cls.__flags__ & _IMMUTABLE_FLAG)


def is_instance_of(value: Value, cls: type) -> bool:
    return isinstance(value, ObjectValue) and issubclass(value.cls.value, cls)
