"""Repeated blocks: equal ones share their kernels, and blocks that differ in one thing each keep what is theirs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thruway
from thruway.pipeline import journal


class Block(nn.Module):
    def __init__(self, width: int = 96, slope: float = 0.5):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.randn(width) * 0.1 + 1)
        self.slope = slope

    def forward(self, x):
        y = self.linear(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain)
        return x + torch.where(y > 0, y, y * self.slope)


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Code:
    """Keeps the C text of what is compiled."""

    def __init__(self):
        self.texts = []

    def wants(self, stage):
        return stage == "code"

    def read(self, stage, function, text):
        self.texts.append(text)

    def kernels(self) -> int:
        return self.texts[-1].count("\nint tw_k")


@pytest.fixture
def code():
    reader = Code()
    journal.readers.append(reader)
    yield reader
    journal.readers.remove(reader)


def check(model: nn.Module, *more: nn.Module, width: int = 96) -> None:
    """The first call, which may derive as it goes, the second, which keeps, and one after every weight has changed."""
    model.eval()
    x = torch.randn(33, width)
    compiled = thruway.compile(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), atol=1e-4, rtol=1e-4)
        for parameter in model.parameters():
            parameter.mul_(0.9)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-4, rtol=1e-4)


def test_equal_blocks_share_their_kernels(code):
    counts = []
    for blocks in (3, 9):
        check(Stack(*(Block() for _ in range(blocks))))
        counts.append(code.kernels())
    assert counts[0] == counts[1]


def test_a_constant_that_differs_is_a_kernel_more(code):
    check(Stack(Block(), Block(), Block()))
    same = code.kernels()
    check(Stack(Block(), Block(slope=0.25), Block()))
    assert code.kernels() > same


class Half(Block):
    def forward(self, x):
        return super().forward(x.bfloat16().float())


class Counting(Block):
    """Writes a buffer, of which another block may see the same memory."""

    def __init__(self, seen: torch.Tensor):
        super().__init__()
        self.register_buffer("seen", seen)

    def forward(self, x):
        self.seen += x.mean(0)
        return super().forward(x) + self.seen


def tied() -> Stack:
    first, second = Block(), Block()
    second.linear.weight = first.linear.weight
    return Stack(first, second, Block())


def shared() -> Stack:
    block = Block()
    return Stack(block, Block(), block)


@pytest.mark.parametrize("make", [lambda: Stack(Block(), Half(), Block()), tied, shared], ids=["dtype", "tied", "shared"])
def test_blocks_that_are_nearly_equal(make):
    check(make())


@pytest.mark.parametrize("make", [tied, shared], ids=["tied", "shared"])
def test_large_blocks_that_are_nearly_equal(make, monkeypatch):
    """With so many weights the first call derives as it goes."""
    monkeypatch.setattr("thruway.runtime.first.MUCH", 1)
    check(make())


def test_blocks_whose_buffers_are_the_same_memory():
    def make(seen: torch.Tensor) -> Stack:
        torch.manual_seed(3)
        return Stack(Counting(seen[:96]), Counting(seen[48:144]), Counting(seen[:96])).eval()

    x, seen, wanted = torch.randn(33, 96), torch.zeros(144), torch.zeros(144)
    model, eager = make(seen), make(wanted)
    compiled = thruway.compile(model)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), eager(x), atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(seen, wanted, atol=1e-4, rtol=1e-4)
