"""Generators made inside: a suspended symbolic frame that is resumed by next(), send() and throw()."""

from __future__ import annotations

from thruway.bytecode.decode import ExceptionRange
from thruway.capture.breaks import unsupported
from thruway.capture.handlers import is_handled
from thruway.capture.state import Frame, State, UserRaise
from thruway.capture.values.base import NONE, GeneratorValue, Thrown, Value
from thruway.capture.values.errors import raise_error
from thruway.capture.values.types_ import python_type


def advance(state: State, generator: Value, sent: Value = NONE) -> Value:
    """Runs the generator to its next yield, nested. StopIteration is raised in the user's code when it returns."""
    own = made_inside(state, generator)
    if own.finished:
        raise_error(state, StopIteration)
    if own.running:
        raise_error(state, ValueError, "generator already executing")
    return state.resume_generator(own, sent)


def throw(state: State, generator: Value, error: Value) -> Value:
    """Raises `error` where the generator stands and runs it to its next yield."""
    own = made_inside(state, generator)
    if own.finished or not own.started:
        own.finished = True
        raise UserRaise(error)
    if _delegates(own.frame):
        return state.resume_generator(own, Thrown(error))
    return state.resume_generator(own, error, thrown=True)


def _delegates(frame: Frame) -> bool:
    """Whether a suspended generator waits for another one, which is to have the error first."""
    return frame.pc > 1 and frame.program[frame.pc - 2][1].op == "SEND" and isinstance(frame.stack[-1], GeneratorValue) and not frame.stack[-1].finished


def refuse_dropped(state: State) -> None:
    """Where nobody keeps a generator that waits inside a `try` or `with`, Python ends these at once; what they do then is not captured."""
    for one in state.generators:
        if one.started and not one.finished and not one.exposed and one.plays is None and is_handled(state, one.frame, (GeneratorExit,), _never):
            raise unsupported(state, "TW110", f"a generator that is dropped inside a try or with ({one.frame.code.co_name})")


def _never(frame: Frame, found: ExceptionRange, at: int) -> bool:
    return False


def made_inside(state: State, generator: Value) -> GeneratorValue:
    """The generator, if it exists in this capture alone: any other is advanced by Python only."""
    if isinstance(generator, GeneratorValue) and not generator.exposed:
        return generator
    raise unsupported(state, "TW115", python_type(generator).__name__)
