"""Branches on tensors' values stay in the graph: both ways equal eager's, with identity, aliases, gradients, errors, effects and random state."""

import contextlib
import dataclasses
import io
import math

import pytest
import torch
import torch.nn.functional as F

import thruway
from thruway.capture.conditional import Conditional
from thruway.surface import lazy

X = [torch.randn(5, 5, generator=torch.Generator().manual_seed(i)) * (1 + i) + shift for i, shift in enumerate((0.5, -0.6, 1.0, -2.0, 0.1))]


# -- one graph -----------------------------------------------------------------------------------------------------------------------------

def if_else(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y + 1


def expression(x):
    return (x + 1 if x.mean() > 0 else x * 3) * 2


def early_returns(x):
    if x.sum() > 0:
        return x + 1
    if x.max() < 1:
        return x - 2
    return x.sin()


def number_from_tensor(x):
    n = x.sum().item()
    if n > 0:
        scale, positive = 2.0, True
    else:
        scale, positive = 0.5, False
    return x * scale, positive, n > 1.5, not positive


def only_if(x):
    y = x * 2
    if x.sum() > 0:
        y = y + 1
    return y


def gives_its_argument(x):
    if x.sum() > 0:
        x = x + 1
    return x


def either_of_two_results(x):
    y = x * 2
    z = y if x.sum() > 0 else y + 1
    return y, z


def written_afterwards(x):
    y = x * 2
    if x.sum() > 0:
        y = y + 1
    y += 1
    return y


def containers(x):
    if x.sum() > 0 and x.max() > 1:
        return [x + 1, {"a": (x * 2, 3)}]
    return [x + 2, {"a": (x.cos(), 3)}]


@dataclasses.dataclass
class Pair:
    first: object
    second: object


def objects(x):
    pair = Pair(x + 1, [x + 2]) if x.sum() > 0 else Pair(x - 1, [x - 2])
    return pair.first + pair.second[0], pair


def extremes_of_numbers(x):
    return max(x.sum().item(), 0.0), x * min(x.mean().item(), x.max().item()), max(x.argmax().item(), 3)


def integers(x):
    k = int((x > 0).sum())
    n = 3 if k > 12 else 4
    return x * n, n, (x if k == 13 else x * 3) + 0


def truths(x):
    ok = bool(x.sum() > 0) and not (x > 1).any()
    return ok, x + 1 if ok else x - 1, x.sum() > 0 or x.max() > 1


def chain(x):
    total = x.sum()
    if total > 10:
        return x + 1
    elif total > 0:
        return x + 2
    elif total > -10:
        return x + 3
    return x


def exchanged(x):
    a, b = x + 1, x[0]
    c = a if x.sum() > 0 else b + x
    if x.max() > 2:
        a, c = c, a
    return a, c, b


def nested(x):
    if x.sum() > 0:
        if x.max() > 2:
            y = x * 2
        else:
            y = x * 3
    else:
        y = x / 2 if x.min() < -1 else x / 4
    return y


def in_a_loop(x):
    for i in range(4):
        if x.sum() > i:
            x = x - 1
            continue
        x = x + 0.5
    return x


def in_an_inlined_function(x):
    def leaky(t):
        if t.mean() > 0:
            return t + 0
        return t * 0.1
    return leaky(x * 2) + leaky(x - 1)


def in_a_comprehension(x):
    return [row * 2 if row.sum() > 0 else -row for row in x]


def made_inside(x):
    if x.sum() > 0:
        parts = [x + i for i in range(3)]
        parts.append(x)
    else:
        parts = [x - i for i in range(4)]
    return sum(parts)


def closure(x):
    y, n = x, 0.0

    def use():
        return y * 2

    def mark():
        nonlocal n
        n = 1.0
    if x.sum() > 0:
        y = x + 1
        mark()
    else:
        y = x + 2
    return use(), n


class Running:
    def __init__(self, total):
        self.total, self.seen = total, {"count": 0.0}


def older_containers(x):
    found, table, running = [x], {"a": x + 1}, Running(x * 0)
    for row in x:
        if row.sum() > 0:
            found.append(row * 2)
            table["b"] = row
            running.total = running.total + row
            running.seen["count"] = 1.0
        else:
            found.append(row - 1)
            table["b"] = -row
            running.total, running.seen["count"] = running.total - 1, 0.5
            table["a"] = table["a"] + 1
    return found, table, running.total, running.seen


def filled_in_nested_sides(x):
    parts = []
    if x.sum() > 0:
        parts.append(x + 1)
        if x.max() > 2:
            parts.append(x * 2)
            parts[0] = x
        else:
            parts.extend([x * 3])
    else:
        parts += [x, x.sin()]
    return parts


def dropout_on_one_side(x):
    if x.sum() > 0:
        y = F.dropout(x, 0.5)
    else:
        y = x * 2
    return y, torch.rand(2)


def products(x):
    if x.sum() > 0:
        y = (x @ x).relu()
    else:
        y = x.t() @ x - 1
    return y + 1


def index_that_one_side_lacks(x):
    i = x.flatten().argmax()
    if i < 20:
        return x.flatten()[i + 5]
    return x.flatten()[i]


def no_gradient_on_one_side(x):
    if x.sum() > 0:
        with torch.no_grad():
            factor = x.detach() * 2
    else:
        factor = x.detach() * 3
    return factor * x


def clipped(x):
    norm = x.norm()
    if norm > 1.0:
        x = x * (1.0 / norm)
    return x * 1


def asserts(x):
    assert not x.isnan().any(), "nan"
    return x * 2


def raises_in_a_side(x):
    if x.sum() > 0:
        if x.max() > 1.5:
            raise ValueError("large")
    return x * 2


def handles_its_own(x):
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        y = x + 1
    except ValueError:
        y = x - 1
    return y


def classified(x):
    n = x.norm().item()
    return x + 1 if math.isnan(n) or math.isinf(n) else x / n


def same_on_both(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x * 3
    y = x
    return y + 1


def sizes_from_elements(x):
    k = (x > 0).sum().item()
    if k > 12:
        return x.flatten()[:k].sum()
    return x.flatten()[k:].sum()


def rows_of_a_slice(x):
    y = x[0] if x.sum() > 0 else x[1]
    return y + 1


def write_in_a_side_to_its_own(x):
    if x.sum() > 0:
        y = x.clone()
        y[0] = 1
        y.mul_(2)
    else:
        y = x * 0
    return y


ONE_GRAPH = [
    if_else, expression, early_returns, number_from_tensor, only_if, gives_its_argument, either_of_two_results, written_afterwards, containers, objects,
    extremes_of_numbers, integers, truths, chain, exchanged, nested, in_a_loop, in_an_inlined_function, in_a_comprehension, made_inside, closure, older_containers, filled_in_nested_sides, dropout_on_one_side,
    products, index_that_one_side_lacks, no_gradient_on_one_side, clipped, asserts, raises_in_a_side, handles_its_own, classified, same_on_both, sizes_from_elements,
    rows_of_a_slice, write_in_a_side_to_its_own,
]


# -- near misses: a break at the jump, and right -------------------------------------------------------------------------------------------

LOG = []


def appends(x):
    log = []
    if x.sum() > 0:
        log.append(1)
    LOG.append(len(log))
    return x + len(log), log


def other_types(x):
    if x.sum() > 0:
        return x.double()
    return x * 2


def other_shapes(x):
    y = x[:2] if x.sum() > 0 else x
    return y + 1


def other_strides(x):
    y = x * 1
    z = y.t() if x.sum() > 0 else y
    return z.contiguous() + 1, z.stride()


def texts(x):
    name = "large" if x.sum() > 0 else "small"
    return x + len(name), name


def asks_which(x):
    y = x if x.sum() > 0 else x + 1
    return y is x, y + 1


def asks_which_inside(x):
    a = x * 2
    y = a if x.sum() > 0 else x + 1
    return y is a, y is not None, y + a


def writes_either(x):
    y = x * 2
    z = y if x.sum() > 0 else y + 1
    z += 1
    return y + z


def writes_its_argument(x):
    y = x
    if x.sum() > 0:
        y = y + 1
    y.add_(1)
    return y * 2


def writes_an_older_tensor(x):
    y = x * 2
    if x.sum() > 0:
        y.add_(1)
    return y


def uses_an_iterator(x):
    steps = iter([1, 2, 3])
    if x.sum() > 0:
        next(steps)
    return x + next(steps)


def writes_a_dict(x):
    out = {"a": x + 1}
    if x.sum() > 0:
        out["b"] = x + 2
    return out


def is_true(x):
    flag = bool(x.sum() > 0)
    return flag is True, flag == True, [flag, 3].index(True) if flag else None, f"{flag}"      # noqa: E712


MISSES = [
    appends, other_types, other_shapes, other_strides, texts, asks_which, asks_which_inside, writes_either, writes_its_argument,
    writes_an_older_tensor, uses_an_iterator, writes_a_dict, is_true,
]


# -- comparing -----------------------------------------------------------------------------------------------------------------------------

@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.reset()


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, Pair):
        value = [value.first, value.second]
    return [leaf for one in value for leaf in leaves(one)] if isinstance(value, list | tuple) else []


def outcome(function, x):
    """What a call gives or raises, prints, logs and draws, and what is one object or memory with what."""
    LOG.clear()
    torch.manual_seed(3)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = function(x)
        except Exception as error:
            result = type(error), str(error)
    tensors = [*leaves(result), x]
    objects = [[a is b for b in tensors] for a in tensors]
    memory = [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in tensors] for a in tensors]
    return result, out.getvalue(), list(LOG), objects, memory, torch.rand(1).item()


def assert_same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.stride(), a.requires_grad) == (b.dtype, b.shape, b.stride(), b.requires_grad)
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert_same(list(a.values()), list(b.values()))
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            assert_same(one, other)
    elif isinstance(a, Pair):
        assert_same([a.first, a.second], [b.first, b.second])
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=1e-4, nan_ok=True)
    else:
        assert a == b


def compare(function, backend, grad, examples=X):
    compiled = thruway.compile(function, backend=backend)
    for example in examples:
        given, expected = (example.clone().requires_grad_(grad) for _ in range(2))
        with torch.set_grad_enabled(grad):
            right, found = outcome(function, expected), outcome(compiled, given)
        assert_same(right, found)
        assert_same(expected, given)
        if grad:
            totals = [sum(leaf.sum() for leaf in leaves(each[0]) if leaf.requires_grad) for each in (right, found)]
            for total in totals:
                if isinstance(total, torch.Tensor):
                    total.backward()
            assert (expected.grad is None) == (given.grad is None)
            if given.grad is not None:
                assert_same(expected.grad, given.grad)
    found = thruway.metrics()
    assert not found["bugs"], thruway.pipeline.journal.of_kind("bug")
    return found


@pytest.mark.parametrize("grad", (False, True))
@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_stays_in_one_graph(function, backend, grad):
    found = compare(function, backend, grad)
    assert (found["graphs"], found["graph_breaks"]) == (1, 0), [event.reason for event in thruway.pipeline.journal.of_kind("graph_break")]


@pytest.mark.parametrize("grad", (False, True))
@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", MISSES, ids=lambda f: f.__name__)
def test_breaks_and_is_right(function, backend, grad):
    found = compare(function, backend, grad)
    assert found["graph_breaks"] + found["eager"] >= 1


def graph_of(function, *args):
    """The captured graph of a call."""
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward
    thruway.compile(function, backend=keep, fullgraph=True)(*args)
    return graphs[0].graph


def kinds(graph):
    return {"select" if node.target is torch.where else "choose" for node in graph.nodes if node.target is torch.where or isinstance(node.target, Conditional)}


def test_cheap_sides_are_selected_and_others_run_alone():
    with torch.no_grad():
        for function in (if_else, expression, only_if, nested, number_from_tensor):
            assert kinds(graph_of(function, X[0])) == {"select"}
        for function in (products, dropout_on_one_side, index_that_one_side_lacks, gives_its_argument):
            assert kinds(graph_of(function, X[0])) == {"choose"}
    assert kinds(graph_of(if_else, X[0].clone().requires_grad_())) == {"choose"}
    assert kinds(graph_of(same_on_both, X[0])) == set()


def test_a_large_side_is_not_run_for_nothing():
    def f(x):
        if x[0] > 0:
            for _ in range(20):
                x = x.sin()
        else:
            x = x * 2
        return x + 0
    assert kinds(graph_of(f, torch.randn(100))) == {"select"}
    assert kinds(graph_of(f, torch.randn(100_000))) == {"choose"}


def test_gradients_that_the_other_side_would_spoil():
    def f(x, w):
        if x > 0:
            return x.sqrt() * w[0]
        return (-x).sqrt() * w[1]
    for value in (2.0, -2.0):
        given, expected = ([torch.tensor(value, requires_grad=True), [torch.ones((), requires_grad=True) for _ in range(2)]] for _ in range(2))
        thruway.compile(f)(*given).backward()
        f(*expected).backward()
        assert_same(given[0].grad, expected[0].grad)
        assert [one.grad is None for one in given[1]] == [one.grad is None for one in expected[1]]


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_bits_pass_through(backend):
    def f(flag, a, b):
        return (a * 1 if flag else b * 1), (a if flag else b) * 1
    a = torch.tensor([0.0, -0.0, math.inf, -math.inf, 1e-45, math.nan])
    b = torch.tensor([-0.0, 0.0, -1e-45, math.nan, math.inf, 5.0])
    compiled = thruway.compile(f, backend=backend)
    for flag in (torch.tensor(True), torch.tensor(False), torch.tensor([[2.5]]), torch.tensor(math.nan), torch.tensor(0), torch.tensor(-0.0)):
        for one, other in zip(compiled(flag, a, b), f(flag, a, b)):
            assert torch.equal(one.view(torch.int32), other.view(torch.int32))


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("dtype", (torch.int64, torch.uint8, torch.bool, torch.float64, torch.bfloat16, torch.float16, torch.complex64))
def test_dtypes(dtype, backend):
    def f(x):
        if x.any():
            y = x.clone()
        else:
            y = torch.ones_like(x)
        return y
    for x in (torch.zeros(3, dtype=dtype), torch.tensor([0, 1, 2]).to(dtype)):
        assert_same(thruway.compile(f, backend=backend)(x), f(x))


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_a_side_that_raises_is_left_to_the_function(backend):
    def f(x):
        y = x * 2
        if not x.isfinite().all():
            raise ValueError(f"not finite: {x.isnan().sum().item()}")
        return y + 1
    compiled = thruway.compile(f, backend=backend)
    good, bad = torch.ones(3), torch.tensor([1.0, math.nan, math.inf])
    for x in (good, bad, good, bad):
        assert_same(outcome(f, x), outcome(compiled, x))
    found = thruway.metrics()
    assert (found["graphs"], found["graph_breaks"], found["eager"]) == (1, 0, 0)


def test_a_side_that_raises_after_a_write_breaks():
    def f(x):
        x.add_(1)
        if x.sum() > 5:
            raise ValueError("large")
        return x * 2
    compiled = thruway.compile(f, backend="eager")
    for start in (torch.zeros(3), torch.ones(3) * 4):
        given, expected = start.clone(), start.clone()
        assert_same(outcome(f, expected), outcome(compiled, given))
        assert_same(expected, given)


def test_more_elements_than_one_raise_as_in_eager():
    with pytest.raises(RuntimeError, match="ambiguous"):
        thruway.compile(lambda x: x + 1 if x > 0 else x)(torch.ones(3))


def test_modules():
    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.drop = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5), torch.nn.Dropout(0.3)

        def forward(self, x):
            x = self.drop(x) if x.mean() > 0 else x * 1
            if x.abs().max() > 3:
                return self.a(x).relu()
            return self.b(x)
    torch.manual_seed(0)
    module = Gate()
    for mode in (module.train, module.eval):
        mode()
        found = compare(module, "thruway", True)
        assert found["graph_breaks"] == 0
        thruway.reset()


def test_counting_buffers_in_a_side_break():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))
            self.calls = 0

        def forward(self, x):
            if x.sum() > 0:
                self.seen += 1
                self.calls += 1
            return x * 2 + self.seen
    ours, eager = Counts(), Counts()
    compiled = thruway.compile(ours, backend="eager")
    for x in X:
        assert_same(eager(x), compiled(x))
        assert (ours.calls, ours.seen) == (eager.calls, eager.seen)


def test_a_reason_names_the_branch():
    thruway.compile(writes_an_older_tensor, backend="eager")(X[0])
    reason = thruway.pipeline.journal.of_kind("graph_break")[0].reason
    assert reason.code == "TW103" and "x.sum() > 0" in reason.where.text and "older than the branch" in reason.what


def test_changing_sizes():
    def f(x):
        return (x + 1 if x.sum() > 0 else x * 2) * 3
    compiled = thruway.compile(f)
    for n in (3, 5, 7, 9):
        for sign in (1.0, -1.0):
            x = torch.full((n, 2), sign)
            assert_same(compiled(x), f(x))
    assert thruway.metrics()["graph_breaks"] == 0


@thruway.disable
def seen(x):
    return x


@pytest.mark.parametrize("reads_when", [True, False])
def test_a_cell_that_one_side_reads_first_behind_a_break(reads_when):
    def run(x, n):
        x = seen(x) + 1
        if reads_when:
            y = (lambda: x * n)() if x.sum() > 0 else x.sum() + x
        else:
            y = x.sum() + x if x.sum() > 0 else (lambda: x * n)()
        return seen(y) * 2
    compiled = thruway.compile(run, backend="eager")
    for x in (torch.ones(3), -5 * torch.ones(3)):
        assert torch.equal(compiled(x, 3), run(x, 3))
    assert not lazy.pipeline().journal.of_kind("bug")
