"""raise, except, finally and with."""

from __future__ import annotations

import builtins

from thruway.bytecode.decode import Instruction
from thruway.capture.breaks import unsupported
from thruway.capture.opcodes.stack import push
from thruway.capture.state import Frame, Inline, State, UserRaise
from thruway.capture.values.attribute import bind, set_slot
from thruway.capture.values.base import Constant, HandledValue, ObjectValue, TupleValue, Value
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.compare import boolean
from thruway.capture.values.errors import raise_error
from thruway.capture.values.traceback import traceback_of
from thruway.capture.values.types_ import type_value
from thruway.frame.guard import MISSING


def raise_varargs(state: State, frame: Frame, ins: Instruction) -> None:
    cause = frame.stack.pop() if ins.arg == 2 else None
    if ins.arg == 0:
        if not frame.handled:
            raise unsupported(state, "TW100", "a bare raise of an exception caught outside")
        raise UserRaise(frame.handled[-1])
    error = _instance(state, frame.stack.pop())
    if cause is not None:
        set_slot(state, error, "__cause__", cause if isinstance(cause, Constant) and cause.value is None else _instance(state, cause))
    raise UserRaise(error)


def _instance(state: State, value: Value) -> ObjectValue:
    if isinstance(value, Constant) and isinstance(value.value, type):
        value = run_inline(state, call(state, value, [], {}))
    if not isinstance(value, ObjectValue) or not issubclass(value.cls.value, BaseException):
        raise_error(state, TypeError, "exceptions must derive from BaseException")
    return value


def push_exc_info(state: State, frame: Frame, ins: Instruction) -> None:
    error = frame.stack.pop()
    frame.stack += HandledValue(error), error
    frame.handled.append(error)


def pop_except(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.pop()
    frame.handled.pop()


def check_exc_match(state: State, frame: Frame, ins: Instruction) -> None:
    wanted = frame.stack.pop()
    frame.stack.append(boolean(matches(frame.stack[-1], wanted)))


def matches(error: Value, wanted: Value) -> bool:
    if isinstance(wanted, TupleValue):
        return any(matches(error, one) for one in wanted.items)
    return wanted.value in error.cls.value.__mro__


def reraise(state: State, frame: Frame, ins: Instruction) -> None:
    raise UserRaise(frame.stack.pop())


def before_with(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    manager = frame.stack.pop()
    cls = type_value(state, manager)
    found = {name: state.type_lookup(cls, name) for name in ("__enter__", "__exit__")}
    for name, one in found.items():
        if one is MISSING:
            raise_error(state, TypeError, f"'{cls.value.__name__}' object does not support the context manager protocol")
    frame.stack.append(bind(state, found["__exit__"], manager, cls, "__exit__"))
    return push(frame, call(state, bind(state, found["__enter__"], manager, cls, "__enter__"), [], {}))


def with_except_start(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    """[exit, lasti, previous, error] → … and exit(type, error, traceback)."""
    error = frame.stack[-1]
    return push(frame, call(state, frame.stack[-4], [error.cls, error, traceback_of(state, error)], {}))


def load_build_class(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(Constant(builtins.__build_class__))


HANDLERS = {
    "RAISE_VARARGS": raise_varargs, "PUSH_EXC_INFO": push_exc_info, "POP_EXCEPT": pop_except, "CHECK_EXC_MATCH": check_exc_match,
    "RERAISE": reraise, "BEFORE_WITH": before_with, "WITH_EXCEPT_START": with_except_start, "LOAD_BUILD_CLASS": load_build_class,
}
