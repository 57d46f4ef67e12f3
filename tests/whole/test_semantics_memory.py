"""Writes, views and aliasing: what the caller's tensors hold afterwards, which results share memory, what an earlier value keeps."""

from __future__ import annotations

import pytest
import torch

import thruway
from whole.assert_same import assert_same

ROWS = torch.arange(12.0).reshape(3, 4)


def write_input(x):
    x.mul_(2)
    return x + 1


def write_through_view(x):
    x[1].add_(1)
    x[:, 2:] *= 3
    return x.sum()


def write_through_transpose(x):
    x.t()[1] = 7
    return x.t()


def write_through_flat_view(x):
    x.view(-1)[::2] = -1
    return x.clone()


def write_one_element(x):
    x[0, 1] = 5
    x[-1, -1] += 2
    return x * 2


def write_through_expand_of_fresh(x):
    b = torch.zeros(2, 1)
    b.expand(2, 4)[:, 2] += 1
    return b, x


def write_fresh_then_read_old_view(x):
    y = x + 1
    first = y[0]
    before = first * 2
    y.zero_()
    return before, first, y


def value_before_write(x):
    y = torch.exp(x)
    x.exp_()
    return y, x[0]


def rebuild_in_loop(x):
    out = torch.zeros(4)
    for row in range(3):
        out[row] = x[row].sum()
    out[3] = out.sum()
    return out


def write_with_out(x):
    room = torch.zeros(3, 4)
    torch.sin(x, out=room)
    torch.add(x[0], 1, out=room[2])
    return room


def resize_with_out(x):
    y = torch.empty(0)
    torch.abs(x, out=y)
    return y + 1, y.shape


def masked_writes(x):
    x[x > 4] = 0
    x.masked_fill_(x < 2, -3)
    return x


def indexed_writes(x):
    at = torch.tensor([2, 0])
    x[at] = torch.tensor([[1.0], [2.0]])
    x.index_add_(0, torch.tensor([1, 1]), torch.ones(2, 4))
    return x + 0


def repeated_rows(x):
    x[[0, 0, 1]] += x[[0, 0, 1]]
    x[torch.tensor([2, 2])] = x[torch.tensor([2, 2])] * 3
    x.index_add_(0, torch.tensor([1, 1]), x[torch.tensor([1, 1])])
    return x


def shift_rows(x):
    x[1:] = x[:-1].clone()
    x[:, 1:] += x[:, :-1].clone()
    return x


def copy_between_views(x):
    x[0].copy_(x[2])
    x[:, 0] = x[:, 3]
    return x


def swap_rows(x):
    x[0], x[1] = x[1].clone(), x[0].clone()
    return x


def views_of_input(x):
    return x.view(-1), x.t(), x[1:], x.detach(), x.unsqueeze(0), x.expand(2, 3, 4), x


def views_of_fresh(x):
    t = x + 1
    return t, t.view_as(t), t.detach(), t[0], t.view(4, 3), t.t().t()


def same_result_twice(x):
    y = x * 2
    return y, y, [y], {"y": y}


def input_given_back(x):
    return x, x.contiguous(), x.to(torch.float32), x.reshape(3, 4)


def equal_results_are_two_tensors(x):
    return x * 2, x * 2, torch.zeros(2), torch.zeros(2)


def literals(x):
    a = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return a, a + x, torch.tensor([True, False]), torch.tensor(5), torch.tensor([[1, 2], [3, 4]]).t()


def written_literal(x):
    a = torch.tensor([1.0, 2.0, 3.0, 4.0])
    a.add_(x[0])
    a[1] = 0
    return a


def split_and_write(x):
    left, right = x.split(2, dim=1)
    left.add_(right)
    a, b = x.chunk(2, dim=0)
    return left, a, b


def read_by_other_bits(x):
    return x.view(torch.int32), x.view(torch.int32) + 1


def write_by_other_bits(x):
    x.view(torch.int32).bitwise_and_(0x7FFFFFFF)
    return x + 1


def change_sizes_of_input(x):
    x.t_()
    return x + 1


def running_statistics(x):
    mean = torch.zeros(4)
    mean.lerp_(x.mean(0), 0.1)
    return torch.nn.functional.batch_norm(x, mean, torch.ones(4), training=False)


FUNCTIONS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == __name__]


LAYOUTS = {
    "contiguous": ROWS, "transposed": ROWS.t().contiguous().t(), "gaps": torch.linspace(-1, 9, 48).reshape(6, 8)[::2, ::2], "negative": -ROWS,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_one_tensor(function, layout):
    assert_same(function, LAYOUTS[layout])


def add_each_other(x, y):
    x.add_(y)
    y.mul_(x)
    return x + y


def write_first_read_second(x, y):
    x[0] = 9
    return y * 2


def test_two_inputs_that_share_memory():
    base = torch.arange(8.0)
    for make in (lambda b: (b, b), lambda b: (b[:4], b[4:]), lambda b: (b[:6], b[2:]), lambda b: (b[::2], b[1::2]), lambda b: (b, b.view(8)),
                 lambda b: (b.clone(), b.clone()), lambda b: (b.flip(0), b)):
        for function in (add_each_other, write_first_read_second):
            assert_same(function, *make(base.clone()))


def outcome(function, args):
    """The result's elements, or the text of what is raised."""
    try:
        return function(*args).tolist()
    except RuntimeError as error:
        return str(error)


def test_inputs_that_share_memory_after_a_call_where_they_did_not():
    for function in (add_each_other, write_first_read_second):
        compiled = thruway.compile(function)
        for make in (lambda b: (b[:4].clone(), b[4:].clone()), lambda b: (b[:4], b[2:6]), lambda b: (b[:4], b[:4]), lambda b: (b[:4], b[4:])):
            mine, other = torch.arange(8.0), torch.arange(8.0)
            assert outcome(compiled, make(mine)) == outcome(function, make(other))
            assert torch.equal(mine, other)


def test_result_of_an_earlier_call_keeps_its_value():
    compiled = thruway.compile(literals)
    first = compiled(ROWS)
    kept = [one.clone() for one in first]
    for one in first:
        one.zero_()
    second = compiled(ROWS)
    for old, new in zip(kept, second):
        assert torch.equal(old, new)
    assert all(not one.any() for one in first)


def equal_sums(x):
    total, count = torch.tensor([0.0, 0.0]), torch.tensor([0.0, 0.0])
    total += x
    count += 1
    return total / count, count


def equal_rows(x):
    rows = [torch.tensor([0.0, 0.0]) for _ in range(3)]
    for i, row in enumerate(rows):
        row.view(2, 1).add_(x[0] * i)
    return rows


def equal_and_returned(x):
    return torch.tensor(0.0), torch.tensor(0.0), torch.tensor([1.0, 2.0]), x.new_tensor([1.0, 2.0]), torch.as_tensor([1.0, 2.0])


@pytest.mark.parametrize("function", [equal_sums, equal_rows, equal_and_returned])
def test_equal_literals_are_tensors_of_their_own(function):
    assert_same(function, torch.tensor([5.0, 6.0]))
    mine, other = thruway.compile(function)(torch.ones(2)), function(torch.ones(2))
    for k, pair in enumerate(zip(mine, other)):
        for one in pair:
            one.add_(k + 1)
    assert all(map(torch.equal, mine, other))
