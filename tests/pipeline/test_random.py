"""Random numbers of compiled code are eager's: the same draws in the same order, also those that nobody uses."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from whole.assert_same import assert_same


def unused_draw(x):
    torch.rand(3)
    torch.nn.functional.dropout(x, 0.5, True)
    return torch.rand_like(x)


def late_and_early(x):
    a = torch.rand_like(x.sin().cos().sum(0))
    b = torch.rand(x.shape)
    return b, a * 2


def around_a_write(x):
    y = torch.nn.functional.dropout(x, 0.5, True)
    z = torch.randn(4) + y
    x.add_(1)
    return z, torch.randint(0, 9, (3,)), torch.empty(3).uniform_(), torch.bernoulli(x * 0 + 0.5), torch.randperm(4)


def in_many_distributions(x):
    return x.clone().exponential_(), torch.normal(x, 1.0), torch.poisson(x.abs()), torch.multinomial(x.abs() + 1, 2), x.clone().geometric_(0.3)


@pytest.mark.parametrize("backend", ["thruway", "eager"])
@pytest.mark.parametrize("function", [unused_draw, late_and_early, around_a_write, in_many_distributions])
def test_draws(function, backend):
    assert_same(function, torch.ones(4, 4), graphs=1, breaks=0, backend=backend)


def checked(x):
    y = x.clone()
    x.add_(1)
    torch.linalg.cholesky(y)
    x.mul_(2)
    return y


@pytest.mark.parametrize("value", [torch.eye(3), -torch.eye(3)])
def test_an_assertion_between_two_writes(value):
    assert_same(checked, value)


def test_the_first_compilation_of_a_process_draws_nothing():
    program = "\n".join([
        "import torch, thruway", "torch.manual_seed(3)", "expected = torch.rand(4)", "torch.manual_seed(3)",
        "got = thruway.compile(lambda x: torch.rand(4) + x)(torch.zeros(4))", "assert torch.equal(got, expected)",
    ])
    subprocess.run([sys.executable, "-c", program], check=True)
