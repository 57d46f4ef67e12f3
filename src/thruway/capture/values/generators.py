"""Generators made inside: a suspended symbolic frame that is resumed by next(), send() and throw()."""

from __future__ import annotations

from thruway.capture.breaks import unsupported
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


def made_inside(state: State, generator: Value) -> GeneratorValue:
    """The generator, if it exists in this capture alone: any other is advanced by Python only."""
    if isinstance(generator, GeneratorValue) and not generator.exposed:
        return generator
    raise unsupported(state, "TW115", python_type(generator).__name__)
