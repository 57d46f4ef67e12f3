"""Errors thrown into generators that wait for another one, builtins that ask for the frame they are called in, and clamp without a bound."""

from collections.abc import Sequence

import pytest
import torch
from capture.beside_eager import check
from whole.assert_same import assert_same

import thruway

SCALE = 3
X = torch.arange(3.0)


def inner(x, log):
    try:
        got = yield x + 1
        while got is not None:
            got = yield x * got
    except ValueError as error:
        log.append(str(error))
        yield x - 1
    finally:
        log.append("inner")
    return "returned"


def outer(x, log):
    try:
        result = yield from inner(x, log)
        yield result
    except (ValueError, KeyError) as error:
        log.append(type(error).__name__)
        yield x * 9
    finally:
        log.append("outer")


@pytest.mark.parametrize("error", [ValueError("boom"), KeyError("k"), StopIteration("early")])
def test_the_innermost_generator_has_the_error_first(error):
    def throw(x):
        log = []
        generator = outer(x, log)
        first = next(generator)
        try:
            second = generator.throw(error)
        except RuntimeError as raised:
            return first, str(raised), log
        rest = list(generator)
        return first, second, rest, log
    check(throw, X, graphs=1)


def test_closing_reaches_the_innermost_first():
    def close(x):
        log = []
        generator = outer(x, log)
        first = next(generator)
        generator.close()
        return first, log
    check(close, X, graphs=1)


def test_a_break_in_the_handler_of_the_inner_one(capsys):
    def handling(x):
        try:
            yield x
        except ValueError as error:
            print("handled", error)
            yield x * 2

    def around(x):
        yield from handling(x)
        yield x * 3

    def throw(x):
        generator = around(x)
        first = next(generator)
        return first, generator.throw(ValueError("boom")) + 1, list(generator)
    check(throw, X)


def names(x, k):
    found = eval("k + 1") + globals()["SCALE"], sorted(locals()), sorted(vars()), "k" in dir()
    return x * found[0], found


def names_below(x, k):
    y, found = names(x, k)
    return y + 1, found


def test_builtins_that_ask_for_their_frame():
    for function in (names, names_below):
        assert_same(function, X, 2)


def clamped(x, low, high):
    try:
        return x.clamp(low, high), torch.clip(x, low, high)
    except RuntimeError as error:
        return x, str(error)


def test_clamp_without_a_bound():
    thruway.reset()
    for low, high in ((None, None), (1, None), (None, 2.0), (torch.ones(3), None)):
        check(clamped, X, low, high)


def leaking(x):
    yield x
    next(iter([]))
    yield x * 2


def gathered(x):
    try:
        return list(leaking(x))
    except RuntimeError as error:
        return x + 1, str(error), repr(error.__cause__), error.__context__ is error.__cause__


def first_of_each(x):
    try:
        return list(next(one) for one in [iter([x]), iter([])])
    except RuntimeError as error:
        return x + 2, str(error)


def ended(x):
    try:
        return [next(one) for one in [iter([x]), iter([])]]
    except StopIteration:
        return x + 3


@pytest.mark.parametrize("function", [gathered, first_of_each, ended])
def test_a_generator_ends_by_returning_alone(function):
    check(function, X, graphs=1)


def finishing(x, log):
    try:
        for i in range(5):
            yield x * i
    finally:
        log.append("finished")


def within(x, log):
    with torch.no_grad():
        yield x
        log.append("after")


def plain(x, log):
    yield x
    yield x * 2


def watching(x, log):
    try:
        yield x
    except GeneratorExit:
        log.append("left")


def catching(x, log):
    try:
        yield x
    except (ValueError, IndexError):
        log.append("caught")


class Rows(Sequence):
    """Its `__iter__` is a generator of the standard library's, which waits for an IndexError."""

    def __init__(self, x, log):
        self.x = x

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return self.x * i


def left_early(make):
    def function(x):
        log = []
        for one in make(x, log):
            y = one + 1
            break
        log.append("behind")
        return y, log
    return function


@pytest.mark.parametrize("make", [finishing, within, watching, plain, catching, Rows])
def test_a_generator_left_early_finishes_at_once(make):
    check(left_early(make), X, graphs=1 if make in (plain, catching, Rows) else 0)


def test_a_generator_that_is_kept_waits():
    def kept(x):
        log = []
        generator = finishing(x, log)
        return next(generator), generator, log
    compiled = thruway.compile(kept)
    for call in (kept, compiled, compiled):
        first, generator, log = call(X)
        assert log == [] and torch.equal(next(generator), X)
        generator.close()
        assert log == ["finished"]
