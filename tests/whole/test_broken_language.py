"""Language around tensors that once left the graph, or did not do what eager does."""

from __future__ import annotations

import torch
from torch import nn
from whole.assert_same import assert_same

import thruway


class Sized:
    def __len__(self):
        return 3


def test_a_length_of_the_users_own_stays_in_the_graph():
    modules, sized = nn.ModuleList([nn.Linear(2, 2)] * 3), Sized()

    def run(x):
        for module in modules[: len(sized)]:
            x = module(x)
        return x * len(modules), bool(sized)

    assert_same(run, torch.ones(2))
    assert thruway.explain(run)(torch.ones(2)).break_reasons == ()
