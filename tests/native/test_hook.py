"""The frame hook: replacements and entries on frames that nobody of ours calls.

Each replacement runs in place and, with `force`, by an ordinary call, as where the data stack has no room.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from thruway import native
from thruway.frame import hook
from thruway.native import RegionFailed
from thruway.pipeline import below

pytestmark = pytest.mark.skipif(not native.features()["hook"], reason="this build has no frame hook")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    hook.install(None)
    yield
    stats = native.core().hook_stats()
    assert stats["depth"] == 0 and not stats["on_top"]
    hook.install(None)
    below.is_installed = False                           # the pipeline's own callback is gone
    native.core().hook_force_call(False)


@pytest.fixture(params=[False, True], ids=["in place", "by a call"])
def force(request: pytest.FixtureRequest) -> bool:
    native.core().hook_force_call(request.param)
    return request.param


def replace(old: Callable, new: Callable, guard: object = None) -> None:
    target = hook.CodeTarget(old.__code__)
    target.entries = (*target.entries, (guard, new.__code__))


def region(function: Callable) -> Callable:
    def run(*args, **kwargs):
        with hook.active():
            return function(*args, **kwargs)

    hook.skip(run.__code__)
    return run


def test_types_guard_and_defaults(force):
    def f(x, y=3):
        return x + y

    def new(x, y=3):
        return "new", x, y

    replace(f, new, (int, int))
    inside = region(f)
    assert inside(1) == ("new", 1, 3) and inside(1, y=5) == ("new", 1, 5)
    assert inside(1.0) == 4.0
    assert f(1) == 4


def test_variable_arguments(force):
    def f(a, /, b, *args, k=7, **kw):
        return a, b, args, k, kw

    def new(a, /, b, *args, k=7, **kw):
        parts = [a, b, args, k, kw]
        read = lambda: [part for part in parts]  # noqa: E731
        return (*read(), "new")

    replace(f, new)
    inside = region(f)
    assert inside(1, 2, 3, 4, k=5, m=6) == (1, 2, (3, 4), 5, {"m": 6}, "new")
    assert inside(1, b=2) == (1, 2, (), 7, {}, "new")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        inside(1)


def make_closures(n):
    def old(x):
        def inner():
            return x + n

        return inner()

    def with_cells(x):
        times = [i * n for i in range(3)]

        def inner():
            nonlocal x
            x += n
            return x, n, times

        return inner()

    def without_cells(x):
        return x, n

    return old, with_cells, without_cells


def test_closures_and_cells(force):
    old, with_cells, without_cells = make_closures(10)
    replace(old, with_cells, (int,))
    replace(old, without_cells, (str,))
    inside = region(old)
    assert inside(1) == (11, 10, [0, 10, 20]) and inside("a") == ("a", 10) and inside(1.5) == 11.5
    assert region(make_closures(20)[0])(1) == (21, 20, [0, 20, 40])


def test_exceptions_keep_the_frame(force):
    def f(x):
        return x

    def new(x):
        y = x * 2
        raise ValueError(y)

    replace(f, new)
    with pytest.raises(ValueError) as error:
        region(f)(4)
    traceback = error.value.__traceback__
    while traceback.tb_next:
        traceback = traceback.tb_next
    assert error.value.args == (8,) and traceback.tb_frame.f_locals == {"x": 4, "y": 8}
    gc.collect()
    assert traceback.tb_frame.f_locals["y"] == 8


def test_a_guard_that_raises_leaks_nothing():
    def f(x):
        return x

    def bad(x):
        raise KeyError("guard")

    class Token:
        pass

    replace(f, lambda x: x, bad)
    token = Token()
    watch = weakref.ref(token)
    with pytest.raises(KeyError, match="guard"):
        region(f)(token)
    del token
    gc.collect()
    assert watch() is None


def test_generators_pass_through():
    log, seen = [], []

    def generator(n):
        try:
            for i in range(n):  # noqa: UP028 (send() must reach this frame)
                yield i
        except ValueError:
            yield "caught"
        finally:
            log.append("closed")

    def user(n):
        it = generator(n)
        first = next(it), it.send(5)
        thrown = it.throw(ValueError)
        it.close()
        return first, thrown, sum(generator(5)), [x for x in generator(3)], dict(zip("ab", generator(2), strict=True)), list(map(str, generator(2)))

    hook.install(lambda code, function, locals: seen.append(code.co_name))
    assert region(user)(4) == ((0, 1), "caught", 10, [0, 1, 2], {"a": 0, "b": 1}, ["0", "1"])
    assert "user" in seen and "generator" not in seen


def test_a_generator_outlives_its_region():
    def make():
        def generator():
            yield from range(10)

        it = generator()
        next(it)
        return it

    it = region(make)()
    assert next(it) == 1 and list(it)[-1] == 9


def test_coroutines():
    def f(x):
        return x

    def new(x):
        return "new", x

    async def main(x):
        await asyncio.sleep(0)
        return f(x)

    replace(f, new)
    assert region(lambda: asyncio.run(main(5)))() == ("new", 5)


def test_class_bodies_and_exec():
    def dynamic():
        class Thing:
            z = 3

            def method(self):
                return super().__repr__()[:1], self.z

        namespace = {}
        exec("def q(a): return a + 1\nr = q(1)", namespace)
        return Thing().method()[1], namespace["r"]

    hook.install(lambda code, function, locals: None)
    assert region(dynamic)() == (3, 2)


def test_super_without_arguments(force):
    class Base:
        def method(self):
            return "B"

    class Derived(Base):
        def method(self, x):
            return super().method()

        def other(self, x):
            y = super().method() + x
            return (lambda: (y, self, __class__))()

    replace(Derived.method, Derived.other)
    d = Derived()
    assert region(Derived.method)(d, "q") == ("Bq", d, Derived)


def test_deep_recursion_with_a_callback():
    def deep(n):
        return 0 if n == 0 else 1 + deep(n - 1)

    namespace = {"deep": deep}
    names = "".join(f"a{i} = " for i in range(60))
    exec(f"def wide(deep):\n def new(n):\n  {names}n\n  return 0 if n == 0 else 1 + deep(a59 - 1)\n return new", namespace)
    new = namespace["wide"](deep)

    def callback(code, function, locals):
        if code is deep.__code__:
            hook.CodeTarget(code).entries = ((None, new.__code__),)
            return new.__code__

    hook.install(callback)
    before = native.core().hook_stats()["calls_instead"]
    assert region(deep)(600) == 600
    assert native.core().hook_stats()["calls_instead"] > before
    with pytest.raises(RecursionError):
        region(deep)(100_000)


def test_a_raised_recursion_limit_does_not_crash():
    script = """
import sys
from thruway.frame import hook
hook.install(lambda code, function, locals: None)
sys.setrecursionlimit(60_000)
def plain(n): return 0 if n == 0 else 1 + plain(n - 1)
with hook.active(): print(plain(50_000))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "50000", (done.returncode, done.stderr[-500:])


def test_threads():
    def f(x):
        return x + 3

    def new(x):
        return "new", x

    replace(f, new)
    results = {}

    def work(k):
        inside = region(f)
        results[k] = sum(inside(i)[1] if k % 2 else f(i) for i in range(2000))

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert results == {k: sum(range(2000)) + (0 if k % 2 else 6000) for k in range(8)}


def test_tracing_profiling_and_frames():
    def f(x):
        return x

    def new(x):
        frame = sys._getframe()
        return frame.f_code.co_name, dict(locals())["x"], frame.f_back.f_code.co_name

    replace(f, new)

    def outer():
        with hook.active():
            return f(3)

    hook.skip(outer.__code__)
    assert outer() == ("new", 3, "outer")
    events = []

    def tracer(frame, event, argument):
        events.append((event, frame.f_code.co_name))
        return tracer

    old_trace, old_profile = sys.gettrace(), sys.getprofile()
    sys.settrace(tracer)
    assert outer() == 3                                          # a debugger sees the lines that the user wrote
    sys.settrace(old_trace)
    assert ("call", "f") in events and ("return", "f") in events
    events.clear()
    sys.setprofile(lambda frame, event, argument: events.append((event, frame.f_code.co_name)))
    outer()
    sys.setprofile(old_profile)
    assert ("call", "new") in events and ("return", "new") in events


def test_nothing_leaks(force):
    class Token:
        pass

    def f(a, b):
        return b

    def new(a, b):
        sys._getframe()
        return (lambda: b)()

    def failing(a):
        return a

    def fails(a):
        raise ValueError

    replace(f, new)
    replace(failing, fails)
    inside, inside_failing = region(f), region(failing)
    token = Token()
    watch, before = weakref.ref(token), (sys.getrefcount(token), sys.getrefcount(new.__code__), sys.getrefcount(f.__code__))
    for _ in range(1000):
        inside(token, token)
        with pytest.raises(ValueError):
            inside_failing(token)
    gc.collect()
    assert (sys.getrefcount(token), sys.getrefcount(new.__code__), sys.getrefcount(f.__code__)) == before
    del token
    assert watch() is None
    for _ in range(5_000):
        inside(1, 2)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50_000):
        inside(1, 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 4000


def test_what_cannot_be_exchanged_is_refused():
    def f(x):
        return x

    def generator(x, y=3):
        yield x

    for new in (lambda x, y: x, lambda: 1, generator, make_closures(1)[0], lambda *x: x):
        with pytest.raises(ValueError):
            replace(f, new)


def entry(graph, finish=None, inputs=1, **more):
    core = native.core()
    program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("is_type", 0, 0, 0, int, 0)), (0,) * inputs)
    return core.Entry(program, core.read_state(), graph, finish, **more)


def test_entries_on_frames():
    def f(x, *rest):
        return "eager", x

    hook.CodeTarget(f.__code__).entries = (entry(lambda x: (x + 1,), lambda x, rest, out: (x, rest, out)),)
    inside = region(f)
    for _ in range(3):
        assert inside(1, 2) == (1, (2,), 2) and inside("a") == ("eager", "a")
    with torch.no_grad():
        assert inside(1) == ("eager", 1)


def test_entries_on_frames_that_fail_or_run_eager():
    def f(x):
        return "eager", x

    def fails(x):
        raise RegionFailed

    def raises(x):
        raise OSError("kernel")

    inside, target = region(f), hook.CodeTarget(f.__code__)
    target.entries = (entry(fails),)
    assert inside(1) == ("eager", 1)
    target.entries = (entry(None),)
    assert inside(1) == ("eager", 1)
    target.entries = (entry(raises),)
    with pytest.raises(OSError, match="kernel"):
        inside(1)


def test_the_callback_gives_an_entry_once():
    asked = []

    def f(x):
        return "eager", x

    def left_alone(x):
        return f(x)

    def callback(code, function, locals):
        asked.append((code.co_name, function.__name__, locals))
        if code is f.__code__:
            hook.CodeTarget(code).entries = (entry(lambda x: (x + 1,), single_output=True),)
            return hook.CodeTarget(code).entries[0]

    hook.install(callback)
    inside = region(left_alone)
    assert [inside(1), inside(2)] == [2, 3]
    assert asked == [("left_alone", "left_alone", (1,)), ("f", "f", (1,))]


def test_the_hook_is_off_inside_graphs_and_on_in_finish_where_wanted():
    def callee(x):
        return "eager"

    def f(x):
        return callee(x)

    replace(callee, lambda x: "replaced")
    core = native.core()
    for hooked in (False, True):
        made = entry(lambda x: (callee(x),), lambda x, cell, inner: (inner, callee(x)), hooked=hooked)
        compiled = core.Compiled(f, lambda *a: None)
        compiled.entries = (made,)
        assert compiled(1) == ("eager", "replaced" if hooked else "eager")
        assert compiled("a") == "eager"


def test_a_function_that_answers_itself_is_not_taken_over_again():
    """Its compiled form has decided; what it calls is, where the entry says so, and never after a miss or a region that gave up."""
    def callee(x):
        return "eager"

    def f(x):
        return callee(x)

    def gives_up(x):
        raise native.RegionFailed("early")

    replace(callee, lambda x: "replaced")
    replace(f, lambda x: callee and "taken over")
    core = native.core()
    compiled = core.Compiled(f, lambda *a: None)
    for made, answer in ((entry(None, hooked=1), "replaced"), (entry(None, hooked=hook.OFF), "eager"), (entry(None), "replaced"),
                         (entry(gives_up, hooked=1), "eager")):
        compiled.entries = (made,)
        assert region(compiled)(1) == answer and region(compiled)("a") == "eager"
        assert region(f)(1) == "taken over" and region(callee)(1) == "replaced"


def test_the_hook_is_off_below_a_frame_that_its_callback_says_so_of():
    def callee(x):
        return "eager"

    def f(x):
        return callee(x)

    asked = []

    def callback(code, function, arguments):
        asked.append(code.co_name)
        return answers.pop()

    replace(callee, lambda x: "replaced")
    hook.install(callback)
    answers = [False, ...]
    assert [region(f)(1), region(f)(1)] == ["eager", "replaced"] and asked == ["f", "f"]


@pytest.mark.parametrize("thread", ["paused", "another"])
def test_deep_recursion_elsewhere_while_the_evaluator_is_there(thread):
    """Python calls take C stack then, in every thread: past a mark they do not."""
    script = f"""
import sys, threading
from thruway import native
from thruway.frame import hook
def down(n):
    return n if n == 0 else down(n - 1)
def paused():
    was = hook.pause()
    down(100_000)
    hook.resume(was)
def another():
    thread = threading.Thread(target=down, args=(100_000,))
    thread.start()
    thread.join()
hook.install(None)
sys.setrecursionlimit(200_000)
with hook.active():
    {thread}()
    assert native.core().hook_stats()["on_top"]
print("on" if native.core().hook_stats()["on_top"] else "off")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "off\n", "")


def test_with_torchs_own_hook():
    """Between threads torch may take its hook off in another order than it was put on, and ours with it: then a frame runs as it was written."""
    script = """
import sys, threading, torch
from thruway.frame import hook
hook.install(None)
def inner(x): return x + 1
def new(x): return x + 100
hook.CodeTarget(inner.__code__).entries = ((None, new.__code__),)
graphs = []
def backend(graph, inputs): graphs.append(graph); return graph.forward
x = torch.zeros(3)
@torch.compile(backend=backend)
def compiled(x): return x * 2 + 1
def ours(f):
    def run(*args):
        with hook.active(): return f(*args)
    return torch._dynamo.disable(run)
def outer(x): return inner(compiled(x)) + compiled(x)
for _ in range(2): assert ours(outer)(x).tolist() == [102] * 3 and len(graphs) == 1
def deep(x): return inner(compiled(x)) + 1
deep_ours = ours(deep)
top = torch.compile(lambda x: deep_ours(x + 1) * 2, backend=backend)
for _ in range(3): assert top(x).tolist() == [208.0] * 3
count, wrong = len(graphs), []
def work(k):
    try:
        for _ in range(60):
            if k % 3 == 0: assert top(x).tolist() in ([208.0] * 3, [10.0] * 3)
            elif k % 3 == 1: assert ours(outer)(x).tolist() in ([102] * 3, [3] * 3)
            else: assert compiled(x).tolist() == [1] * 3 and inner(x).tolist() == [1] * 3
    except BaseException as error: wrong.append(repr(error))
sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
for t in threads: t.start()
for t in threads: t.join()
print(wrong, len(graphs) == count)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[] True", (done.returncode, done.stdout, done.stderr[-800:])
