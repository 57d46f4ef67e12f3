"""Generators made inside: a suspended symbolic frame that is resumed by next(), send() and throw()."""

from __future__ import annotations

from thruway.capture.state import State, UserRaise
from thruway.capture.values.base import NONE, GeneratorValue, Value
from thruway.capture.values.errors import raise_error


def advance(state: State, generator: GeneratorValue, sent: Value = NONE) -> Value:
    """Runs the generator to its next yield, nested. StopIteration is raised in the user's code when it returns."""
    if generator.finished:
        raise_error(state, StopIteration)
    if generator.running:
        raise_error(state, ValueError, "generator already executing")
    return state.resume_generator(generator, sent)


def throw(state: State, generator: GeneratorValue, error: Value) -> Value:
    """Raises `error` where the generator stands and runs it to its next yield."""
    if generator.finished or not generator.started:
        generator.finished = True
        raise UserRaise(error)
    return state.resume_generator(generator, error, thrown=True)
