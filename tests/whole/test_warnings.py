"""Warnings of torch's own: once per call, at the place that eager names, under the caller's filters."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import thruway

TARGET = torch.linspace(0, 1, 5)


def loss_of_two_sizes(x):
    return F.mse_loss(x * 2, TARGET)


WARNING = {
    "sizes": loss_of_two_sizes, "dimension": lambda x: F.softmax(x), "range": lambda x: x + torch.range(0, 4), "copy": lambda x: torch.tensor(x) + 1,
    "old argument": lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid().detach(), size_average=True),
    "below": lambda x: loss_of_two_sizes(x) + loss_of_two_sizes(x + 1), "none": lambda x: F.softmax(x, 0),
    "its own too": lambda x: (warnings.warn("mine"), F.softmax(x))[1],
}


def said_by(call, x) -> list[tuple[str, str, int]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call(x)
    return [(str(one.message), one.filename, one.lineno) for one in said]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", WARNING)
def test_each_call_warns_as_eager_does(name, grad):
    compiled = thruway.compile(WARNING[name])
    x = torch.rand(3, 5, requires_grad=grad)
    with torch.set_grad_enabled(grad):
        wanted = said_by(WARNING[name], x)
        assert len(wanted) == {"none": 0, "below": 2, "its own too": 2}.get(name, 1)
        for _ in range(4):
            assert said_by(compiled, x) == wanted


def test_filters_of_the_caller_decide(recwarn):
    x, before = torch.rand(3, 5), list(warnings.filters)
    compiled = thruway.compile(lambda x: F.mse_loss(x, TARGET))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(5):
            compiled(x)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="target size"):
            compiled(x)
    assert warnings.filters == before


def test_compiling_makes_nobody_forget_what_was_said():
    def say():
        warnings.warn("once")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        say()
        thruway.compile(lambda x: F.softmax(x, 1).numpy() + 1)(torch.rand(3, 5))
        say()
    assert len(said) == 1
