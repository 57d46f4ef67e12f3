"""Breaks within `except` blocks: what is handled before, within and behind the block is what eager handles there, and the context of errors is too."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

import thruway


@thruway.disable
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@thruway.disable
def handled() -> str:
    error = sys.exception()
    return f"{error!r} in {error.__context__!r}" if error else "nothing"


@thruway.disable
def fails(text: str) -> None:
    raise ValueError(text)


def behind(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        x = opaque(x)
    return x.view(77)


def caught_behind(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        x = opaque(x)
    try:
        x.view(77)
    except RuntimeError as error:
        log.append(repr(error.__context__))
    log.append(handled())
    return x


def within(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        x = opaque(x)
        log.append(handled())
        x = x.view(77)
    return x


def nested(x, log):
    try:
        fails("first")
    except ValueError:
        x = opaque(x) * 2
        try:
            raise TypeError("second")
        except TypeError:
            log.append(handled())
            x = opaque(x)
            log.append(handled())
        log.append(handled())
        opaque(x)
        raise
    return x


def finally_behind(x, log):
    try:
        try:
            fails("first")
        finally:
            x = opaque(x)
            log.append(handled())
            x = x + 1
    except ValueError as error:
        log.append(repr(error.__context__))
        x = opaque(x)
    opaque(x)
    return x.view(77)


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        opaque(torch.ones(1))
        self.log.append(handled())
        return True


def swallowed(x, log):
    with Manager(log):
        fails("first")
    log.append(handled())
    return x.view(77)


def inner(x, log):
    x = opaque(x) * 2
    log.append(handled())
    try:
        x.view(77)
    except RuntimeError as error:
        log.append(repr(error.__context__))
    return x.view(78)


def called_while_handling(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        x = inner(x, log)
    return x


def in_a_loop(x, log):
    for i in range(4):
        try:
            if i % 2:
                fails(f"round {i}")
            x = x + 1
        except ValueError:
            x = opaque(x)
            log.append(handled())
            continue
        log.append(handled())
    return x.view(77)


def raised_again(x, log):
    try:
        fails("first")
    except ValueError as error:
        opaque(x)
        try:
            raise error
        except ValueError as again:
            opaque(x)
            log.append(again is error)
            log.append(repr(again.__context__))
        raise RuntimeError("second") from error


KINDS = [behind, caught_behind, within, nested, finally_behind, swallowed, called_while_handling, in_a_loop, raised_again]


def chain(error: BaseException | None) -> list[str]:
    found = []
    while error is not None:
        found.append(f"{error!r} from {error.__cause__!r} {error.__suppress_context__}")
        error = error.__context__
    return found


def outcome(function: Callable[..., torch.Tensor]) -> tuple[list, list[str]]:
    log: list = []
    try:
        log.append(function(torch.ones(2, 3), log).tolist())
    except Exception as error:
        return log, chain(error)
    return log, []


@pytest.mark.parametrize("function", KINDS)
def test_what_is_handled(function):
    compiled = thruway.compile(function, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(function)


@pytest.mark.parametrize("function", KINDS)
def test_what_is_handled_below_a_handler_of_the_caller(function):
    compiled = thruway.compile(function, backend="eager")

    def from_handler(call):
        try:
            raise OSError("outside")
        except OSError:
            return outcome(call)
    assert from_handler(compiled) == from_handler(function)
    assert outcome(compiled) == outcome(function)


def test_nothing_stays_handled():
    compiled = thruway.compile(nested, backend="eager")
    outcome(compiled)
    assert sys.exception() is None


def test_an_error_stays_as_it_is_while_it_is_handled():
    def unchanged(x):
        try:
            fails("first")
        except ValueError as error:
            before = error.__traceback__, error.__context__
            opaque(x)
            opaque(x)
            return before[0] is error.__traceback__, before[1], error.__context__
    assert thruway.compile(unchanged, backend="eager")(torch.ones(2)) == (True, None, None)
