"""Inputs that share memory, of which one is written, and views of tensors as dtypes of another width."""

import pytest
import torch
from whole.assert_same import assert_same


def view_of_the_other(whole, part):
    whole.add_(100)
    return part[0]


def flat_and_whole(whole, part):
    whole.mul_(2)
    return part.view(-1), whole


def both_written(whole, part):
    before = part.sum()
    part.add_(1)
    whole.mul_(2)
    part[0] = before
    return whole + 0, part.t()


def read_between(whole, part):
    first = part * 1
    whole[1:].zero_()
    return first, part * 1, whole.sum()


def pairs():
    base = torch.arange(24.0).reshape(4, 6)
    yield base, base[1:]
    base = torch.arange(24.0).reshape(4, 6)
    yield base, base.view(-1)[6:].view(3, 6)
    base = torch.arange(24.0).reshape(4, 6)
    yield base, base


@pytest.mark.parametrize("function", [view_of_the_other, flat_and_whole, both_written, read_between])
@pytest.mark.parametrize("backend", ["thruway", "eager"])
def test_inputs_in_the_same_memory(function, backend):
    for whole, part in pairs():
        assert_same(function, whole, part, graphs=1, breaks=0, backend=backend)


def halves_of_integers(x, f):
    y = x.view(torch.int32) * 2
    y.sub_(-4)
    x[:, 1:3] = 9
    f.view(torch.float32).copy_(torch.ones_like(f))
    return y.view(torch.int64), f.view(torch.int32) + 1


def bytes_of(x, f):
    narrow = f.view(torch.uint8)
    narrow[..., 0] = 7
    x.view(torch.int16)[0] = 3
    return narrow, f * 1, x, x.view(torch.int8).shape[-1]


def wider(x, f):
    wide = f.view(torch.int64)
    f.zero_()
    return wide + 1, x.view(torch.uint8).view(torch.int64) + 1


@pytest.mark.parametrize("function", [halves_of_integers, bytes_of, wider])
@pytest.mark.parametrize("backend", ["thruway", "eager"])
def test_views_as_dtypes_of_another_width(function, backend):
    assert_same(function, torch.arange(-6, 6).reshape(3, 4), torch.zeros(2, 2), graphs=1, breaks=0, backend=backend)


@pytest.mark.parametrize("make", [lambda: torch.ones(3, 3), lambda: torch.ones(4, 4).t(), lambda: torch.tensor(1.0), lambda: torch.ones(5)[1:]])
def test_what_does_not_fit_raises_as_in_eager(make):
    def function(x):
        try:
            return x.view(torch.float64)
        except RuntimeError as error:
            return x + 1, str(error)
    assert_same(function, make(), graphs=1, breaks=0)
