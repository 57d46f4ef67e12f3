"""Dimensions asked for as dynamic stay symbolic: one graph answers several sizes."""

import torch
from capture.harness import MODES, run_captured

from thruway.capture.capture import capture
from thruway.core.settings import Settings
from thruway.frame.source import Local


def shapes(x, w):
    b, d = x.shape
    y = (x @ w).view(b * 2, d // 2)
    z = torch.cat([y, torch.zeros(b, d // 2)])
    return z, x.shape[0] * 3, torch.arange(b), x[: b - 1]


def branches(x):
    if x.shape[0] > 2 and len(x) % 2 == 0:
        return x * x.shape[0]
    return x


def symbolic(function, *args):
    return capture(function, args, MODES, Settings(), {(Local("x", 0), 0)})


def test_one_graph_for_several_batches():
    w = torch.randn(4, 4)
    captured = symbolic(shapes, torch.randn(3, 4), w)
    assert captured.inputs[0].meta.sizes[0] != 3
    for b in (2, 3, 7):
        x = torch.randn(b, 4)
        expected, got = shapes(x, w), run_captured(captured, shapes, (x, w), {})
        assert all(torch.equal(torch.as_tensor(e), torch.as_tensor(g)) for e, g in zip(expected, got))


def test_branches_become_relations():
    captured = symbolic(branches, torch.randn(6, 2))
    relations = [g.expected for g in captured.guards.guards if g.kind == "relation"]
    assert relations, "a branch on a size must be guarded"
    x = torch.randn(8, 2)
    assert torch.equal(run_captured(captured, branches, (x,), {}), branches(x))
