"""Programs that once read or wrote memory they should not have, or in an order that eager does not have."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import thruway
from whole.assert_same import assert_same


def _outcome(call, *args):
    try:
        return call(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("function", [lambda x: x.squeeze() * 2, lambda x: x[1:] * 2, lambda x: x[-1] + 1, lambda x: x[:1].expand(3, 4) + 1])
def test_sizes_that_were_symbolic_become_one_and_zero(function):
    compiled = thruway.compile(function)
    for rows in (3, 5, 7, 1, 0, 4):
        x = torch.arange(4.0 * rows).reshape(rows, 4)
        seen, made = _outcome(function, x), _outcome(compiled, x)
        assert type(seen) is type(made)
        assert torch.equal(seen, made) if isinstance(seen, torch.Tensor) else seen == made


def test_as_strided_past_the_storage_is_eagers_error():
    def look(x):
        return torch.as_strided(x, (3, 3), (2, 1), 1) * 2

    compiled = thruway.compile(look)
    assert torch.equal(compiled(torch.arange(16.0)), look(torch.arange(16.0)))
    assert torch.equal(compiled(torch.arange(16.0)[:4]), look(torch.arange(16.0)[:4]))
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        compiled(torch.arange(3.0))


def shift(x):
    y = x * 2
    y[..., 1:] += y[..., :-1]
    return y


def add_transposed(x):
    y = x + 1
    y.add_(y.t())
    return y


def windows(x):
    torch.as_strided(x, (3, 3), (2, 1), 0).add_(1)
    return x


@pytest.mark.parametrize("function", [shift, add_transposed, windows])
@pytest.mark.parametrize("make", [lambda: torch.arange(16.0).view(4, 4), lambda: torch.arange(48.0).view(4, 12)[:, :4], lambda: torch.arange(16.0).view(4, 4).t()])
def test_writes_beside_views_of_the_same_elements_go_in_eagers_order(function, make):
    assert_same(function, make())


@pytest.mark.parametrize("function", [
    lambda x: x.chunk(2, -1)[0].mul_(x.chunk(2, -1)[1]), lambda x: x[:, 0].copy_(x[:, 1]), lambda x: x[..., ::2].add_(x[..., 1::2]), lambda x: x[0].add_(x[1]),
])
def test_views_of_other_elements_stay_compiled(function):
    def both(x):
        y = x + 1
        function(y)
        return y

    assert_same(both, torch.arange(16.0).view(4, 4))
    told = thruway.explain(both)(torch.arange(16.0).view(4, 4))
    assert told.break_reasons == () == told.eager


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_packed_sequences_of_other_lengths(kind):
    torch.manual_seed(0)
    module = kind(6, 4, batch_first=True).eval()

    def run(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(module(packed)[0])[0] * 2

    compiled = thruway.compile(run)
    with torch.no_grad():
        for lengths in ([2, 5, 1], [2, 3, 1], [5, 5, 5], [1, 4, 4], [3, 2]):
            x = torch.randn(len(lengths), 5, 6)
            assert torch.allclose(compiled(x, torch.tensor(lengths)), run(x, torch.tensor(lengths)))


@pytest.mark.parametrize("function", [
    lambda x: (x.contiguous(), x.reshape(-1)), lambda x: (x.reshape(-1), x.reshape(2, -1)), lambda x: ((x * 2).reshape(-1), (x * 2).contiguous()),
    lambda x: (x.flatten(), x.clone(memory_format=torch.contiguous_format)), lambda x: ((x + 1).t(), x + 1),
])
def test_equal_copies_that_are_returned_stay_apart(function):
    assert_same(function, torch.randn(6, 4).t())
