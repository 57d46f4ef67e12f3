"""Tensors of more elements than 32 bits count, and values that pass 32 bits, on a GPU: eager's numbers, by kernels of ours."""

from __future__ import annotations

import pytest
import torch
from runtime.gpu_functions import rows

import thruway
from thruway import gpu_compiler
from thruway.pipeline import journal

pytestmark = pytest.mark.gpu
ROWS, COLUMNS = 2200, 1_000_000                 # 2.2e9 elements


def filled() -> torch.Tensor:
    """Small numbers that say where they stand."""
    made = torch.empty(ROWS, COLUMNS, device="cuda", dtype=torch.int8)
    for k, row in enumerate(made):
        row.copy_((torch.arange(COLUMNS, device="cuda") + k * COLUMNS) % 101)
    return made


def assert_same(function, *args, **options):
    compiled = thruway.compile(function, **options)
    with torch.no_grad():
        for _ in range(2):
            got, want = compiled(*args), function(*args)
            for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype) and torch.equal(a, b)
    assert_compiled()


def assert_compiled() -> None:
    left = [f"{event.kind}: {event.detail} {event.reason}" for event in journal.events if event.kind in ("bug", "eager")]
    assert not left, left


FUNCTIONS = {
    "pointwise": lambda x: x + 1,
    "columns": lambda x: (x.sum(0), x.amax(0), x.amin(0)),
    "rows": lambda x: (x.sum(1), x.amin(1)),
    "everything": lambda x: x.sum(),
    "running": lambda x: x[:, :1000].cumsum(0) + x[-1, :1000],
    "every_third": lambda x: x.view(-1)[::3] + 1,
    "turned": lambda x: x.t()[-3:] + 1,
    "rows_looked_up": lambda x, at: x[at] + 1,
    "written": lambda x, at: x.clone().index_fill_(0, at[1:], 7)[-2:] + 1,
}


def test_more_elements_than_32_bits_count():
    """In one test, so that one process at a time holds so much memory."""
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("needs 60 GiB of free GPU memory")
    large, places = filled(), torch.tensor([0, ROWS - 1], device="cuda")
    try:
        for function in FUNCTIONS.values():
            assert_same(function, large, *([places] if function.__code__.co_argcount == 2 else []))
        views_that_reach_far_as_inputs(large)
        sizes_that_grow_past_32_bits(large)
    finally:
        thruway.reset()
        torch.cuda.empty_cache()


def views_that_reach_far_as_inputs(large):
    """Few elements, far apart."""
    assert_same(lambda x, y: (x + 1, y.sum(0), y.cumsum(0)), large.view(-1)[::1_000_003], large[:, :2])


def sizes_that_grow_past_32_bits(large):
    compiled = thruway.compile(lambda x: (x + 1, x.sum(0)), dynamic=True)
    with torch.no_grad():
        for count in (5, 70, ROWS, 6, ROWS):
            x = large[:count]
            first, second = compiled(x)
            assert torch.equal(first, x + 1) and torch.equal(second, x.sum(0)), count
    assert_compiled()


def test_factors_that_reach_far(monkeypatch):
    if torch.cuda.mem_get_info()[0] < 20 << 30:
        pytest.skip("needs 20 GiB of free GPU memory")
    memory = torch.zeros(64 * 40_000_000, device="cuda", dtype=torch.bfloat16)
    far, near = memory.as_strided((64, 64), (40_000_000, 1)), rows(64, 64, dtype=torch.bfloat16)
    far.copy_(rows(64, 64, dtype=torch.bfloat16))
    monkeypatch.setattr(gpu_compiler, "parts_of", lambda product: 1)
    compiled = thruway.compile(lambda a, b: torch.mm(a, b).float() * 0.5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(near, far), near.float() @ far.float() * 0.5, rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize("options", [{}, {"dynamic": True}], ids=str)
def test_values_past_32_bits(options):
    assert_same(lambda x: (torch.arange(0, 10**10, 10**7, device=x.device) + x, x * x.size(0) ** 4), torch.arange(1000, device="cuda"), **options)
