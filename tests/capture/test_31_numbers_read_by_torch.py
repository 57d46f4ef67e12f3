"""A tensor of one element where torch wants a number: torch reads it, so that it is a number of the graph; known ones are numbers at once."""

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan

import thruway


def sizes(x, n):
    return torch.ones(n) * 2, x.new_zeros((2, n)).sum(0), torch.full((2, 3), n) + x[:2, :3]


def bounds(x, n):
    return torch.clamp(x, 0, n - 1), torch.add(x, x, alpha=n), F.leaky_relu(x, negative_slope=n) if n.is_floating_point() else x


def itself(x, n):
    """Read as the bound, not as what is clamped."""
    return torch.clamp(n, 0, n), torch.add(n, n, alpha=n), x + n


def known(x, n):
    """Made of sizes and constants alone: the numbers are known, in slices and sizes too."""
    span = torch.tensor(min(x.size(-1), 3))
    y = x[:, 4 - span: 4 + span]
    return y.view(-1, 2, y.size(-1) // 2).transpose(0, 1), torch.clamp(x, 0, span * 2 - 1), torch.zeros(span, 2) + n


@pytest.mark.parametrize("function", [sizes, bounds, itself, known])
def test_one_graph_for_all_numbers(function):
    x = torch.randn(4, 8)
    thruway.reset()
    compiled = thruway.compile(function, fullgraph=True)
    for number in (3, 5, 1, 0, 7):
        n = torch.tensor(number)
        torch.testing.assert_close(compiled(x, n), function(x, n), rtol=0, atol=0)
        assert n.item() == number
    assert (thruway.metrics()["graphs"], thruway.metrics()["recompiles"]) == (1, 0)


def test_a_size_below_zero_raises_as_in_eager():
    thruway.reset()
    compiled = thruway.compile(lambda x, n: torch.ones(n) + x)
    assert compiled(torch.tensor(1.0), torch.tensor(3)).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="negative dimension"):
        compiled(torch.tensor(1.0), torch.tensor(-3))


def test_a_number_that_python_must_know_breaks_and_is_right():
    def function(x, n):
        return F.pad(x, (n, 1)) * 2, x.narrow(1, 0, n)
    x = torch.randn(4, 8)
    thruway.reset()
    compiled = thruway.compile(function)
    for number in (3, 5, 1):
        torch.testing.assert_close(compiled(x, torch.tensor(number)), function(x, torch.tensor(number)))
    assert thruway.metrics()["graph_breaks"]


def test_a_known_number_is_forgotten_once_it_is_written():
    def function(x, n):
        span = torch.tensor(3)
        span += n
        return x[:, :span] * 2
    x = torch.randn(4, 8)
    thruway.reset()
    compiled = thruway.compile(function)
    for number in (3, 5, 1):
        torch.testing.assert_close(compiled(x, torch.tensor(number)), function(x, torch.tensor(number)))


def test_scans_by_a_function_are_followed():
    def combined(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    def function(a, b, reverse):
        return associative_scan(combined, (a.cos(), b * 2), dim=1, reverse=reverse, combine_mode="generic")[1] + 1
    thruway.reset()
    compiled = thruway.compile(function, fullgraph=True)
    for length in (7, 4, 1):
        a, b = torch.randn(3, length), torch.randn(3, length)
        for reverse in (False, True):
            torch.testing.assert_close(compiled(a, b, reverse), function(a, b, reverse))
    with pytest.raises(IndexError):
        compiled(torch.randn(3), torch.randn(3), False)
