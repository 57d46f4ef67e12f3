"""The frame hook: takes over frames that we do not call ourselves, while a region is active in this thread.

`install(callback)` once; `active()` around a call, or an Entry made with `hooked=` the number of a region. At a frame without a matching
entry the callback is asked: `callback(code, function, locals)` gives an Entry; None: leave that code to the entries it has from now on;
True: leave it alone, and all frames below it; False: ask again; Ellipsis: ask again, but not below this frame.
"""

from __future__ import annotations

import opcode
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from thruway import native
from thruway.core.errors import CompilerBug

Callback = Callable[[CodeType, FunctionType, tuple[object, ...]], Any]

OFF = -1                           # as `hooked` of an Entry: no frame is taken over while the original function runs


def is_available() -> bool:
    """Whether this Python and build can take over frames."""
    return bool(native.features()["hook"])


def install(callback: Callback | None) -> None:
    """Sets the callback; None: only code with entries is taken over. CompilerBug where the self-test fails."""
    core = native.core()
    if not _works(core):
        raise CompilerBug("frame", "the frame hook does not replace a frame; it must stay off on this Python")
    core.hook_install(callback, _return_code())
    if not _fork_handled:
        _fork_handled.append(True)
        os.register_at_fork(after_in_child=core.hook_after_fork)


_fork_handled: list[bool] = []


@contextmanager
def active() -> Iterator[None]:
    """The hook is on in this thread."""
    core = native.core()
    core.hook_enter()
    try:
        yield
    finally:
        core.hook_exit()


def pause() -> int:
    """The hook is off in this thread until `resume` gets what this gives."""
    return native.core().hook_pause()


def resume(was: int) -> None:
    native.core().hook_resume(was)


def skip(code: CodeType, flag: bool = True) -> None:
    """Leaves frames of `code` alone, until `forget`."""
    native.core().hook_skip(code, flag)


def forget() -> None:
    """Asks anew about all code."""
    if is_available():
        native.core().hook_forget()


def switch_off(flag: bool) -> None:
    """No frame is taken over in any thread while `flag` is set."""
    if is_available():
        native.core().hook_switch_off(flag)


def region() -> int:
    """The innermost region of this thread, as entries were made with it."""
    found: int = native.core().hook_region()
    return found


class CodeTarget:
    """Holds the entries of a code object for one region, as a Compiled holds those of its function: a target of `frame.entries.Entries`."""

    def __init__(self, code: CodeType, region: int = 0):
        self.code, self.region = code, region

    @property
    def entries(self) -> tuple[Any, ...]:
        return tuple(each for each in native.core().hook_get_entries(self.code) if self._is_own(each))

    @entries.setter
    def entries(self, value: tuple[Any, ...]) -> None:
        core = native.core()
        core.hook_set_entries(self.code, (*value, *(each for each in core.hook_get_entries(self.code) if not self._is_own(each))))

    def _is_own(self, entry: Any) -> bool:
        """Pairs of a guard and a code belong to no region."""
        return getattr(entry, "below", 0) == self.region


def _return_code() -> CodeType:
    """A code object that returns what already lies on its stack: how a frame ends with a ready result."""
    resume, give = opcode.opmap["RESUME"], opcode.opmap["RETURN_VALUE"]
    code = (lambda: None).__code__
    return code.replace(co_code=bytes([resume, 0, give, 0]), co_stacksize=1, co_consts=(), co_name="<finish>", co_qualname="<finish>")


def _works(core: Any) -> bool:
    """Whether a frame of a probe function runs its replacement, with the argument, inside a region and only there."""

    def probe(x):
        return x

    def replacement(x):
        y = [x, x]
        return [y, *y]

    core.hook_install(None, _return_code())
    core.hook_set_entries(probe.__code__, ((None, replacement.__code__),))
    mark = object()
    core.hook_enter()
    try:
        inside = probe(mark)
    finally:
        core.hook_exit()
    return inside == [[mark, mark], mark, mark] and probe(mark) is mark
