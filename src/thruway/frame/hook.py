"""The frame hook: takes over frames that we do not call ourselves, while a region is active in this thread.

`install(callback)` once; `active()` around a call, or an Entry made with `hooked=True`. At a frame without a matching entry
the callback is asked: `callback(code, function, locals)` gives an Entry, or None to leave that code alone from now on.
"""

from __future__ import annotations

import opcode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from thruway import native
from thruway.core.errors import CompilerBug

Callback = Callable[[CodeType, FunctionType, tuple[object, ...]], Any]


def is_available() -> bool:
    """Whether this Python and build can take over frames."""
    return bool(native.features()["hook"])


def install(callback: Callback | None) -> None:
    """Sets the callback; None: only code with entries is taken over. CompilerBug where the self-test fails."""
    core = native.core()
    if not _works(core):
        raise CompilerBug("frame", "the frame hook does not replace a frame; it must stay off on this Python")
    core.hook_install(callback, _return_code())


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
    """Leaves frames of `code` alone."""
    native.core().hook_skip(code, flag)


class CodeTarget:
    """Holds the entries of a code object, as a Compiled holds those of its function: a target of `frame.entries.Entries`."""

    def __init__(self, code: CodeType):
        self.code = code

    @property
    def entries(self) -> tuple[Any, ...]:
        return native.core().hook_get_entries(self.code)

    @entries.setter
    def entries(self, value: tuple[Any, ...]) -> None:
        native.core().hook_set_entries(self.code, value)


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
