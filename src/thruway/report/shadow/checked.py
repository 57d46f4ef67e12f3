"""`thruway.compile(f, check=n)`: the first n calls run eager beside compiled code, on copies, and what they leave is compared.

Eager runs first, unseen, in a copied world (`worlds`); compiled code then runs on the real one, once, so that the user's effects happen
once. Effects outside Python's objects (files, sockets) happen in both. A call that cannot run twice, or in which eager differs from itself,
is not checked, and the journal says so. After n calls nothing is left of this in the way of a call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from thruway import pipeline
from thruway.core.ambient import settings as ambient
from thruway.core.errors import BackendError, CheckError, FullGraphError, RecompileError
from thruway.core.options import CompileOptions
from thruway.frame.entries import make_entry
from thruway.frame.guard import GuardSet
from thruway.frame.state import is_outside_torch_transforms, read_state
from thruway.native.fallback import bind_arguments, call_bound
from thruway.pipeline import CompiledFunction
from thruway.report.shadow.compare import Difference, Places
from thruway.report.shadow.copies import Copies, NotCopied
from thruway.report.shadow.locate import Finding, Search
from thruway.report.shadow.runs import Outcome, compare_outcomes, gradients_of, random_state, run_eager, run_wide, set_random_state
from thruway.report.shadow.script import Saved, write_script
from thruway.report.shadow.worlds import World, reached

OF_THE_COMPILER = (FullGraphError, RecompileError, BackendError, CheckError)


def compile_checked(function: Callable[..., Any], options: CompileOptions) -> Any:
    """What `pipeline.compile_callable` gives, with the first `options.check` calls checked."""
    if isinstance(function, MethodType):
        return compile_checked(function.__func__, options).__get__(function.__self__)
    return CheckedFunction(function, options).compiled


@dataclass(frozen=True, slots=True)
class Before:
    """A call before it ran: its real world, a copy of it, random states, the user's functions and classes in it, and its tensors."""

    real: World
    pristine: World
    random: tuple[Any, ...]
    definitions: tuple[Any, ...]
    tensors: list[Any]


class CheckedFunction(CompiledFunction):
    """Answers each call with an entry that checks it, until `left` is 0; then `inner`, which compiles, has the native object for itself."""

    def __init__(self, function: FunctionType, options: CompileOptions):
        super().__init__(function, options)
        self.inner = CompiledFunction(function, options)
        self.left = options.check
        self.saved: list[Saved] = []                             # the calls so far, for the script

    def miss(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.left <= 0:
            return self.inner.miss(compiled, args, kwargs)
        if not is_outside_torch_transforms() or ambient.current().stance != "default" or bind_arguments(self.function, args, kwargs) is None:
            return self.inner.miss(self.inner.compiled, args, kwargs)
        self.left -= 1
        return make_entry(self.name, GuardSet(read_state(), ()), (), None, finish=self._check).entry

    def _check(self, *values: Any) -> Any:
        """One checked call: bound arguments, then the function's cells."""
        count = len(values) - len(self.function.__code__.co_freevars)
        before = self._before(values[:count])
        outcome = self._compare(before) if before else None
        if self.left <= 0:
            self.inner.compiled = self.inner.entries.target = self.compiled
            self.compiled.entries = tuple(record.entry for record in self.inner.entries)
        if outcome is None:
            return call_bound(self.inner.compiled, self.function.__code__, values[:count])
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    def _before(self, arguments: tuple[Any, ...]) -> Before | None:
        real, definitions = reached(self.function, arguments)
        copies = Copies()
        try:
            return Before(real, real.copied(copies), random_state(), tuple(definitions), [original for original, _ in copies.pairs])
        except NotCopied as why:
            pipeline.journal.add("unchecked", self.name, f"the call ran unchecked: it holds {why}")
            return None

    def _compare(self, before: Before) -> Outcome:
        """The outcome of compiled code, once it is seen to be eager's."""
        copies = Copies()
        world = before.pristine.copied(copies)
        eager = run_eager(world, copies.pairs)
        set_random_state(before.random)
        self.saved.append(Saved(before.pristine, before.random, read_state()))
        ours = self._run_real(before.real, before.tensors)
        wide = functools.cache(lambda: self._wide(before))
        if compare_outcomes(eager, ours, lambda: None) and self._is_stable(before, eager) and (found := compare_outcomes(eager, ours, wide)):
            raise self._error(before, eager, found, wide)
        return ours

    def _run_real(self, world: World, wanted: list[Any]) -> Outcome:
        result, error = None, None
        try:
            result = call_bound(self.inner.compiled, self.function.__code__, world.arguments)
        except OF_THE_COMPILER:
            raise
        except Exception as raised:
            error = raised
        after = random_state()
        return Outcome(result, error, world.read(), after, gradients_of(result, wanted))

    def _wide(self, before: Before) -> Places | None:
        return _apart(before, lambda: run_wide(before.pristine))

    def _is_stable(self, before: Before, eager: Outcome) -> bool:
        """Whether eager does the same when it is run once more."""
        copies = Copies()
        world = before.pristine.copied(copies)
        other = _apart(before, lambda: run_eager(world, copies.pairs))
        difference = compare_outcomes(eager, other, lambda: None)
        if difference is not None:
            pipeline.journal.add("unchecked", self.name, f"eager differs from itself in {difference}")
        return difference is None

    def _error(self, before: Before, eager: Outcome, found: Difference, wide: Callable[[], Places | None]) -> CheckError:
        finding = _apart(before, Search(before.pristine, eager, self.inner, wide, [each.world for each in self.saved[:-1]]).find)
        script, why_not = write_script(self.name, self.function, self.saved, before.definitions, finding, found, self.options)
        return CheckError(_message(self.name, found, finding, script, why_not), found.place, finding.stage, finding.node, finding.line, script)


def _apart(before: Before, run: Callable[[], Any]) -> Any:
    """Runs something from the call's random state, and leaves that of now."""
    now = random_state()
    set_random_state(before.random)
    try:
        return run()
    finally:
        set_random_state(now)


def _message(name: str, found: Difference, finding: Finding, script: str, why_not: str) -> str:
    lines = [f"{name}: compiled code does another thing than eager. {found}", f"first stage that differs: {finding.stage}"]
    if finding.node:
        lines.append(f"first node that differs: {finding.node}" + (f", at {finding.line}" if finding.line else ""))
    return "\n".join([*lines, f"to reproduce: python {script}" if script else why_not])
