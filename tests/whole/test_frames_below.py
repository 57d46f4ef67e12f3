"""Functions that plain Python calls below a break are captured themselves: right results, and nothing where nothing breaks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import types
import weakref

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
    assert [event.reason.code for event in thruway.surface.lazy.pipeline().journal.of_kind("skipped")] == ["TW133", "TW131"]          # tqdm's own code, and `name`
    assert native.core().hook_get_entries(name.__code__) == ()


def test_nothing_is_watched_where_nothing_breaks():
    g = compiled(lambda x: leaf(x))
    g(torch.ones(2))
    before = native.core().hook_stats()
    g(torch.ones(2))
    after = native.core().hook_stats()
    assert (before["hits"], before["misses"]) == (after["hits"], after["misses"]) and not after["on_top"]


def skipped():
    return [event.reason.code for event in thruway.surface.lazy.pipeline().journal.of_kind("skipped")]


def captures_of(name):
    return sum(event.function == name for event in thruway.surface.lazy.pipeline().journal.of_kind("capture"))


def same(f, *inputs, calls=4):
    g = compiled(f)
    for _ in range(calls):
        for x in inputs:
            assert torch.equal(g(x), f(x))


def test_entries_of_one_code_read_the_cells_of_each_frame():
    made = []

    def scaled(by):
        seen = [0]

        def inner(x):
            seen[0] += 1
            return (x * by).relu()
        made.append(seen)
        return inner

    def f(x, by):
        return each(scaled(by), x, x)[1]

    g = compiled(f)
    for by in (2, 3, 2, 3, 5, 7):
        assert torch.equal(g(torch.ones(2), by), torch.full((2,), float(by)))
    assert [seen[0] for seen in made] == [2] * 6 and captures_of("test_entries_of_one_code_read_the_cells_of_each_frame.<locals>.scaled.<locals>.inner")


def test_cells_that_two_frames_share_later():
    def pair(first, second):
        def inner(x):
            nonlocal first
            first = first + 1
            return x * second
        return inner

    def one_cell(cell):
        code = pair(1, 1).__code__
        return types.FunctionType(code, globals(), "inner", None, (cell, cell))

    functions = [pair(1, 10), pair(1, 10), pair(1, 10), one_cell(types.CellType(1))]
    g = compiled(lambda x, function: each(function, x)[0])
    assert [float(g(torch.ones(1), function)) for function in functions] == [10.0, 10.0, 10.0, 2.0]


def test_one_code_in_other_globals():
    code = compile("def inner(x):\n    return (x * by).relu()", "made.py", "exec")
    spaces = [{"__name__": f"made{by}", "by": by} for by in (2, 3, 4)]
    inner = next(one for one in code.co_consts if isinstance(one, types.CodeType))
    g = compiled(lambda x, function: each(function, x, x)[1])
    for _ in range(3):
        for space in spaces:
            assert float(g(torch.ones(1), types.FunctionType(inner, space))) == space["by"]


def test_defaults_and_bound_objects_of_each_frame():
    class Scale:
        def __init__(self, by):
            self.by = by

        def apply(self, x, more=1):
            return x * self.by + more

    scales = [Scale(2), Scale(torch.full((2,), 3.0)), Scale(4)]
    g = compiled(lambda x, scale: each(scale.apply, x, x)[1])
    for more in (1, 5):
        Scale.apply.__defaults__ = (more,)
        for scale in scales * 2:
            assert torch.equal(g(torch.ones(2), scale), scale.apply(torch.ones(2)))


def test_nothing_of_the_last_closure_stays_alive():
    def scaled(weight):
        return lambda x: (x * weight).relu()

    g = compiled(lambda x, function: each(function, x, x)[1])
    function = scaled(torch.ones(2))
    for _ in range(3):
        g(torch.ones(2), function)
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None


def test_captures_end_where_guards_keep_missing():
    def many(x):
        return x * len(kinds[-1])

    kinds = []
    g = compiled(lambda x: each(many, x, x)[1])
    for i in range(40):
        kinds.append(type("Kind", (tuple,), {})((1,) * (i % 3)))
        assert torch.equal(g(torch.ones(2)), torch.ones(2) * (i % 3))
    assert 1 < captures_of("test_captures_end_where_guards_keep_missing.<locals>.many") < 6 and "TW132" in skipped()


def test_a_frame_that_breaks_in_ever_new_ways_is_given_up():
    def printing(x, n):
        for _ in range(n):
            print(end="", file=Quiet())
            x = x + n
        return x

    class Quiet:
        def write(self, text):
            pass

    g = compiled(lambda x, n: each(lambda value: printing(value, n), x, x)[1])
    for n in range(30):
        assert torch.equal(g(torch.ones(2), n), torch.ones(2) + n * n)


def test_libraries_and_optimizers_start_nothing():
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        return net.weight.detach().clone()

    want = []
    for turn in range(2):
        net.load_state_dict({"weight": torch.ones(2, 2), "bias": torch.zeros(2)})
        optimizer.state.clear()
        run = step if turn == 0 else compiled(step)
        want.append([run(torch.ones(1, 2)) for _ in range(5)])
    assert all(torch.equal(a, b) for a, b in zip(*want))
    assert not any("adam" in name.lower() for name in captured_names())
    assert "TW133" in skipped()


def test_forward_of_torchs_modules_that_hold_others():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3)).eval()
    with torch.no_grad():
        same(lambda x: each(net, x, x)[1], torch.ones(2, 3))
    assert "Sequential.forward" in captured_names() and "Linear.forward" not in captured_names()


def test_steps_of_custom_autograd_functions_stay_eager():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def f(x):
        y = x + 1
        z = Doubled.apply(y).sum()
        z.backward()
        return z

    g = compiled(f)
    for _ in range(4):
        x, other = (torch.ones(2, requires_grad=True) for _ in "ab")
        assert torch.equal(g(x), f(other)) and torch.equal(x.grad, other.grad)
    assert not {"forward", "backward"} & {name.rpartition(".")[2] for name in captured_names()}


def test_callbacks_of_c_functions():
    def by_sum(t):
        return (t * 2).sum().item()

    def f(x):
        rows = [x, -x, x * 3]
        rows.sort(key=by_sum)
        return torch.stack([*rows, *map(leaf, rows)])

    same(f, torch.ones(2), torch.arange(2.0))


def test_a_debugger_sees_every_line_below():
    lines = set()

    def tracer(frame, event, argument):
        if frame.f_code is leaf.__code__:
            lines.add(event)
        return tracer

    g = compiled(lambda x: each(leaf, x, x)[1])
    g(torch.ones(2)), g(torch.ones(2))
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        g(torch.ones(2))
    finally:
        sys.settrace(before)
    assert {"call", "line", "return"} <= lines


def test_an_interrupt_in_a_callback_arrives():
    def stopping(x):
        y = x * 2
        if stop:
            signal.raise_signal(signal.SIGINT)
        return y

    stop = []
    g = compiled(lambda x: each(stopping, x, x)[1])
    g(torch.ones(2)), g(torch.ones(2))
    stop.append(1)
    with pytest.raises(KeyboardInterrupt):
        g(torch.ones(2))
    stop.clear()
    assert torch.equal(g(torch.ones(2)), torch.full((2,), 2.0))


def test_frames_called_from_an_except_block():
    def noting(x):
        return x * 2, type(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]).__name__

    def f(x):
        try:
            raise KeyError("a")
        except KeyError:
            kept = each(noting, x, x)
        return torch.stack([value for value, _ in kept]), [name for _, name in kept]

    g = compiled(f)
    for _ in range(3):
        assert g(torch.ones(2))[1] == f(torch.ones(2))[1] == ["KeyError", "KeyError"]


def test_coroutines_and_generators_stay_eager():
    async def later(x):
        return leaf(x)

    def rows(x):
        yield leaf(x)
        yield leaf(x) + 1

    def f(x):
        return torch.stack([asyncio.run(later(x)), *each(list, rows(x))[0]])

    same(f, torch.ones(2))
    assert not {"later", "rows"} & {name.rpartition(".")[2] for name in captured_names()}


def test_two_backends_have_their_own_entries():
    seen = {"a": 0, "b": 0}

    def backend(name):
        def compile_graph(graph, inputs):
            seen[name] += 1
            return graph
        return compile_graph

    def f(x):
        return sum(each(leaf, x, x)) * 2

    one, two = (thruway.compile(lambda x: f(x), backend=backend(name)) for name in "ab")
    for _ in range(3):
        assert torch.equal(one(torch.ones(2)), two(torch.ones(2)))
    assert seen["a"] == seen["b"] > 0


def test_force_eager_inside_a_region():
    def f(x):
        return each(leaf, x, x)[1]

    g = compiled(f)
    g(torch.ones(2)), g(torch.ones(2))
    hits = native.core().hook_stats()["hits"]
    with thruway.set_stance("force_eager"):
        assert torch.equal(g(torch.ones(2)), f(torch.ones(2)))
    assert native.core().hook_stats()["hits"] == hits
    g(torch.ones(2))
    assert native.core().hook_stats()["hits"] > hits


def test_reset_asks_anew():
    g = compiled(lambda x: each(leaf, x, x)[1])
    for _ in range(2):
        thruway.reset()
        g(torch.ones(2)), g(torch.ones(2))
        assert "leaf" in captured_names()


def raises_in_python(x):
    if x.shape[0] == 3:
        raise ValueError("three")
    return leaf(x)


def raises_over_metadata(x):
    return x.relu() @ torch.ones(2, 2)


def raises_in_the_graph(x):
    return x.relu()[torch.tensor([0, 2])]


RAISING = pytest.mark.parametrize("fails, error, wrong", [
    (raises_in_python, ValueError, 3), (raises_over_metadata, RuntimeError, 3), (raises_in_the_graph, IndexError, 2),
])


def raised_by(function, x):
    try:
        return function(x)
    except Exception as error:
        return type(error), str(error)


@RAISING
def test_code_that_raises_costs_no_capture_of_what_it_calls(fails, error, wrong):
    """Neither the function that answers for its graph, nor what that calls, is looked at again."""
    def middle(x):
        return fails(x + 1)

    def below(x):
        return each(middle, x)

    def behind(x):
        each(str, 1)
        return middle(x)

    for f, names in ((below, ["below", "middle"]), (behind, ["behind", "behind"])):
        thruway.reset()
        g = compiled(f)
        for _ in range(5):
            assert raised_by(g, torch.ones(wrong)) == raised_by(f, torch.ones(wrong)) and raised_by(g, torch.ones(wrong))[0] is error
        names_seen = [event.function.rpartition(".")[2] for event in thruway.surface.lazy.pipeline().journal.of_kind("capture")]
        assert names_seen == names


@RAISING
def test_code_that_raised_is_captured_where_it_does_not(fails, error, wrong):
    def f(x):
        return each(fails, x, x)[1]

    right = 5 - wrong
    g = compiled(f)
    for _ in range(3):
        assert raised_by(g, torch.ones(wrong))[0] is error
    for _ in range(3):
        assert torch.equal(g(torch.ones(right)), f(torch.ones(right))) and raised_by(g, torch.ones(wrong))[0] is error
    before = native.core().hook_stats()["hits"]
    g(torch.ones(right))
    assert native.core().hook_stats()["hits"] == before + 2 and captures_of(fails.__name__) == 2


def test_a_function_found_wanting_is_not_captured_twice():
    """The frame of a compiled function that runs as it is belongs to that, also inside the region of another."""
    def waits(x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return leaf(x)

    inner = compiled(waits)
    g = compiled(lambda x: each(lambda y: raised_by(inner, y), x, x, x)[0])
    for _ in range(4):
        assert g(torch.ones(3)) == (ValueError, "three")
    assert [event.function.rpartition(".")[2] for event in thruway.surface.lazy.pipeline().journal.of_kind("capture")].count("waits") == 1


def test_entries_end_with_what_was_compiled():
    class Backend:
        def __call__(self, graph, inputs):
            return graph

    def made():
        backend = Backend()
        g = thruway.compile(lambda x: each(leaf, x, x)[1], backend=backend)
        g(torch.ones(2)), g(torch.ones(2))
        assert native.core().hook_get_entries(leaf.__code__)
        return weakref.ref(backend)

    keeping = compiled(lambda x: each(leaf, x, x)[1])
    keeping(torch.ones(2)), keeping(torch.ones(2))
    kept = native.core().hook_get_entries(leaf.__code__)
    gone = made()
    gc.collect()
    gc.collect()                                                 # what the first found to be the last of its region
    assert gone() is None and kept and native.core().hook_get_entries(leaf.__code__) == kept
    hits = native.core().hook_stats()["hits"]
    keeping(torch.ones(2))
    assert native.core().hook_stats()["hits"] > hits


def test_a_backend_that_calls_what_it_compiles():
    def backend(graph, inputs):
        if not inside:
            inside.append(True)
            assert torch.equal(g(torch.ones(3)), f(torch.ones(3))) and torch.equal(g(torch.ones(3)), f(torch.ones(3)))
            inside.pop()
        return graph

    def scaled(by):
        return lambda x: (x * by).relu()

    def f(x):
        return sum(each(scaled(by), x)[0] for by in (2, 3, 4))

    inside = []
    g = thruway.compile(lambda x: f(x), backend=backend)
    for _ in range(3):
        assert torch.equal(g(torch.ones(2)), f(torch.ones(2)))


def test_what_looks_at_frames_and_finalizers_are_left_alone():
    class Held:
        def __init__(self, value):
            self.value = value

        def __del__(self):
            seen.append(float((self.value * 2).sum()))

    def caller(x):
        return sys._getframe(1).f_code.co_name, leaf(x)

    def dropping(x, maker=Held):
        each(maker, x)
        return leaf(x)

    seen = []
    g = compiled(lambda x: [each(caller, x, x)[1], each(dropping, x, x)[1]])
    for _ in range(4):
        assert g(torch.ones(2))[0][0] == ("<listcomp>" if sys.version_info < (3, 12) else "each")
    gc.collect()
    assert not {"caller", "__del__"} & {name.rpartition(".")[2] for name in captured_names()} and seen == [4.0] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_below_a_break_runs_plain():
    def forking(x):
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.equal(each(leaf, x)[0], leaf(x)) and not native.core().hook_stats()["on_top"] else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    g = compiled(lambda x: (each(leaf, x, x)[1], each(forking, x)[0]))
    assert [g(torch.ones(2))[1] for _ in range(3)] == [0, 0, 0]
