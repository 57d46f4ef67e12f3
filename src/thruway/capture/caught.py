"""An operator whose elements decide whether it raises, in a `try` of the user's, after a tensor from outside was written.

Where a graph fails, the function itself runs again from its start and does what eager does. It cannot after such a write, so the operator
is left to Python there, with the handlers around it. So is one behind an `except`: its error carries the one being handled.
"""

from __future__ import annotations

import torch

from thruway.bytecode.decode import ExceptionRange
from thruway.bytecode.flow import passes_on
from thruway.capture.breaks import unsupported
from thruway.capture.handlers import is_handled
from thruway.capture.state import Frame, State, is_library
from thruway.capture.values.base import MethodValue, ObjectValue, TensorValue

RAISED = (IndexError, RuntimeError, ValueError, torch.linalg.LinAlgError)          # what operators raise because of elements


def refuse_caught_error(state: State, name: str) -> None:
    """For a call of `name` that was just recorded and whose elements may make it raise."""
    if not writes_inputs(state):
        return
    if any(frame.handled or not is_library(frame.code.co_filename) and is_handled(state, frame, RAISED, _raises_again) for frame in state.frames):
        raise unsupported(state, "TW120", name)
    state.fails_behind_write = True


def may_be_caught(state: State, raised: type[BaseException]) -> bool:
    """Whether code of the user's runs where an effect raises that, behind the graph: too late for handlers, and for what `finally` takes back."""
    return any(not is_library(frame.code.co_filename) and is_handled(state, frame, (raised,), _leaves_torch) for frame in state.frames)


def writes_inputs(state: State) -> bool:
    """Whether a tensor found outside has been written: the function itself cannot run from its start then."""
    return any(isinstance(one.value, TensorValue) and id(one.value.trace.root) in state.written for one in state.inputs)


def _raises_again(frame: Frame, found: ExceptionRange, at: int) -> bool:
    """Whether the handler only raises the same error again, as a `finally` does: the effects that it takes back still wait for the graph, so
    none of them is seen; what else it does is lost."""
    return passes_on(frame.code, at) or _leaves_torch(frame, found, at)


def _leaves_torch(frame: Frame, found: ExceptionRange, at: int) -> bool:
    """Whether it is the end of a `with` over a manager of torch's, which catches nothing."""
    if frame.program[at][1].op != "WITH_EXCEPT_START":
        return False
    leave = frame.stack[found.depth - 1] if 0 < found.depth <= len(frame.stack) else None
    owner = leave.owner if isinstance(leave, MethodValue) else None
    return isinstance(owner, ObjectValue) and owner.cls.value.__module__.partition(".")[0] == "torch"
