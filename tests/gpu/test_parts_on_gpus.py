"""Programs over several GPUs, and over a GPU and the CPU, in one graph: compiled part by part, with eager's answers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from runtime.device_programs import programs
from runtime.gpu_functions import MODES, assert_close, rows

import thruway
from thruway.pipeline import journal

two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
pytestmark = pytest.mark.gpu


class Halves(torch.nn.Module):
    """A model whose halves lie on two GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)).to("cuda:0")
        self.second = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to("cuda:1")

    def forward(self, x):
        return self.second(self.first(x).to("cuda:1")).softmax(-1)


def parts() -> list[str]:
    return [event.detail for event in journal.of_kind("parts")]


def assert_compiled() -> None:
    left = [(event.detail, event.reason) for event in journal.events if event.kind in ("bug", "eager", "graph_break")]
    assert not left and parts(), left


@two
@pytest.mark.parametrize("mode", MODES)
def test_two_halves_of_a_model(mode):
    model = Halves().eval()
    compiled = thruway.compile(model, mode=mode)
    with torch.no_grad():
        for _ in range(6):
            x = rows(16, 64)
            assert_close(compiled(x), model(x))
        model.second[0].weight.mul_(2.0)
        assert_close(compiled(x), model(x))
        with torch.cuda.device(1):
            assert_close(compiled(x), model(x))
            assert torch.cuda.current_device() == 1
    assert parts() == ["cuda:0 and cuda:1, with 1 moves between devices"]
    assert_compiled()


@two
def test_halves_at_another_batch():
    model = Halves().eval()
    compiled = thruway.compile(model)
    with torch.no_grad():
        for batch in (4, 4, 8, 8, 16, 4):
            x = rows(batch, 64)
            assert_close(compiled(x), model(x))
    assert not journal.of_kind("bug")


@two
def test_caches_on_both_gpus_are_written():
    def work(x, first, second, at):
        first[:, at] = x
        y = (first.sum(1) * 2).to("cuda:1")
        second[:, at] = y
        return second.softmax(1), first

    compiled = thruway.compile(work, mode="reduce-overhead")
    mine, theirs = ([torch.zeros(4, 8, 16, device=f"cuda:{i}") for i in range(2)] for _ in range(2))
    with torch.no_grad():
        for _ in range(6):
            x = rows(4, 16)
            got, want = compiled(x, *mine, 3), work(x, *theirs, 3)
            assert_close(got, want)
            assert got[1] is mine[0]
            assert_close(mine[1], theirs[1])
    assert_compiled()


@two
def test_draws_on_both_gpus_are_eagers():
    def work(x):
        return F.dropout((F.dropout(x, 0.5, True) @ x).to("cuda:1"), 0.25, True) + 1

    compiled, x = thruway.compile(work), rows(32, 32)
    with torch.no_grad():
        for seed in range(5):
            torch.manual_seed(seed)
            got, after = compiled(x), torch.rand(2, device="cuda:1")
            torch.manual_seed(seed)
            assert_close(got, work(x))
            assert torch.equal(after, torch.rand(2, device="cuda:1"))
    assert not journal.of_kind("bug")


@two
def test_there_and_back_on_streams_of_ones_own():
    def work(x, w):
        y = (x @ x).relu().to("cuda:1")
        return (y @ w).to("cuda:0").softmax(-1) + x, y

    compiled, w = thruway.compile(work, mode="reduce-overhead"), rows(32, 32).to("cuda:1")
    streams = [torch.cuda.Stream(f"cuda:{i}") for i in range(2)]
    with torch.no_grad():
        for k in range(8):
            x = rows(32, 32)
            torch.cuda.synchronize(0)
            with torch.cuda.stream(streams[1]), torch.cuda.stream(streams[0]):
                got = compiled(x, w)
            for each in streams:
                each.synchronize()
            assert_close(got, work(x, w))
    assert_compiled()


@pytest.mark.parametrize("mode", MODES)
def test_the_cpu_in_the_middle(mode):
    def work(x, table):
        return (x * 2).relu().cpu().sum(-1) + table, x.softmax(-1), (x.exp().to("cpu") + 1).to(x.device) * x

    compiled = thruway.compile(work, mode=mode)
    with torch.no_grad():
        for _ in range(6):
            x, table = rows(16, 16), torch.randn(16)
            assert_close(compiled(x, table), work(x, table))
    assert_compiled()


@pytest.mark.parametrize("mode", MODES)
def test_cpu_indices_and_scalars_among_gpu_inputs(mode):
    def work(x, index, scale, offset):
        return x[index] * scale + offset.sum(), x[:, index].softmax(-1), x.index_select(0, index.to(x.device))

    compiled = thruway.compile(work, mode=mode)
    with torch.no_grad():
        for k in range(6):
            x, index = rows(16, 16), torch.randint(0, 16, (5,))
            scale, offset = torch.tensor(1.5 + k), torch.randn(3)
            assert_close(compiled(x, index, scale, offset), work(x, index, scale, offset))
    assert_compiled()


def test_an_index_out_of_range_on_the_cpu_is_eagers_error():
    compiled, x, table = thruway.compile(lambda x, table, i: (x * 2).sum() + table[i].to(x.device)), rows(4), torch.randn(4)
    with torch.no_grad():
        for _ in range(3):
            compiled(x, table, torch.tensor([1, 2]))
        with pytest.raises(IndexError):
            compiled(x, table, torch.tensor([1, 9]))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("there", ["cpu", pytest.param("cuda:1", marks=two)])
@pytest.mark.parametrize("name", programs("cpu", "cpu"))
def test_programs_over_devices(name, there, mode):
    """Equal results, layouts and devices, and the same in the arguments afterwards."""
    function, make = programs("cuda:0", there)[name]
    compiled = thruway.compile(function, mode=mode)
    with torch.no_grad():
        for seed in range(5):
            mine = make()
            theirs = [each.clone() for each in mine]
            torch.manual_seed(seed)
            got = compiled(*mine)
            torch.manual_seed(seed)
            want = function(*theirs)
            assert_near(got, want)
            assert_near(mine, theirs)
    left = [(event.kind, event.detail, event.reason) for event in journal.events if event.kind in ("bug", "eager", "graph_break")]
    assert not left, left


def assert_near(got, want) -> None:
    if isinstance(want, torch.Tensor):
        assert (got.shape, got.dtype, got.stride(), got.device) == (want.shape, want.dtype, want.stride(), want.device)
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3 if want.dtype == torch.float32 else 1e-5)
        return
    for a, b in zip(got, want, strict=True):
        assert_near(a, b)


@two
def test_gradients_through_both_gpus():
    model, x = Halves(), rows(4, 64)
    compiled = thruway.compile(model)
    for _ in range(3):
        got, want = (torch.autograd.grad(each(x).square().sum(), list(model.parameters())) for each in (compiled, model))
        assert_near(got, want)
    assert not journal.of_kind("bug")


@two
def test_dynamic_sizes_over_both_gpus():
    compiled, work = (thruway.compile(f, dynamic=True) if wrap else f for f in (lambda x: (x.relu().to("cuda:1") + 1).sum(0),) for wrap in (True, False))
    with torch.no_grad():
        for n in (3, 5, 9, 3):
            x = rows(n, 4)
            assert_near(compiled(x), work(x))
    assert not journal.of_kind("bug")
