"""Python's functions of numbers that tensors hold stay in the graph: values, types and errors are Python's."""

import math

import pytest
import torch

import thruway
from capture.test_15_branches import assert_same, compare, fresh, outcome

assert fresh
X = [torch.randn(4, 4, generator=torch.Generator().manual_seed(i)) * scale + shift for i, (scale, shift) in enumerate(((1.0, 0.3), (3.0, -1.0), (0.1, 0.0)))]


def whole_numbers(x):
    a = x.sum().item()
    return int(x.sum()), int(a), int(x.abs().max().item() * 3), round(a), math.floor(a), math.ceil(a), math.trunc(a), x * int(x.mean())


def rounds(x):
    return round(x.sum().item(), 2), round((x > 0).sum().item(), -1), round(int(x.sum()))


def functions_of_math(x):
    a = x.abs().sum().item()
    return math.sqrt(a), math.log(a), math.log(a, 2), math.exp(-a), x * math.sqrt(a), math.sqrt((x > 0).sum().item() + 1), math.hypot(a, 2)


def powers(x):
    a, n = x.sum().item(), (x > 0).sum().item()
    return a ** 2, n ** 2, abs(a) ** 0.5, n ** -1 if n > 0 else 0.0, 2.0 ** n, pow(a, 3)


def rests(x):
    a, n = x.sum().item(), (x > 0).sum().item()
    return a // 2, a % 2, n // 3, n % 3, divmod(a, 1.5), abs(n - 5), abs(a), n / 3, -n


def counted_truths(x):
    return (x.sum() > 0).item() + (x.max() > 1).item(), sum([bool(x.mean() > 0), bool(x.min() < -1)]), int(bool(x.sum() > 0))


def on_one_side(x):
    n = abs(int(x[0, 0])) if x.sum() > 0 else 3
    return n, n + 1


def questions(x):
    y = x * 1
    return torch.equal(x, y), torch.equal(x, x + 1), torch.allclose(x, x + 1e-9), x.equal(y), x.allclose(y, atol=1.0), 1 if torch.equal(x, y.t()) else 2


def any_and_all(x):
    return any([x.sum() > 0, x.max() > 3]), all((x.sum() > 0, True, x.min() > -5)), any([False, x.mean() > 1]), all([x.dim() == 2, x.sum() < 0])


def loops_to_a_held_number(x):
    n = int(x.abs().sum()) % 5
    y = x
    for i in range(n):
        y = y + i
    for i in range(8, (x > 0).sum().item(), -2):
        y = y * 0.5 + i
    return y, n


def sizes_of_results(x):
    n = int(x.abs().sum().item())
    return torch.zeros(n % 4 + 1), n


def last_of_some(x):
    found = torch.where(x[0] > 1)[0]
    return found[-1].item() if found.numel() > 0 else -1


ONE_GRAPH = [whole_numbers, rounds, functions_of_math, powers, rests, counted_truths, on_one_side, questions, any_and_all, loops_to_a_held_number, sizes_of_results, last_of_some]


def collects_to_a_held_number(x):
    found = []
    for i in range((x > 0).sum().item()):
        found.append(i)
    return found


def a_range_of_its_own(x):
    numbers = range((x > 0).sum().item())
    return len(numbers), list(numbers), 2 in numbers


def after_a_write(x):
    x.add_(1)
    return math.sqrt(x.abs().sum().item()), int(x.sum().item())


MISSES = [collects_to_a_held_number, a_range_of_its_own, after_a_write]


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_stays_in_one_graph(function, backend):
    found = compare(function, backend, False, X)
    assert (found["graphs"], found["graph_breaks"], found["eager"]) == (1, 0, 0), [event.reason for event in thruway.pipeline.journal.of_kind("graph_break")]


@pytest.mark.parametrize("backend", ("eager", "thruway"))
@pytest.mark.parametrize("function", MISSES, ids=lambda f: f.__name__)
def test_breaks_and_is_right(function, backend):
    assert compare(function, backend, False, X)["graph_breaks"] >= 1


@pytest.mark.parametrize("backend", ("eager", "thruway"))
def test_errors_are_pythons_and_only_for_that_call(backend):
    def f(x):
        a = x.sum().item()
        print("before")
        return math.sqrt(a), int(a), 1 // int(a) if a else 0, a ** 0.5, x + 1
    compiled = thruway.compile(f, backend=backend)
    for value in (4.0, -4.0, math.nan, math.inf, 0.25, 9.0):
        x = torch.full((1,), value)
        right, found = outcome(f, x), outcome(compiled, x)
        assert_same(right, found)
    assert thruway.metrics()["eager"] == 0


def test_a_root_of_a_negative_number_is_complex():
    def f(x):
        return x.sum().item() ** 0.5
    compiled = thruway.compile(f)
    for value in (4.0, -4.0, 9.0):
        assert compiled(torch.tensor(value)) == f(torch.tensor(value))
