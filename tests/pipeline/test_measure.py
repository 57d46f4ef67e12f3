"""What the comparison with eager leaves behind: one kept_eager event, the same answers, and no second run where it is not allowed."""

import pytest
import torch

import thruway
from thruway import pipeline
from thruway.runtime import measure
from thruway.runtime.measure import MANY


def f(x):
    return torch.sin(x) + 1


@pytest.fixture
def slow(monkeypatch):
    """Makes compiled code look slow, whatever it does."""
    real = measure.Comparison._look

    def look(self):
        self.pairs[-1] = (2e-3, 1e-3)
        real(self)

    monkeypatch.setattr(measure.Comparison, "_look", look)


def test_eager_takes_over_where_it_is_faster(slow):
    x = torch.randn(8)
    compiled = thruway.compile(f)
    pipeline.journal.clear()
    for _ in range(MANY + 3):
        assert torch.allclose(compiled(x), f(x))
    assert len(pipeline.journal.of_kind("kept_eager")) == 1 and len(pipeline.journal.of_kind("capture")) == 1
    assert torch.equal(compiled(x), f(x))


@pytest.mark.parametrize("deterministic", [True, False])
def test_compiled_code_stays_under_deterministic_algorithms_and_where_measuring_is_off(slow, deterministic):
    x = torch.randn(8)
    torch.use_deterministic_algorithms(deterministic)
    try:
        compiled = thruway.compile(f, options={"measure": deterministic})
        pipeline.journal.clear()
        for _ in range(MANY + 3):
            compiled(x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not pipeline.journal.of_kind("kept_eager")
