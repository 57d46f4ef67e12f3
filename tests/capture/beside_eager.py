"""What tests of torch's features share: programs compared with eager, and a backend that counts graphs."""

from __future__ import annotations

import torch

import thruway
from thruway.pipeline import journal

torch.manual_seed(0)
LINEAR = torch.nn.Linear(8, 8)
X, W = torch.randn(4, 8), torch.randn(8, 8)


class Graphs:
    """A backend that keeps the graphs that it gets, and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward

    @property
    def calls(self):
        return [node for graph in self.graphs for node in graph.graph.nodes if node.op.startswith("call")]


def alike(expected, found, tolerance=1e-5):
    if isinstance(expected, torch.Tensor):
        assert type(found) is type(expected)
        assert (found.dtype, found.device, found.shape, found.requires_grad) == (expected.dtype, expected.device, expected.shape, expected.requires_grad)
        if not expected.is_meta:
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(expected, found):
            alike(one, other, tolerance)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        alike(list(expected.values()), list(found.values()), tolerance)
    else:
        assert found == expected and type(found) is type(expected)


def check(function, *args, graphs=None, tolerance=1e-5, calls=2):
    """Compares with eager under a counting backend and under the compiler; the number of graphs where `graphs` says one."""
    backend = Graphs()
    for compiled in (thruway.compile(function, backend=backend), thruway.compile(function)):
        for _ in range(calls):
            torch.manual_seed(1)
            expected = function(*args)
            torch.manual_seed(1)
            alike(expected, compiled(*args), tolerance)
    if graphs is not None:
        assert len(backend.graphs) == graphs, (len(backend.graphs), [event.reason for event in journal.events if event.reason])
    return backend


def gradients(function, *leaves):
    for leaf in leaves:
        leaf.grad = None
    function(*leaves).sum().backward()
    return [leaf.grad for leaf in leaves]
