"""Whole models, compiled beside eager: one graph, no break, the same numbers and the same state."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thruway
from whole import models
from whole.assert_same import assert_same

pytestmark = pytest.mark.models

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 4e-2}


@pytest.mark.parametrize("name", models.ALL)
def test_one_graph_in_float32(name):
    model, inputs = models.build(name)
    assert_same(model, *inputs, graphs=1, breaks=0, no_grad=True, tolerance=TOLERANCE[torch.float32])


@pytest.mark.parametrize("name", ["mlp", "transformer", "decoder", "resnet18", "bert", "llama"])
def test_one_graph_in_bfloat16(name):
    model, inputs = models.build(name)
    low = tuple(value.bfloat16() if value.is_floating_point() else value for value in inputs)
    assert_same(model.bfloat16(), *low, graphs=1, breaks=0, no_grad=True, tolerance=TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("name", ["mlp", "transformer", "decoder", "resnet18", "bert", "gpt2", "llama"])
def test_the_captured_graph_alone(name):
    model, inputs = models.build(name)
    assert_same(model, *inputs, graphs=1, breaks=0, no_grad=True, backend="eager", tolerance=1e-6)


@pytest.mark.parametrize("name", ["mlp", "transformer", "decoder", "resnet18", "bert"])
def test_gradients(name):
    model, inputs = models.build(name)
    assert_same(model, *inputs, tolerance=TOLERANCE[torch.float32])


@pytest.mark.parametrize("name", ["mlp", "transformer", "resnet18", "decoder"])
def test_another_batch_is_right_too(name):
    model, inputs = models.build(name)
    compiled = thruway.compile(model)
    with torch.no_grad():
        for repeat in (1, 2, 3, 1):
            more = tuple(torch.cat([value] * repeat) for value in inputs)
            torch.testing.assert_close(compiled(*more), model(*more), rtol=1e-4, atol=1e-4)


def test_a_module_that_is_changed_after_compiling():
    model, inputs = models.build("mlp")
    compiled = thruway.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), model(*inputs))
        model[0] = nn.Linear(16, 16)
        torch.testing.assert_close(compiled(*inputs), model(*inputs))
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(*inputs), model(*inputs))
        model.register_forward_hook(lambda module, args, out: out + 1)
        torch.testing.assert_close(compiled(*inputs), model(*inputs))
