"""Making functions, and generators."""

from __future__ import annotations

from thruway.bytecode.decode import Instruction
from thruway.bytecode.versions import VERSION
from thruway.capture.breaks import unsupported
from thruway.capture.state import Frame, State, UserRaise, Yield
from thruway.capture.values.base import NONE, FunctionValue, GeneratorValue, Thrown, Value
from thruway.capture.values.generators import advance, throw
from thruway.capture.values.iterate import Exhausted, iterator_of, next_value

DEFAULTS, KEYWORD_DEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8


def make_function(state: State, frame: Frame, ins: Instruction) -> None:
    code = frame.stack.pop().value
    made = FunctionValue(code, frame.namespace, code.co_name)
    if ins.arg & CLOSURE:
        made.cells = frame.stack.pop().items
    if ins.arg & ANNOTATIONS:
        made.annotations = frame.stack.pop()
    if ins.arg & KEYWORD_DEFAULTS:
        made.keyword_defaults = {k.value: v for k, v in frame.stack.pop().items.values()}
    if ins.arg & DEFAULTS:
        made.defaults = frame.stack.pop().items
    frame.stack.append(made)


def return_generator(state: State, frame: Frame, ins: Instruction) -> None:
    """The generator was made at the call; this runs at its first resume, and a POP_TOP follows."""
    frame.stack.append(NONE)


def yield_value(state: State, frame: Frame, ins: Instruction) -> Yield:
    return Yield(frame.stack.pop())


def get_yield_from_iter(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack[-1] = iterator_of(state, frame.stack[-1])


def send(state: State, frame: Frame, ins: Instruction) -> None:
    """One step of `yield from`: [iterator, sent] → [iterator, yielded], or at the end the returned value and a jump."""
    sent = frame.stack.pop()
    iterator = frame.stack[-1]
    finished, value = _step(state, iterator, sent)
    if finished:
        if VERSION < (3, 12):
            frame.stack.pop()
        frame.pc = ins.target
    frame.stack.append(value)


def _step(state: State, iterator: Value, sent: Value) -> tuple[bool, Value]:
    try:
        if isinstance(iterator, GeneratorValue):
            return False, throw(state, iterator, sent.error) if isinstance(sent, Thrown) else advance(state, iterator, sent)
        if sent is not NONE:
            raise unsupported(state, "TW105", "send() to an iterator that is no generator")
        return False, next_value(state, iterator)
    except Exhausted:
        return True, NONE
    except UserRaise as raised:
        if raised.value.cls.value is not StopIteration:
            raise
        return True, raised.value.new_args[0] if raised.value.new_args else NONE


def end_send(state: State, frame: Frame, ins: Instruction) -> None:
    value = frame.stack.pop()
    frame.stack[-1] = value


HANDLERS = {
    "MAKE_FUNCTION": make_function, "RETURN_GENERATOR": return_generator, "YIELD_VALUE": yield_value, "GET_YIELD_FROM_ITER": get_yield_from_iter,
    "SEND": send, "END_SEND": end_send,
}
