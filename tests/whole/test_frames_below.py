"""Functions that plain Python calls below a break are captured themselves: right results, and nothing where nothing breaks."""

from __future__ import annotations

import threading
import types

import pytest
import torch

import thruway
from thruway import native

pytestmark = pytest.mark.skipif(not native.features()["hook"], reason="this build has no frame hook")


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    with thruway.settings.override(capture_below=True):
        yield
    assert native.core().hook_stats()["depth"] == 0 and thruway.metrics()["bugs"] == 0


def opaque(function):
    """`function` as one of a module that is never captured."""
    return types.FunctionType(function.__code__, {"__name__": "tqdm.made", "__builtins__": __builtins__}, function.__name__, None, function.__closure__)


def compiled(fn):
    return thruway.compile(fn, backend="eager")


def captured_names():
    return {event.function for event in thruway.surface.lazy.pipeline().journal.of_kind("capture")}


@opaque
def each(function, *values):
    return [function(value) for value in values]


@opaque
def guarded(function, value):
    try:
        return function(value)
    except ValueError as error:
        return str(error)


def leaf(x):
    return (x * 3).relu() + 1


def test_a_function_called_below_a_break_is_captured():
    def f(x):
        return sum(each(leaf, x, x + 1, x + 2)) * 2

    g = compiled(f)
    for _ in range(3):
        assert torch.equal(g(torch.ones(2)), f(torch.ones(2)))
    assert "leaf" in captured_names()


def test_nothing_below_a_disabled_function():
    @thruway.disable
    def off(x):
        return leaf(x) + leaf(x) + leaf(x)

    g = compiled(lambda x: off(x) + 1)
    for _ in range(3):
        g(torch.ones(2))
    assert "leaf" not in captured_names()


def test_the_setting_switches_it_off():
    with thruway.settings.override(capture_below=False):
        g = compiled(lambda x: each(leaf, x, x, x))
        g(torch.ones(2)), g(torch.ones(2))
    assert "leaf" not in captured_names()


def test_closures_of_one_code_have_their_own_cells():
    def scaled(by):
        def inner(x):
            return x * by
        return inner

    def f(x):
        return [each(scaled(by), x, x, x)[0] for by in (2, 3, torch.ones(2), 4)]

    g = compiled(f)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(g(torch.ones(2)), f(torch.ones(2))))


def test_exceptions_keep_their_type_text_and_traceback():
    def failing(x):
        y = x * 2
        if y.shape[0] == 2:
            raise ValueError(f"shape {tuple(y.shape)}")
        return y

    g = compiled(lambda x: guarded(failing, x))
    for _ in range(4):
        assert g(torch.ones(2)) == "shape (2,)" and torch.equal(g(torch.ones(3)), torch.full((3,), 2.0))


def test_recursion_and_generators():
    def down(x, n=3):
        return x if n == 0 else down(x * 2, n - 1) + 1

    def rows(x):
        for row in x:
            yield leaf(row)

    def f(x):
        return [*each(down, x, x, x), *each(lambda t: sum(rows(t)), x, x, x)]

    g = compiled(f)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(g(torch.ones(2)), f(torch.ones(2))))


def test_effects_below_a_break_happen_once():
    seen = []

    def noting(x):
        seen.append(float(x[0]))
        return x * 2

    g = compiled(lambda x: each(noting, x, x + 1, x + 2))
    for _ in range(3):
        g(torch.ones(2))
    assert seen == [1.0, 2.0, 3.0] * 3


def test_many_threads():
    g, errors = compiled(lambda x: sum(each(leaf, x, x + 1, x + 2))), []

    def work(i):
        for turn in range(20):
            x = torch.full((2,), float(i + turn))
            if not torch.equal(g(x), leaf(x) + leaf(x + 1) + leaf(x + 2)):
                errors.append((i, turn))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_function_without_tensors_is_left_alone():
    def name(x):
        return "a" + str(len(x.shape))

    g = compiled(lambda x: each(name, x, x, x))
    for _ in range(3):
        g(torch.ones(2))
    assert [event.reason.code for event in thruway.surface.lazy.pipeline().journal.of_kind("skipped")] == ["TW131"]
    assert native.core().hook_get_entries(name.__code__) == ()


def test_nothing_is_watched_where_nothing_breaks():
    g = compiled(lambda x: leaf(x))
    g(torch.ones(2))
    before = native.core().hook_stats()
    g(torch.ones(2))
    after = native.core().hook_stats()
    assert (before["hits"], before["misses"]) == (after["hits"], after["misses"]) and not after["on_top"]
