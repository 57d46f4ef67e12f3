"""The house assertion notices each kind of difference, and accepts what is the same."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from torch import nn

from whole.assert_same import assert_same

STATE = {"calls": 0}


def instead(other):
    """A "compiler" that puts `other` in the place of what it compiles."""
    return lambda target: functools.partial(other, target) if isinstance(target, nn.Module) else other


def fails(fn, other, *args, **words):
    with pytest.raises(AssertionError) as caught:
        assert_same(fn, *args, compile=instead(other), **words)
    return str(caught.value)


X = torch.arange(12.0).reshape(3, 4) + 0.5


def test_the_same_passes():
    assert_same(lambda x: (x * 2, {"a": [x.t()]}), X, compile=lambda f: f)
    assert_same(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), X, compile=lambda m: m)
    assert_same(lambda x: x.add_(1), X.clone(), compile=lambda f: f)
    assert_same(lambda x: x @ x, X, compile=lambda f: f)


def test_values():
    assert "output" in fails(lambda x: x * 2, lambda x: x * 2.001, X)
    assert "output[0]" in fails(lambda x: (x > 3,), lambda x: (x > 4,), X)
    assert "nan" in fails(lambda x: x / x, lambda x: x / x.add(1e-30), torch.zeros(2)).lower()


def test_metadata():
    assert "dtype" in fails(lambda x: x, lambda x: x.double(), X)
    assert "shape" in fails(lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True), X)
    assert "strides" in fails(lambda x: x.t() * 1, lambda x: (x.t() * 1).contiguous(), X)
    assert "requires_grad" in fails(lambda x: x * 2, lambda x: x.detach() * 2, X.clone().requires_grad_())


def test_structure():
    assert "tuple in eager, list" in fails(lambda x: (x, 1), lambda x: [x, 1], X)
    assert "structure" in fails(lambda x: {"a": x}, lambda x: {"b": x}, X)
    assert "2 in eager, 3 compiled" in fails(lambda x: (x, 2), lambda x: (x, 3), X)
    assert "int in eager, float" in fails(lambda x: (x, 2), lambda x: (x, 2.0), X)


def test_aliasing_and_identity():
    assert "share memory" in fails(lambda x: x.view(-1), lambda x: x.view(-1).clone(), X)
    assert "same tensor object" in fails(lambda x: x, lambda x: x.view_as(x), X)
    assert "share memory" in fails(lambda x: (x + 1, x + 1), lambda x: (x + 1,) * 2, X)


def test_mutated_inputs_and_state():
    assert "inputs[0][0]" in fails(lambda x: x.add_(1).sum(), lambda x: x.add(1).sum(), X.clone())
    norm = nn.BatchNorm1d(4)
    assert "running_mean" in fails(norm, lambda m, x: m.eval()(x) * 0 + nn.functional.batch_norm(x, None, None, training=True), X, grads=False)


def test_state_lives_on_between_the_two_calls():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        def forward(self, x):
            self.n += 1
            return x * self.n

    assert_same(Counts(), X, compile=lambda m: m)
    assert "second call" in fails(Counts(), lambda m, x: x * 1, X)


def test_exceptions():
    def wrong(x):
        return x @ x

    def other(x):
        raise RuntimeError("no")

    assert "compiled RuntimeError('no')" in fails(wrong, other, X)
    assert "compiled raises" in fails(lambda x: x, other, X)
    assert "compiled None" in fails(wrong, lambda x: x, X)


def test_random_state_and_globals():
    assert "random generators" in fails(lambda x: x * 1, lambda x: (torch.rand(1), x * 1)[1], X)
    assert "random generators" in fails(lambda x: x * 1, lambda x: (random.random(), x * 1)[1], X)

    def counts(x):
        STATE["calls"] += 1
        return x + 1

    words = {"prepare": lambda: STATE.update(calls=0), "observe": lambda: STATE}
    assert_same(counts, X, compile=lambda f: f, **words)
    assert "seen['calls'] is 1 in eager, 0 compiled" in fails(counts, lambda x: x + 1, X, **words)


def test_gradients():
    x = X.clone().requires_grad_()
    assert "gradients" in fails(lambda x: x * x, lambda x: x * x.detach(), x)
    assert_same(lambda x: x * x, x, grads=False, compile=instead(lambda x: x * x.detach()))
    linear = nn.Linear(4, 2)
    assert "gradients['state.bias']" in fails(linear, lambda m, x: nn.functional.linear(x, m.weight, m.bias.detach()), X)


def test_the_second_call_counts_too():
    calls = []

    def forgetful(x):
        calls.append(x)
        return x * 2 if len(calls) == 1 else x * 3

    assert "second call" in fails(lambda x: x * 2, forgetful, X)


def test_counts_of_graphs_and_breaks():
    with pytest.raises(AssertionError, match="0 graphs, 1 expected"):
        assert_same(lambda x: x, X, graphs=1, compile=lambda f: f)
    with pytest.raises(AssertionError, match="0 graph breaks, 2 expected"):
        assert_same(lambda x: x, X, breaks=2, compile=lambda f: f)
    assert_same(lambda x: x, X, graphs=0, breaks=0, compile=lambda f: f)
