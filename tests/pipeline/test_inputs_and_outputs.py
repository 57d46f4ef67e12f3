"""Kinds of inputs and outputs that whole models brought: names that differ in case, views into larger storages, results that are None."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thruway


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    thruway.reset()


def assert_compiled(function, *args):
    compiled = thruway.compile(function)
    with torch.no_grad():
        wanted = function(*args)
        for _ in range(2):
            torch.testing.assert_close(compiled(*args), wanted)
    metrics = thruway.metrics()
    assert (metrics["graphs"], metrics["graph_breaks"], metrics["eager"], metrics["bugs"]) == (1, 0, 0, 0)


def test_arguments_whose_names_differ_in_case():
    assert_compiled(lambda x, B, b, X: x * B + b - X, *(torch.randn(5) for _ in range(4)))


@pytest.mark.parametrize("start", [0, 6])
def test_operators_read_views_of_slices_where_they_start(start):
    columns = torch.randn(2, 10, 10)[..., start:start + 4]
    assert_compiled(lambda states, c: torch.matmul(states.transpose(1, 2), c.unsqueeze(-1)), torch.randn(2, 64, 10, 4), columns)


@pytest.mark.parametrize("needed", [False, True])
def test_attention_with_and_without_its_weights(needed):
    attention = nn.MultiheadAttention(32, 4, batch_first=True).eval()

    def attend(x):
        made, weights = attention(x, x, x, need_weights=needed)
        return made + 1 if weights is None else (made, weights)

    assert_compiled(attend, torch.randn(2, 5, 32))


def test_a_convolution_of_a_transposed_sequence():
    convolve = nn.Conv1d(64, 64, 3, padding=1, groups=4)
    assert_compiled(lambda x: torch.relu(convolve(x.transpose(1, 2))) + 1, torch.randn(2, 20, 64))


def test_attention_over_one_shared_head():
    q, k, v = torch.randn(2, 10, 4, 8).transpose(1, 2), torch.randn(2, 1, 10, 8), torch.randn(2, 1, 10, 8)
    assert_compiled(lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2) * 2, q, k, v)


def same_views(x):
    y = x * 2
    return y, y.t(), y.view(4), y.contiguous(), y[:], y.detach(), y.split(4)[0], y.chunk(1)[0], y.expand(4), y.view(2, 2).view(4)


def views_alone(x):
    y = x + 1
    return y.split(4)[0], y.chunk(1)[0], y.view(4), y.sum()


def written_through_a_view(x):
    y = x + 1
    whole = y.view(4)
    whole.add_(1)
    return whole, y


def written_through_two_views(x):
    y = (x + 1).t()
    turned, plain = y.t(), y.detach()
    turned.mul_(2)
    plain.add_(1)
    return turned, plain, y, turned.mul_(3)


def items_taken_twice(x):
    rows = x.unbind(0)
    return rows[0], x.unbind(0)[0], rows[0], x.split(2)[0], x.chunk(2)[0]


def equal_copies(x):
    y = x.detach().clone()
    return y, y.clone(), x + 0, x * 1


@pytest.mark.parametrize("wants_grad", [False, True])
@pytest.mark.parametrize("function", [same_views, views_alone, written_through_a_view, written_through_two_views, items_taken_twice, equal_copies])
def test_tensors_are_one_object_or_share_memory_where_eager_does(function, wants_grad):
    x = torch.randn(4, requires_grad=wants_grad and function is not written_through_two_views)
    compiled = thruway.compile(function)
    wanted = [x, *function(x)]
    for _ in range(2):
        got = [x, *compiled(x)]
        torch.testing.assert_close(got, wanted)
        for same in (lambda a, b: a is b, lambda a, b: a.data_ptr() == b.data_ptr()):
            assert [[same(a, b) for b in got] for a in got] == [[same(a, b) for b in wanted] for a in wanted]
