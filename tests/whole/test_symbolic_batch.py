"""Every peer work at batch after batch: once the batch has changed it is symbolic, and the same compiled code answers every size."""

from __future__ import annotations

import pytest
import torch
import works

import thruway
from thruway.graph_compiler import GraphCompiler

pytestmark = pytest.mark.models
FIXED = {"decode"}                 # one token at a time, whatever the batch


class Recorded:
    """A compiled graph that keeps what it was given last."""

    def __init__(self, call):
        self.call, self.given = call, ()

    def __call__(self, *tensors):
        self.given = tensors
        return self.call(*tensors)


@pytest.fixture
def loaded(monkeypatch):
    """The compiled graphs of the test, in order."""
    found, load = [], GraphCompiler._load
    monkeypatch.setattr(GraphCompiler, "_load", lambda *args: found.append(Recorded(load(*args))) or found[-1])
    return found


def assert_close(got, expected):
    for x, y in zip(expected, got, strict=True):
        assert x.shape == y.shape and x.stride() == y.stride()
        torch.testing.assert_close(y, x, rtol=2e-4, atol=1e-5 * float(x.abs().max()))


@pytest.mark.parametrize("work", works.WORKS)
def test_one_symbolic_entry_answers_every_batch(work: str, loaded) -> None:
    torch.manual_seed(0)
    fn, make = works.build(work, "cpu", torch.float32, 2)
    thruway.reset()
    compiled = thruway.compile(fn, options={"measure": False})
    with torch.no_grad():
        for batch in (2, 7, 3, 1):
            args = make(batch)
            expected = works.flat(fn(*args))
            assert_close(works.flat(compiled(*args)), expected)
        found = thruway.metrics()
        assert found["bugs"] == found["eager"] == 0
        assert found["graphs"] == len(loaded) <= (1 if work in FIXED else 3)        # batch 2, any batch, and batch 1 where it broadcasts
        if len(loaded) == 3:                                                        # the code for any batch could have answered that one too
            assert_close(loaded[1].call(*loaded[2].given), loaded[2].call(*loaded[2].given))
            assert len(loaded[1].call(*loaded[2].given)) == len(expected)
