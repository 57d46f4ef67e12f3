"""What is rounded to bfloat16 at once takes quick forms of exp, quotients and erf: every bfloat16 value through them, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway

pytestmark = pytest.mark.gpu
FUNCTIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "exp": torch.exp}
EXACT = {"gelu": lambda x: x * torch.erfc(x * -(0.5**0.5)) / 2}        # 1 + erf(x) has no digits left far below 0, in float64 too


@torch.no_grad()
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_short_value(name):
    x = torch.arange(-2**15, 2**15, dtype=torch.int32, device="cuda").to(torch.int16).view(torch.bfloat16)
    got, eager, truth = thruway.compile(FUNCTIONS[name])(x), FUNCTIONS[name](x), EXACT.get(name, FUNCTIONS[name])(x.double())
    assert torch.equal(got.isnan(), eager.isnan()) and torch.equal(got.isinf(), eager.isinf())
    known = truth.isfinite() & got.isfinite()
    away, allowed = (got.double() - truth).abs()[known], truth.abs()[known] * 2**-8 * 1.02 + 1e-37
    eager_away = (eager.double() - truth).abs()[known]
    worse = (away > allowed) & (away > 1.02 * eager_away)
    assert not worse.any(), (x[known][worse][:8], got[known][worse][:8], truth[known][worse][:8])
