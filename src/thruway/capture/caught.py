"""An operator whose elements decide whether it raises, in a `try` of the user's, after a tensor from outside was written.

Where a graph fails, the function itself runs again from its start and does what eager does. It cannot after such a write, so the operator
is left to Python there, with the handlers around it.
"""

from __future__ import annotations

from thruway.bytecode.decode import ExceptionRange
from thruway.capture.breaks import unsupported
from thruway.capture.state import Frame, State, is_library
from thruway.capture.values.base import MethodValue, ObjectValue, TensorValue


def refuse_caught_error(state: State, name: str) -> None:
    """For a call of `name` that was just recorded and whose elements may make it raise."""
    if writes_inputs(state) and any(not is_library(frame.code.co_filename) and _catches(frame) for frame in state.frames):
        raise unsupported(state, "TW120", name)


def writes_inputs(state: State) -> bool:
    """Whether a tensor found outside has been written: the function itself cannot run from its start then."""
    return any(isinstance(one.value, TensorValue) and id(one.value.trace.root) in state.written for one in state.inputs)


def _catches(frame: Frame) -> bool:
    """Whether code of the user's runs in `frame` where the running instruction raises; what Python tidies up by itself does not count."""
    found, at = frame.handler(), 0
    while found is not None:
        operations = [ins.op for _, ins in frame.program[found.target:]]
        if operations[0] == "PUSH_EXC_INFO":
            return operations[1] != "WITH_EXCEPT_START" or not _is_of_torch(frame, found)
        at = found.target + operations.index("RERAISE")
        found = next((each for each in frame.exceptions if each.start <= at < each.end), None)
    return False


def _is_of_torch(frame: Frame, found: ExceptionRange) -> bool:
    """Whether it is the end of a `with` over a manager of torch's, which catches nothing."""
    leave = frame.stack[found.depth - 1] if 0 < found.depth <= len(frame.stack) else None
    owner = leave.owner if isinstance(leave, MethodValue) else None
    return isinstance(owner, ObjectValue) and owner.cls.value.__module__.partition(".")[0] == "torch"
