"""Which stage made the difference: a call that came out wrong is run again, stage by stage, on copies of what it started from."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._python_dispatch import TorchDispatchMode

from thruway.capture.captured import Captured
from thruway.core.ambient import settings as ambient
from thruway.core.errors import UserLine
from thruway.core.options import CompileOptions
from thruway.frame.entries import Record
from thruway.frame.guard import Guard
from thruway.frame.show_guards import show_guard
from thruway.frame.skip import is_skipped_module
from thruway.pipeline import CompiledFunction, Continuations
from thruway.report.shadow.compare import Difference, Places, Walk, same_values
from thruway.report.shadow.copies import Copies
from thruway.report.shadow.runs import Outcome, compare_outcomes, run_eager
from thruway.report.shadow.stages import first_difference, first_node
from thruway.report.shadow.worlds import World
from thruway.runtime.plain import name_of, plain_region

# Guards whose expected value is the object of the one call, and so another one on a copy.
OF_OBJECTS = frozenset({"identity", "same_object", "not_same_object", "no_overlap"})


@dataclass(frozen=True, slots=True)
class Finding:
    """The first stage that differs, the node there (empty where none is to blame), the user's line, and the graph with its inputs where the
    fault is behind capture."""

    stage: str
    node: str = ""
    line: UserLine | None = None
    graph: tuple[GraphModule, tuple[Any, ...]] | None = None


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One captured graph as it ran, with copies of its inputs."""

    captured: Captured
    inputs: tuple[Any, ...]


class Examined(CompiledFunction):
    """Captures afresh, runs graphs by torch's operators, and keeps every run."""

    def __init__(self, function: Any, options: CompileOptions, family: Continuations | None = None, runs: list[GraphRun] | None = None):
        self.runs: list[GraphRun] = [] if runs is None else runs
        super().__init__(function, options, family or Continuations(options, functools.partial(Examined, runs=self.runs)))
        self.is_continuation = family is not None

    def _backend(self, captured: Captured, arguments: tuple[Any, ...], settings: Any) -> Callable[..., Any] | None:
        if captured.graph is None:
            return None
        plain = plain_region(captured.graph.graph, captured.forward)

        def run(*inputs: Any) -> Any:
            copies = Copies()
            self.runs.append(GraphRun(captured, tuple(copies.copy(each) for each in inputs)))
            return plain(*inputs)

        return run


@dataclass(slots=True)
class Search:
    """`pristine` is the world before the call, `eager` what eager left, `used` the compiled function whose answer was
    wrong, `earlier` the worlds of earlier calls."""

    pristine: World
    eager: Outcome
    used: CompiledFunction
    wide: Callable[[], Places | None]
    earlier: list[World]
    options: CompileOptions = field(init=False)

    def find(self) -> Finding:
        self.options = replace(self.used.options, check=0)
        eager = replace(self.options, backend="eager", fullgraph=False)
        differs, examined = self._run(lambda function: Examined(function, eager))
        if differs:
            return self._in_capture(examined.runs)
        return self._behind_capture(examined.runs) or self._at_run_time(examined)

    def _run(self, make: Callable[[Any], Any]) -> tuple[Difference | None, Any]:
        """How a fresh compiled function differs from eager on the same call."""
        copies = Copies()
        world = self.pristine.copied(copies)
        compiled = make(world.function)
        compiled.dynamic = set(self.used.dynamic)
        return compare_outcomes(self.eager, run_eager(world, copies.pairs, compiled.compiled), self.wide), compiled

    # -- capture -----------------------------------------------------------------------------------------------------------------------

    def _in_capture(self, runs: list[GraphRun]) -> Finding:
        """The first node of the captured graphs whose value eager's operators never gave; else the first of theirs that no node gave."""
        log = OperatorLog()
        copies = Copies()
        world = self.pristine.copied(copies)

        def logged(*args: Any, **kwargs: Any) -> Any:
            with log:
                return world.function(*args, **kwargs)

        run_eager(world, copies.pairs, logged)
        left = list(log.calls)
        for run in runs:
            for call in _calls_of(run):
                at = next((i for i, other in enumerate(left) if other.is_like(call)), None)
                if at is None:
                    return Finding("capture", call.node, call.line)
                del left[:at + 1]
        if len(runs) == 1 and left and not runs[0].captured.break_reasons:
            return Finding("capture", f"{left[0].name}, which the captured graph lacks", left[0].line)
        return Finding("capture")

    # -- the compiler ------------------------------------------------------------------------------------------------------------------

    def _behind_capture(self, runs: list[GraphRun]) -> Finding | None:
        if self.options.backend != "thruway":
            return None
        settings = self.options.settings(ambient.current())
        for run in runs:
            stage = first_difference(run.captured, run.captured.graph, run.inputs, settings, self.options.mode)
            if stage is not None:
                node = first_node(run.captured, run.inputs, stage, settings, self.options.mode)
                return Finding(stage, describe(node) if node else "", node.meta.get("line") if node else None, (run.captured.graph, run.inputs))
        return None

    def _at_run_time(self, examined: CompiledFunction) -> Finding:
        """Every stage is right on a fresh capture: the entry that answered was made for other calls, or something that lasts is stale."""
        if self._run(lambda function: CompiledFunction(function, self.options))[0]:
            return Finding("runtime")
        missing = _missing_guard(list(examined.entries), list(self.used.entries))
        if missing:
            return Finding("guards", show_guard(missing), missing.why)
        return Finding("guards", self._change()) if self.earlier else Finding("state kept between calls")

    def _change(self) -> str:
        """What is another value than at the call before, and no guard saw."""
        walk = Walk(looks_at_values=False)
        before, now = (Outcome(None, None, world, ()).roots() for world in (self.earlier[-1], self.pristine))
        found = next((found for name in before if (found := walk.compare(before[name], now.get(name), name))), None)
        return f"{found.place} has changed since the call before" if found else ""


def _missing_guard(fresh: list[Record], used: list[Record]) -> Guard | None:
    """The first guard of a fresh entry that none of the others has."""
    known = {(guard.kind, guard.source, str(guard.expected)) for record in used for guard in record.guards.guards}
    sources = {(guard.kind, guard.source) for record in used for guard in record.guards.guards}
    for record in fresh:
        for guard in record.guards.guards:
            if (guard.kind, guard.source) not in sources or (guard.kind not in OF_OBJECTS and (guard.kind, guard.source, str(guard.expected)) not in known):
                return guard
    return None


def describe(node: Node) -> str:
    arguments = ", ".join(map(str, node.args))
    return f"{node.name} = {name_of(node)}({arguments})"


# -- operators as they ran ----------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Call:
    """One operator with its tensors, the captured node that called it, and the user's line."""

    name: str
    values: tuple[torch.Tensor, ...]
    node: str = ""
    line: UserLine | None = None

    def is_like(self, other: Call) -> bool:
        if self.name != other.name or len(self.values) != len(other.values):
            return False
        return all(a.shape == b.shape and a.dtype == b.dtype and same_values(a, b) for a, b in zip(self.values, other.values))


class OperatorLog(TorchDispatchMode):
    """Every operator with what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.node: Node | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        values = result if isinstance(result, tuple | list) else (result,)
        kept = tuple(each.detach().clone() for each in values if isinstance(each, torch.Tensor))
        name, node = str(func), self.node
        self.calls.append(Call(name, kept, describe(node) if node else "", node.meta.get("line") if node else _user_line()))
        return result


def _calls_of(run: GraphRun) -> list[Call]:
    """The operators that the captured graph runs, node by node."""
    log = OperatorLog()

    class ByNode(Interpreter):
        def run_node(self, n: Node) -> Any:
            log.node = n
            return super().run_node(n)

    copies = Copies()
    inputs = [copies.copy(each) for each in run.inputs]
    try:
        with log:
            ByNode(run.captured.graph).run(*inputs)
    except Exception:                                        # what ran before the error is what there is to compare
        pass
    return log.calls


def _user_line() -> UserLine | None:
    """The innermost line of the user's on the stack."""
    frame = sys._getframe(2)
    while frame is not None and is_skipped_module(frame.f_globals.get("__name__") or "thruway"):
        frame = frame.f_back
    return UserLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname) if frame is not None else None


