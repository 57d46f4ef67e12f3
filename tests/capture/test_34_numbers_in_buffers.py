"""Integers that a module keeps in buffers, where Python reads them: guarded at the number they hold; once one has changed, read in the graph."""

import copy

import pytest
import torch
import torch.nn.functional as F

import thruway


class Padded(torch.nn.Module):
    """As audio codecs keep strides and kernel sizes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("stride", torch.tensor(2))
        self.register_buffer("kernel", torch.tensor(3))
        self.register_buffer("on", torch.tensor(True))

    def forward(self, x):
        pad = self.kernel - self.stride
        frames = torch.ceil((x.shape[-1] - self.kernel + pad) / self.stride + 1).to(torch.int64)
        if self.on:
            x = x + 1
        if max(pad, frames) > 100:
            x = x - 1
        return F.pad(x, (pad, frames // 2)) * 2, x[:, : self.kernel], x.new_zeros(self.kernel, self.stride), int(frames)


class Counted(torch.nn.Module):
    """A count that each call changes is no reason to capture again each time."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        if self.steps > 3:
            x = x * 2
        self.steps += 1
        if self.steps > 5:
            x = x + 1
        return x


class Shared(torch.nn.Module):
    """The number lies in memory that is written before it is read."""

    def __init__(self):
        super().__init__()
        self.register_buffer("both", torch.tensor([2, 3]))
        self.register_buffer("second", self.both[1])

    def forward(self, x):
        self.both += 1
        return x[: self.second] * 2


def run(module, times, change=lambda module, i: None, size=(2, 9)):
    other, x = copy.deepcopy(module), torch.randn(*size)
    thruway.reset()
    compiled = thruway.compile(module)
    with torch.no_grad():
        for i in range(times):
            change(module, i)
            change(other, i)
            torch.testing.assert_close(compiled(x), other(x))
            for name, buffer in module.named_buffers():
                assert torch.equal(buffer, other.get_buffer(name)), name
    return thruway.metrics()


def test_numbers_that_stay_are_known():
    counted = run(Padded(), 4)
    assert (counted["graphs"], counted["graph_breaks"], counted["recompiles"]) == (1, 0, 0)


@pytest.mark.parametrize("name, value", [("kernel", 5), ("on", False), ("stride", 3)])
def test_a_change_is_seen(name, value):
    counted = run(Padded(), 6, lambda module, i: module.get_buffer(name).fill_(value) if i >= 3 else None)
    assert counted["recompiles"] >= 1 and not counted["bugs"]


def test_a_number_that_changes_at_each_call_stays_in_the_graph():
    counted = run(Counted(), 9)
    assert counted["graph_breaks"] == 0 and counted["recompiles"] <= 1


def test_memory_that_another_buffer_writes():
    module = Shared()
    other = Shared()
    thruway.reset()
    compiled, x = thruway.compile(module), torch.randn(12)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), other(x))


def test_arguments_are_not_fixed_to_their_numbers():
    def function(x, n):
        return torch.ones(n) * x, x.new_zeros(n)
    thruway.reset()
    compiled = thruway.compile(function)
    for n in (1, 4, 2, 7):
        torch.testing.assert_close(compiled(torch.tensor(2.0), torch.tensor(n)), function(torch.tensor(2.0), torch.tensor(n)))
    assert thruway.metrics()["recompiles"] == 0
