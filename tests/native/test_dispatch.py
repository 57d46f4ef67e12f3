"""The compiled callable: binding, entries, misses, state, failure of a region, methods, threads and leaks."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref

import pytest
import torch
from thruway.native import RegionFailed


def no_guards(core, inputs=0):
    steps = tuple(("local", i, i, 0, None, 0) for i in range(inputs))
    return core.GuardProgram(steps, tuple(range(inputs)))


def entry(core, graph=None, finish=None, inputs=0, **more):
    return core.Entry(no_guards(core, inputs), core.read_state(), graph, finish, **more)


def never(compiled, args, kwargs):
    raise AssertionError("missed")


def compiled_with(core, function, *entries, miss=never):
    compiled = core.Compiled(function, miss)
    compiled.entries = entries
    return compiled


def simple(a, b):
    return a - b


def full(a, b=2, /, c=3, *rest, d, e=5, **more):
    return tuple(locals().values())


SIGNATURES = [
    lambda a, b: tuple(locals().values()), full, lambda: (), lambda *a: (a,), lambda **k: (k,), lambda a, *, b=1: (a, b), lambda a=1, b=2: (a, b),
    lambda a, /, **more: (a, more), lambda self, function, args=3: (self, function, args),
]
CALLS = [
    ((), {}), ((1,), {}), ((1, 2), {}), ((1, 2, 3), {}), ((1, 2, 3, 4, 5), {"d": 9}), ((1,), {"d": 4}), ((1,), {"d": 4, "c": 1, "z": 2}), ((), {"a": 1}),
    ((1,), {"b": 2}), ((1,), {"a": 2}), ((), {"a": 1, "b": 2}), ((1, 2), {"q": 1}), ((1,), {"e": 2, "d": 1, "b": 7}),
]


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: str(inspect.signature(f)))
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_arguments_bind_as_python_binds_them(core, function, call):
    args, kwargs = call
    compiled = compiled_with(core, function, entry(core, finish=lambda *locals: ("bound", locals)))
    try:
        expected = function(*args, **kwargs)
    except TypeError as pythons:
        with pytest.raises(TypeError) as ours:
            compiled(*args, **kwargs)
        assert str(ours.value) == str(pythons)
    else:
        assert compiled(*args, **kwargs) == ("bound", expected)


def test_misses_ask_and_then_the_entry_answers(core):
    asked = []

    def miss(compiled, args, kwargs):
        asked.append((args, kwargs))
        made = entry(core, lambda a, b: (a + b,), inputs=2, single_output=True)
        compiled.entries = (made, *compiled.entries)
        return made

    compiled = core.Compiled(simple, miss)
    assert compiled(5, b=3) == 8
    assert compiled(5, 4) == 9
    assert asked == [((5,), {"b": 3})] and compiled.misses == 1 and compiled.entries[0].hits == 2


def test_none_runs_the_function(core):
    compiled = core.Compiled(simple, lambda c, a, k: None)
    assert compiled(5, 3) == 2 and compiled(5, 3) == 2 and compiled.misses == 2


def test_an_entry_that_does_not_match_its_own_call_runs_the_function(core):
    program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("equal", 0, 0, 0, 1, 0)), ())
    made = core.Entry(program, core.read_state(), None, lambda *a: "entry")
    compiled = core.Compiled(simple, lambda c, a, k: made)
    assert compiled(5, 3) == 2 and compiled(1, 3) == "entry"


def test_results(core):
    assert compiled_with(core, simple, entry(core, lambda a, b: (a, b), inputs=2))(1, 2) == (1, 2)
    assert compiled_with(core, simple, entry(core, lambda a, b: [a, b], inputs=2))(1, 2) == (1, 2)
    assert compiled_with(core, simple, entry(core, lambda a, b: (a,), inputs=2, single_output=True))(1, 2) == 1
    assert compiled_with(core, simple, entry(core, lambda a, b: (a,), lambda *all: all, inputs=2))(1, 2) == (1, 2, 1)
    assert compiled_with(core, simple, entry(core))(1, 2) == -1
    with pytest.raises(ValueError):
        compiled_with(core, simple, entry(core, lambda a, b: (a, b), inputs=2, single_output=True))(1, 2)


def test_finish_gets_the_cells_of_the_closure(core):
    total = 3

    def function(x):
        return x + total

    def finish(x, cell, output):
        cell.cell_contents += 1
        return x, output

    compiled = compiled_with(core, function, entry(core, lambda x: (x * 2,), finish, inputs=1))
    assert compiled(5) == (5, 10) and total == 4


def test_a_failed_region_runs_the_function(core):
    def graph(a, b):
        raise RegionFailed("check 3")

    assert compiled_with(core, simple, entry(core, graph, inputs=2))(5, b=3) == 2


def test_other_errors_arrive(core):
    def graph(a, b):
        raise KeyError("x")

    with pytest.raises(KeyError):
        compiled_with(core, simple, entry(core, graph, inputs=2))(5, 3)

    def miss(compiled, args, kwargs):
        raise OSError("miss")

    with pytest.raises(OSError, match="miss"):
        core.Compiled(simple, miss)(1, 2)


STATES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to another dtype": lambda: torch.autocast("cpu", torch.float16),
    "function mode": torch.overrides.BaseTorchFunctionMode,
    "dispatch mode": lambda: torch.utils._python_dispatch.TorchDispatchMode(),
    "default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("name", STATES)
def test_entries_are_keyed_on_torchs_modes(core, name):
    compiled = compiled_with(core, simple, entry(core, None, lambda *a: "entry"), miss=lambda c, a, k: None)
    assert compiled(5, 3) == "entry"
    with STATES[name]():
        assert compiled(5, 3) == 2
    assert compiled(5, 3) == "entry"


def test_entries_are_keyed_on_process_wide_settings(core):
    compiled = compiled_with(core, simple, entry(core, None, lambda *a: "entry"), miss=lambda c, a, k: None)
    for change, undo in (
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch._C._set_deterministic_algorithms(True), lambda: torch._C._set_deterministic_algorithms(False)),
    ):
        change()
        try:
            assert compiled(5, 3) == 2
        finally:
            undo()
        assert compiled(5, 3) == "entry"


def test_functorch_levels_miss(core):
    compiled = compiled_with(core, lambda x: x * 2, entry(core, None, lambda *a: a[0] * 0), miss=lambda c, a, k: None)
    assert torch.equal(torch.vmap(compiled)(torch.ones(3)), torch.full((3,), 2.0))


def test_it_is_a_method(core):
    class Thing:
        run = compiled_with(core, lambda self, x: (self, x), entry(core, None, lambda self, x: ("entry", self, x)))

    thing = Thing()
    assert thing.run(3) == ("entry", thing, 3) and Thing.run(thing, x=3) == ("entry", thing, 3)


def test_it_looks_like_the_function(core):
    def function(a: int, b: str = "x") -> int:
        """Doc."""

    function.mark = 3
    compiled = core.Compiled(function, never)
    assert compiled.__name__ == "function" and compiled.__doc__ == "Doc." and compiled.__wrapped__ is function and compiled.mark == 3
    assert compiled.__qualname__ == function.__qualname__ and compiled.__module__ == __name__
    assert inspect.signature(compiled) == inspect.signature(function) and inspect.getfullargspec(compiled) == inspect.getfullargspec(function)
    assert inspect.unwrap(compiled) is function and weakref.ref(compiled)() is compiled and callable(compiled)


def test_inspect_tells_its_kind(core):
    def plain(x): ...

    def generator(x):
        yield x

    async def coroutine(x): ...

    async def asynchronous_generator(x):
        yield x

    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    for function in (plain, generator, coroutine, asynchronous_generator):
        assert [kind(core.Compiled(function, never)) for kind in kinds] == [kind(function) for kind in kinds]


def test_what_is_set_on_it_is_set_on_the_function(core):
    def function(x, *, y=2):
        return x, y

    compiled = core.Compiled(function, lambda c, a, k: None)
    compiled.__kwdefaults__ = {"y": 5}
    compiled.__defaults__ = (1,)
    assert compiled() == (1, 5) and compiled.__code__ is function.__code__


def test_another_code_drops_the_entries(core):
    def function(x):
        return x

    compiled = compiled_with(core, function, entry(core, None, lambda *a: "entry"), miss=lambda c, a, k: None)
    assert compiled(1) == "entry"
    function.__code__ = (lambda x, y=7: (x, y)).__code__
    function.__defaults__ = (7,)
    assert compiled(1) == (1, 7) and compiled.entries == ()


def test_the_last_entry_goes_first_and_all_are_tried(core):
    def on(value, answer):
        program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("equal", 0, 0, 0, value, 0)), ())
        return core.Entry(program, core.read_state(), None, lambda *a: answer)

    compiled = compiled_with(core, lambda x: "eager", *(on(i, f"entry {i}") for i in range(5)), miss=lambda c, a, k: None)
    for order in ([0, 1, 2, 3, 4], [4, 4, 0, 3, 1], [2, 9, 2]):
        assert [compiled(i) for i in order] == [f"entry {i}" if i < 5 else "eager" for i in order]


def test_eager_switch(core):
    compiled = compiled_with(core, simple, entry(core, None, lambda *a: "entry"))
    compiled.eager = True
    assert compiled(5, 3) == 2


def test_reentrance_and_replacement_during_a_call(core):
    def finish(n):
        compiled.entries = ()
        gc.collect()
        return n

    compiled = compiled_with(core, lambda n: "eager", entry(core, None, finish), miss=lambda c, a, k: None)
    assert compiled(1) == 1 and compiled(1) == "eager"

    def deep(n):
        return 0 if n == 0 else 1 + recursive(n - 1)

    recursive = compiled_with(core, deep, entry(core, None, lambda n, cell: deep(n)))
    assert recursive(100) == 100


def test_threads(core):
    compiled = core.Compiled(lambda n: ("eager", n), lambda c, a, k: None)
    entries = tuple(
        core.Entry(core.GuardProgram((("local", 0, 0, 0, None, 0), ("equal", 0, 0, 0, i, 0)), (0,)), core.read_state(), lambda n: (n,), single_output=True)
        for i in range(4)
    )
    wrong = []

    def work(seed):
        for i in range(1500):
            n = (seed + i) % 6
            if i % 50 == 0:
                compiled.entries = entries[i // 50 % 4 :]
            if compiled(n) not in (n, ("eager", n)):
                wrong.append(n)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert not wrong


def test_nothing_leaks(core):
    class Token:
        pass

    def graph(a, b):
        if a.fail:
            raise RegionFailed
        return (a,)

    compiled = compiled_with(core, full, entry(core, graph, lambda *locals: locals[0], inputs=2), miss=lambda c, a, k: None)
    token = Token()
    token.fail = False
    before = sys.getrefcount(token), sys.getrefcount(compiled.entries[0]), sys.getrefcount(full)
    for i in range(10_000):
        token.fail = i % 3 == 0
        compiled(token, token, token, token, d=token, other=token)
        if i % 100 == 0:
            with pytest.raises(TypeError):
                compiled(token, token, token)
    assert (sys.getrefcount(token), sys.getrefcount(compiled.entries[0]), sys.getrefcount(full)) == before
    watch = weakref.ref(token)
    del token
    assert watch() is None


def test_cycles_are_collected(core):
    def make():
        def function(x):
            return compiled

        compiled = compiled_with(core, function, entry(core, None, lambda *a: compiled))
        compiled(1)
        return weakref.ref(compiled)

    watch = make()
    gc.collect()
    assert watch() is None


def test_it_copies_as_itself_and_pickles_by_name(core):
    compiled = compiled_with(core, decorated, entry(core, None, lambda *a: "entry"))
    assert copy.copy(compiled) is compiled and copy.deepcopy([compiled])[0] is compiled
    assert compiled.__reduce__() == "decorated"
    globals()["decorated"] = compiled
    try:
        assert pickle.loads(pickle.dumps(compiled)) is compiled
    finally:
        globals()["decorated"] = compiled.__wrapped__


def decorated(x):
    return x


@pytest.mark.parametrize("function", [lambda a: a, lambda a: a.missing])
def test_after_is_called_once_when_a_call_that_missed_is_over(core, function):
    order = []
    compiled = core.Compiled(function, lambda compiled, args, kwargs: order.append("miss"))
    compiled.after = lambda: order.append("after")
    for _ in range(2):
        try:
            assert compiled(1) == 1
        except AttributeError:
            pass
    assert order == ["miss", "after", "miss"] and not hasattr(compiled, "after")
