"""Loops whose test is a tensor's stay in the graph: a round is compiled once, and values, identity, errors, gradients and memory equal eager's."""

import math
import signal
import threading
import time

import pytest
import torch

import thruway
from thruway.capture.conditional import WhileLoop
from capture.test_15_branches import LOG, assert_same, compare, fresh, graph_of, outcome

assert fresh
X = [torch.randn(4, 4, generator=torch.Generator().manual_seed(i)) * scale for i, scale in enumerate((1.0, 100.0, 0.01, 5.0))]
W = torch.randn(4, 4, generator=torch.Generator().manual_seed(9)) * 0.3


def halves(x):
    n = 0
    while x.norm() > 1:
        x = x / 2
        n += 1
    return x, n


def two_tests(x):
    i = 0
    err = x.abs()
    while (err > 0.1).any() and i < 6:
        err = err * 0.5
        i += 1
    return err, i


def either_test(x):
    n = 0.0
    while x.norm() > 1 or n < 2.5:
        x = x * 0.7
        n += 0.5
    return x, n


def left_by_break(x):
    n = 0
    while True:
        x = x * 0.5
        if x.abs().max() < 0.1:
            break
        n += 1
    return x + n


def break_at_the_top(x):
    while True:
        if x.norm() < 1:
            break
        x = x @ W
    return x


def range_with_break(x):
    for i in range(50):
        x = x * 0.5
        if x.abs().max() < 0.1:
            break
    return x, i


def range_with_return(x):
    for i in range(3, 11, 2):
        x = x * 0.5
        if x.abs().max() < 0.1:
            return x, i
    return x * 2, -1


def range_with_else(x):
    for i in range(5):
        x = x * 0.5
        if x.abs().max() < 0.1:
            break
    else:
        x = x + 100
    return x, i


def all_done(x):
    done = torch.zeros(4, dtype=torch.bool)
    while not done.all():
        x = x + 1
        done = done | (x.flatten()[:4] > 5)
    return x, done


def zero_dim_counter(x):
    n = torch.zeros((), dtype=torch.int64)
    while x.norm() > 1 and n < 5:
        x = x / 2
        n = n + 1
    return x, n


def counter_in_place(x):
    x, n = x.clone(), torch.tensor(0)
    while x.norm() > 1:
        x /= 2
        n += 1
    return x, n


def writes_its_argument(x):
    with torch.no_grad():
        while x.norm() > 1:
            x /= 2
    return x


def fills_rows(x):
    out, i = torch.zeros(8, 4), 0
    while x.norm() > 0.5 and i < 8:
        x = x * 0.6
        out[i] = x[0]
        i += 1
    return out, i


def continues(x):
    n = 0
    while x.norm() > 1:
        x = x / 2
        if x.sum() > 0:
            continue
        n += 1
    return x, n


def branches_inside(x):
    steps = 0
    while x.norm() > 1:
        if x.sum() > 0:
            x = x / 3
            steps = steps + 2
        else:
            x = (x @ W).tanh()
    return x, steps


def tuple_of_state(x):
    state = (x, 0)
    while state[0].norm() > 1:
        state = (state[0] / 2, state[1] + 1)
    return state


def not_a_number(x):
    y, n = x.sum() * math.nan, 0
    while y > 0:
        y = y - 1
        n += 1
    while not (y == y) and n < 3:
        n += 1
    return y, n


def step_size(x):
    t = 1.0
    while (x * t).norm() > 1:
        t = t * 0.5
    return x * t, t


def last_but_one(x):
    before = x
    while x.norm() > 1:
        before = x
        x = x / 3
    return before, x


def exchanges(x):
    a, b, n = x, x * 2, 0
    while a.norm() > 0.5 and n < 5:
        a, b = b * 0.3, a
        n += 1
    return a, b


def loop_in_a_loop(x):
    k = 0
    while x.norm() > 1:
        y = x
        while y.sum().abs() > 1:
            y = y / 2
            k += 1
        x = x / 3 + y * 0.01
    return x, k


def loop_in_a_side(x):
    if x.sum() > 0:
        while x.norm() > 1:
            x = x / 2
    else:
        x = x * 2
    return x + 1


def in_a_closure(x):
    def twice():
        return x * 2
    while x.norm() > 1:
        x = x / 2
    return twice()


def in_a_dict(x):
    state = {"x": x, "n": 0, "name": "state"}
    while state["x"].norm() > 1:
        state["x"] = state["x"] / 2
        state["n"] += 1
    return state


def in_a_list(x):
    pair = [x, 0]
    while pair[0].norm() > 1:
        pair[0] = pair[0] / 2
        pair[1] = pair[1] + 1
    return pair


def settles(x):
    y, err, n = x.abs() + 0.1, float("inf"), 0
    while err > 1e-3:
        z = (y + (x.abs() + 0.1) / y) / 2
        err = (z - y).abs().max()
        y = z
        n += 1
    return y, n


def found_in_the_loop(x):
    while True:
        x = x * 0.5
        if x.abs().max() < 1:
            found = x + 1
            break
    return found


def in_a_with(x):
    with torch.no_grad():
        x = x * 1
        while x.norm() > 1:
            x = x / 2
    return x


def functions_inside(x):
    def step(t, k):
        for _ in range(2):
            t = (t @ W) * k
        return t
    n = 1
    while step(x, n).norm() > 1:
        x = step(x, 1)
        n = n + 1 if n < 3 else n
    return x, n


def large_numbers(x):
    n = 1
    while x.norm() > 1:
        x = x / 2
        n = n * 3 + 1
    return x, n


def two_loops(x):
    n = 0
    while x.norm() > 1:
        x = x / 2
        n += 1
    while x.norm() < 10:
        x = x * 3 + 0.1
        n += 10
    return x, n


def only_counts(x):
    n, total = 0, x.abs().sum()
    while total > n:
        n += 1
    return n


ONE_GRAPH = [
    halves, two_tests, either_test, left_by_break, break_at_the_top, range_with_break, range_with_return, range_with_else, all_done, zero_dim_counter,
    counter_in_place, fills_rows, continues, branches_inside, tuple_of_state, not_a_number, step_size, last_but_one,
    exchanges, loop_in_a_loop, loop_in_a_side, in_a_closure, in_a_dict, in_a_list, settles, found_in_the_loop, in_a_with, functions_inside,
    large_numbers, two_loops, only_counts,
]


def prints(x):
    while x.norm() > 1:
        x = x / 2
        print(x.shape)
    return x


def collects(x):
    seen = []
    while x.norm() > 1:
        x = x / 2
        seen.append(x.sum())
    return x, seen


def logs(x):
    while x.norm() > 1:
        x = x / 2
        LOG.append(1)
    return x


def draws(x):
    while x.norm() > 1:
        x = x / 2 + torch.rand(4, 4) * 0.01
    return x


def shrinks(x):
    x = x.flatten()
    while x.numel() > 2 and x.norm() > 1:
        x = x[:-1]
    return x


def masks(x):
    x = x.flatten()
    while x.norm() > 1:
        x = x[x.abs() < x.abs().max()]
    return x


def changes_dtype(x):
    x = (x * 10).int()
    while x.sum().abs() > 3:
        x = x / 2
    return x


def changes_kind(x):
    n = 0
    while x.norm() > 1:
        x = x / 2
        n = n + 0.5 if n else 0.25
    return x, n


def renames(x):
    name = "a"
    while x.norm() > 1:
        x = x / 2
        name += "b"
    return x, name


def writes_what_it_hands_on(x):
    y = x.clone()
    before = y
    while y.norm() > 1:
        before = y
        y = y / 2
        before += 1
    return y, before


def writes_through_a_view(x):
    buffer = x.clone()
    row = buffer[0]
    while row.norm() > 1:
        buffer /= 2
        row = buffer[1]
    return row, buffer


def of_known_length(x):
    if x.sum() > 0:
        for _ in range(3):
            x = x.sin()
        while True:
            x = x.cos()
            if x.dim():
                break
    return x + 1


def over_modules(x):
    for layer in (torch.sin, torch.cos, torch.tanh):
        x = layer(x)
        if x.sum() > 1:
            break
    return x


MISSES = [prints, collects, logs, draws, shrinks, masks, changes_dtype, renames, writes_through_a_view, over_modules]
RIGHT = [writes_its_argument, changes_kind, writes_what_it_hands_on]


@pytest.mark.parametrize("grad", (False, True))
@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_stays_in_one_graph(function, backend, grad):
    found = compare(function, backend, grad, X)
    assert (found["graphs"], found["graph_breaks"]) == (1, 0), [event.reason for event in thruway.pipeline.journal.of_kind("graph_break")]


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", [*MISSES, *RIGHT], ids=lambda f: f.__name__)
def test_breaks_and_is_right(function, backend):
    found = compare(function, backend, False, X)
    assert function in RIGHT or found["graph_breaks"] + found["eager"] >= 1


def test_a_round_is_one_kernel():
    def f(x):
        i = 0
        while (x.abs() > 0.01).any() and i < 20:
            x = torch.tanh(x) * 0.9
            i += 1
        return x, i
    loop = next(node.target for node in graph_of(f, torch.randn(8)).nodes if isinstance(node.target, WhileLoop))
    assert not any(node.meta.get("opaque") or node.target == "item" for node in loop.sides[0].graph.nodes)


def test_other_loops_are_unrolled():
    assert not any(isinstance(node.target, WhileLoop) for node in graph_of(of_known_length, X[0]).nodes)


def test_a_round_that_raises():
    def f(x):
        i = 0
        while x.sum() > 0:
            x = x - 1
            x = x.index_select(0, torch.tensor([0, 1, 2]) + i // 3)
            i += 1
        return x, i
    for backend in ("eager", "thruway"):
        compiled = thruway.compile(f, backend=backend)
        for start in (torch.zeros(3), torch.tensor([5.0, 1.0, 2.0]), torch.zeros(3)):
            assert_same(outcome(f, start.clone()), outcome(compiled, start.clone()))


def test_a_round_of_the_users_that_raises():
    def f(x):
        n = 0
        while x.norm() > 1:
            x = x / 2
            n += 1
            if n > 3:
                raise ValueError(f"too many: {n}, {x.shape}")
        return x, n
    for backend in ("eager", "thruway"):
        compiled = thruway.compile(f, backend=backend)
        for scale in (1.0, 1000.0, 4.0):
            x = torch.ones(2) * scale
            assert_same(outcome(f, x.clone()), outcome(compiled, x.clone()))


def test_an_error_after_writes_leaves_what_eager_leaves():
    def f(x):
        i = 0
        while x.sum() > 0:
            x -= 1
            x[i] = 0
            i += 1
        return x, i
    for backend in ("eager", "thruway"):
        compiled = thruway.compile(f, backend=backend)
        for start in (torch.ones(3), torch.ones(2) * 10, torch.ones(3)):
            given, expected = start.clone(), start.clone()
            right, found = outcome(f, expected), outcome(compiled, given)
            assert_same(expected, given)
            assert right[0][0] is found[0][0] if isinstance(right[0][0], type) else assert_same(right, found) is None


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_a_loop_that_never_ends_is_interrupted():
    def f(x):
        while x.sum() > 0:
            x = x * 1
        return x
    compiled = thruway.compile(f)
    assert_same(compiled(-torch.ones(3)), -torch.ones(3))
    threading.Thread(target=lambda: (time.sleep(0.3), signal.raise_signal(signal.SIGINT))).start()
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.ones(3))
    assert_same(compiled(-torch.ones(3)), -torch.ones(3))
    assert thruway.metrics()["graph_breaks"] == 0


def test_the_argument_itself_where_no_round_runs():
    compiled = thruway.compile(halves)
    small, large = torch.zeros(2), torch.ones(2) * 8
    assert compiled(small)[0] is small
    assert compiled(large)[0] is not large


def test_writes_to_a_result_that_may_be_the_argument():
    def f(x):
        y = x
        while y.norm() > 1:
            y = y / 2
        y += 1
        return y
    for backend in ("eager", "thruway"):
        compiled = thruway.compile(f, backend=backend)
        for x in X:
            given, expected = x.clone(), x.clone()
            assert_same(f(expected), compiled(given))
            assert_same(expected, given)


def test_changing_sizes_and_numbers():
    def f(x, limit):
        i = 0
        while x.norm() > 1 and i < limit:
            x = x * 0.5
            i += 1
        return x, i
    compiled = thruway.compile(f)
    for n, limit in ((3, 2), (5, 9), (7, 4), (9, 30), (4, 0)):
        for scale in (0.01, 50.0):
            x = torch.full((n, 2), scale)
            assert_same(compiled(x, limit), f(x, limit))
    assert thruway.metrics()["graph_breaks"] == 0


def test_modules_and_buffers():
    class Settle(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
            self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            while x.abs().max() > 0.5:
                x = self.norm(self.layer(x)).tanh() * 0.4
                self.rounds += 1
            return x
    torch.manual_seed(0)
    ours = Settle()
    eager = Settle()
    eager.load_state_dict(ours.state_dict())
    compiled = thruway.compile(ours)
    with torch.no_grad():
        for mode in (True, False):
            ours.train(mode)
            eager.train(mode)
            for x in X:
                assert_same(eager(x), compiled(x))
                assert_same([*eager.buffers()], [*ours.buffers()])


@pytest.mark.parametrize("backend", ["eager", "thruway"])
def test_a_range_of_no_rounds_leaves_the_tensor_that_was_there(backend):
    def view_of_it(x, n):
        for i in range(int(n) % 5):
            x = x + i
        return x[0]

    def beside_it(x, n):
        y = x = x * 2
        for i in range(int(n) % 5):
            x = x + i
        return x[0], y

    def of_its_own(x, n):
        y = x * 2
        for i in range(int(n) % 5):
            y = y + i
        return y[0], x
    for function in (view_of_it, beside_it, of_its_own):
        compiled = thruway.compile(function, backend=backend)
        for n in (0.0, 3.0, 1.0, 0.0):
            found = []
            for call in (function, compiled):
                x = X[0].clone()
                made = call(x, torch.tensor(n))
                one, other = made if isinstance(made, tuple) else (made, x)
                found.append((one.tolist(), one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()))
            assert found[0][1] == found[1][1] and torch.allclose(torch.tensor(found[0][0]), torch.tensor(found[1][0])), (function.__name__, n)
        assert thruway.metrics()["graph_breaks"] == 0


def test_a_loop_without_end_that_the_run_does_not_come_to():
    def raises_first(x):
        i = 0
        while i < 3:
            i += 1
            if x[0] > 0:
                raise IndexError(i)
            i = 1
        return x

    def ends(x):
        for i in range(60):
            if x[0] > i:
                raise IndexError(i)
        return x + i
    compiled = thruway.compile(raises_first, backend="eager")
    with pytest.raises(IndexError, match="1"):
        compiled(torch.ones(2))
    compiled = thruway.compile(ends, backend="eager")
    assert_same(ends(-torch.ones(2)), compiled(-torch.ones(2)))
    with pytest.raises(IndexError, match="0"):
        compiled(torch.ones(2))
