"""Every peer work at batch after batch: once the batch has changed it is symbolic, and the same compiled code answers every size."""

from __future__ import annotations

import pytest
import torch
import works

import thruway

pytestmark = pytest.mark.models
FIXED = {"decode"}                 # one token at a time, whatever the batch


@pytest.mark.parametrize("work", works.WORKS)
def test_one_symbolic_entry_answers_every_batch(work: str) -> None:
    torch.manual_seed(0)
    fn, make = works.build(work, "cpu", torch.float32, 2)
    thruway.reset()
    compiled = thruway.compile(fn, options={"measure": False})
    with torch.no_grad():
        for batch in (2, 7, 3, 1):
            args = make(batch)
            expected, got = works.flat(fn(*args)), works.flat(compiled(*args))
            for x, y in zip(expected, got, strict=True):
                assert x.shape == y.shape and x.stride() == y.stride()
                torch.testing.assert_close(y, x, rtol=2e-4, atol=1e-5 * float(x.abs().max()))
    found = thruway.metrics()
    assert found["bugs"] == found["eager"] == 0
    assert found["graphs"] <= (1 if work in FIXED else 3)        # batch 2, any batch, and batch 1 where it broadcasts
