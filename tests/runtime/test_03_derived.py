"""Derived values follow the weights, however these are written."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runtime.programs import MULTIPLY_ADD, launch_list, matrix, vector

from thruway.core.launch import Allocate, Call, Kernel, SlotRef, View
from thruway.runtime.derived import watched_inputs
from thruway.runtime.first import derives_much, interleaved

N = 96


def scaled_linear():
    """x @ (w*w + w).T; the weight's square is derived, through a kernel, a view and a call."""
    w = matrix(N, N)
    derived = (
        Allocate(3, w, arena=0), Kernel("multiply_add", (1, 1, 1, 3), (N * N,)),
        View(4, 3, matrix(N, N).__class__("float32", (N, N), (1, N))),
        Call("aten::contiguous", (SlotRef(4),), (), (5,)),
        Call("aten::clone", (SlotRef(5),), (), (2,)),
    )
    steps = (Call("aten::mm", (SlotRef(0), SlotRef(2)), (), (6,)),)
    return launch_list((matrix(2, N), w), steps, (6,), 7, weights=(1,), derived=derived, derived_slots=(2,), arena_bytes=4 * N * N)


def plain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    w = w.detach()
    return (x @ (w * w + w).T,)


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def run(loader, reports):
    return loader(scaled_linear(), MULTIPLY_ADD, report=reports.append)


def check(run, x, w) -> None:
    torch.testing.assert_close(run(x, w)[0], plain(x, w)[0], atol=1e-2, rtol=1e-4)


def test_derived_once(run, reports):
    x, w = torch.randn(2, N), torch.randn(N, N)
    assert watched_inputs(scaled_linear()) == (1,)
    for _ in range(5):
        check(run, x, w)
    assert not reports and run.derived_bytes == 4 * N * N


def copy_(w):
    w.data.copy_(torch.randn(N, N))


def data_write(w):
    w.data[...] = torch.randn(N, N)


def numpy_write(w):
    w.detach().numpy()[...] = 3


def optimizer_step(w):
    w.grad = torch.ones_like(w)
    torch.optim.SGD([w], lr=0.5).step()


def fused_step(w):
    w.grad = torch.ones_like(w)
    torch.optim.Adam([w], lr=0.5, fused=True).step()


def new_data(w):
    w.data = torch.randn(N, N)


def under_no_grad(w):
    with torch.no_grad():
        w[3, 4] += 1


@pytest.mark.parametrize("write", [copy_, data_write, numpy_write, optimizer_step, fused_step, new_data, under_no_grad])
def test_a_written_weight_is_seen(run, reports, write):
    x, w = torch.randn(2, N), torch.nn.Parameter(torch.randn(N, N))
    check(run, x, w)
    for times in (1, 2):
        write(w)
        for _ in range(3):
            check(run, x, w)
        assert len(reports) <= times
    assert reports


def test_load_state_dict(run, reports):
    module, other = torch.nn.Linear(N, N), torch.nn.Linear(N, N)
    x = torch.randn(2, N)
    check(run, x, module.weight)
    module.load_state_dict(other.state_dict())
    check(run, x, module.weight)
    module.load_state_dict({name: value.clone() for name, value in other.state_dict().items()}, assign=True)
    check(run, x, module.weight)
    assert len(reports) == 2


def test_a_replaced_weight_is_seen_and_let_go(run, reports):
    x, w = torch.randn(2, N), torch.randn(N, N)
    check(run, x, w)
    check(run, x, w.clone())
    check(run, x, torch.zeros(N, N))
    assert len(reports) == 2


def test_inference_mode_weights(run, reports):
    with torch.inference_mode():
        x, w = torch.randn(2, N), torch.randn(N, N)
        check(run, x, w)
        check(run, x, w)
        w.add_(1)
        check(run, x, w)
    assert len(reports) == 1


def test_a_restless_weight_runs_plain_and_comes_back(loader, reports):
    calls: list[int] = []

    def underived(x, w):
        calls.append(1)
        return plain(x, w)

    run = loader(scaled_linear(), MULTIPLY_ADD, report=reports.append, plain=underived)
    x, w = torch.randn(2, N), torch.randn(N, N)
    for _ in range(10):
        check(run, x, w)
        w.add_(1)
    assert len(calls) >= 6 and len(reports) <= 3
    before = len(reports)
    for _ in range(40):
        check(run, x, w)
    assert len(reports) == before + 1 and 16 <= len(calls) <= 30


def test_without_a_plain_path_it_derives_each_time(run, reports):
    x, w = torch.randn(2, N), torch.randn(N, N)
    for _ in range(6):
        check(run, x, w)
        w.add_(1)
    assert len(reports) == 5


def test_small_and_empty_weights(loader):
    derived = (Call("aten::mul.Tensor", (SlotRef(1), 2), (), (2,)),)
    for n in (0, 1, 3):
        steps = (Call("aten::add.Tensor", (SlotRef(0), SlotRef(2)), (), (3,)),)
        run = loader(launch_list((vector(n), vector(n)), steps, (3,), 4, weights=(1,), derived=derived, derived_slots=(2,)))
        x, w = torch.randn(n), torch.randn(n)
        assert torch.equal(run(x, w)[0], x + 2 * w)
        w.numpy()[...] = 5
        assert torch.equal(run(x, w)[0], x + 2 * w)


def test_a_failed_derivation_is_tried_again(loader):
    derived = (Call("aten::mm", (SlotRef(1), SlotRef(1)), (), (2,)),)
    steps = (Call("aten::mm", (SlotRef(0), SlotRef(2)), (), (3,)),)
    run = loader(launch_list((matrix(2, 2), matrix(2, 2)), steps, (3,), 4, weights=(1,), derived=derived, derived_slots=(2,)))
    x, w = torch.randn(2, 2), torch.randn(2, 3)
    with pytest.raises(Exception, match="mat1 and mat2"):
        run(x, w)
    w.data = torch.randn(2, 2)
    torch.testing.assert_close(run(x, w)[0], x @ (w @ w))


def packed_chain():
    """Two weights, each copied and turned by derived steps, the second by two through a view; the wide one makes the first call derive as it goes."""
    w, wide = matrix(N, N), matrix(N, 1 << 16)
    derived = (
        Call("aten::clone", (SlotRef(2),), (), (4,)),
        View(5, 4, matrix(N, N).__class__("float32", (1 << 16, N), (1, 1 << 16))),
        Call("aten::clone", (SlotRef(1),), (), (6,)),
        Allocate(7, w), Kernel("multiply_add", (6, 6, 6, 7), (N * N,)),
        Call("aten::contiguous", (SlotRef(5),), (), (8,)),
    )
    steps = (Call("aten::mm", (SlotRef(0), SlotRef(7)), (), (9,)), Call("aten::mm", (SlotRef(9), SlotRef(4)), (), (10,)),
             Call("aten::mm", (SlotRef(10), SlotRef(8)), (), (3,)))
    return launch_list((matrix(2, N), w, wide), steps, (3,), 11, weights=(1, 2), derived=derived, derived_slots=(4, 7, 8))


def test_the_first_call_keeps_nothing_and_gives_the_same(loader, reports):
    launch = packed_chain()
    assert derives_much(launch) and not derives_much(scaled_linear())
    run = loader(launch, MULTIPLY_ADD, report=reports.append)
    x, w, wide = torch.randn(2, N), torch.randn(N, N), torch.randn(N, 1 << 16) * 1e-2
    first = run(x, w, wide)[0]
    assert run.derivation.times == 0 and run.derived_bytes == 0
    assert torch.equal(run(x, w, wide)[0], first) and run.derivation.times == 1
    torch.testing.assert_close(first, x @ (w * w + w) @ wide @ wide.T, atol=1e-2, rtol=1e-3)
    w.data.mul_(2)
    torch.testing.assert_close(run(x, w, wide)[0], x @ (w * w + w) @ wide @ wide.T, atol=1e-2, rtol=1e-3)
    assert run.derivation.times == 2 and len(reports) == 1


def test_derived_steps_stand_before_the_first_that_needs_them():
    steps = interleaved(packed_chain()).steps
    assert [step.outs[0] for step in steps if isinstance(step, Call)] == [6, 9, 4, 10, 8, 3]


def test_derived_steps_stay_apart_where_a_step_writes():
    launch = packed_chain()
    writing = replace(launch, steps=(*launch.steps, Call("aten::mul_", (SlotRef(0), 2), (), (), True)))
    assert not derives_much(writing)
