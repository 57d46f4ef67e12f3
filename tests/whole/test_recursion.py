"""Calls within calls: those that the recursion limit allows are captured, and those that find no end raise at once, as in eager."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thruway

def down(x: torch.Tensor, n: int) -> torch.Tensor:
    return x if n == 0 else down(x, n - 1) + 1


def even(x: torch.Tensor, n: int) -> torch.Tensor:
    return x if n == 0 else odd(x, n - 1)


def odd(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * 2 if n == 0 else even(x + n, n - 1)


class Stack(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2) * 0.5)

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x * self.scale if n == 0 else self(x, n - 1) + 1


def endless(x: torch.Tensor) -> torch.Tensor:
    return endless(x + 1)


def ping(x: torch.Tensor) -> torch.Tensor:
    return pong(x + 1)


def pong(x: torch.Tensor) -> torch.Tensor:
    return ping(x * 2)


def in_a_generator(x: torch.Tensor) -> torch.Tensor:
    return sum(in_a_generator(x + k) for k in range(2))


def in_a_key(x: torch.Tensor) -> list[int]:
    return sorted([1, 2], key=lambda k: in_a_key(x + k))


def compiled_below(x: torch.Tensor) -> torch.Tensor:
    return below(x + 1)


below = thruway.compile(compiled_below)


class Endless(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self(x + 1)

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return self.method(x + 1)

    def __getitem__(self, key: int) -> Any:
        return self[key + 1]


forever = Endless()
again: Callable[[torch.Tensor], torch.Tensor] = lambda x: again(x + 1)    # noqa: E731


@pytest.mark.parametrize("function", [endless, ping, forever, forever.method, again, in_a_generator, in_a_key, compiled_below,
                                      lambda x: forever[0] + x], ids=lambda f: getattr(f, "__qualname__", "module"))
@pytest.mark.parametrize("fullgraph", [False, True])
def test_recursion_without_end_raises_soon(function: Callable[..., Any], fullgraph: bool) -> None:
    gc.collect()                                # finalizers of what other tests left would run at the end of the stack
    compiled = thruway.compile(function, fullgraph=fullgraph)
    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(RecursionError):
            compiled(torch.ones(2))
        assert time.monotonic() - started < 15


def test_a_caught_recursion_error_is_eagers() -> None:
    def caught(x: torch.Tensor) -> torch.Tensor:
        try:
            return endless(x)
        except RecursionError:
            return x + 5
    assert torch.equal(thruway.compile(caught)(torch.ones(2)), torch.ones(2) + 5)


@pytest.mark.parametrize("function", [down, even])
@pytest.mark.faults
def test_deep_recursion_is_captured_whole(function: Callable[..., Any]) -> None:
    compiled = thruway.compile(function, fullgraph=True)
    assert torch.equal(compiled(torch.ones(2), 300), function(torch.ones(2), 300))


@pytest.mark.faults
def test_recursion_as_deep_as_the_limit_allows() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(2000)
    try:
        assert torch.equal(thruway.compile(down, fullgraph=True)(torch.ones(2), 900), down(torch.ones(2), 900))
        with pytest.raises(RecursionError):
            thruway.compile(down)(torch.ones(2), 2500)
    finally:
        sys.setrecursionlimit(limit)


def test_modules_within_themselves() -> None:
    module = Stack()
    assert torch.equal(thruway.compile(module)(torch.ones(2), 60), module(torch.ones(2), 60))


def test_captures_own_depth_is_not_an_error_of_the_code() -> None:
    """Sums of generators take many of capture's own frames: an `except` of the user's must not see that."""
    def deep(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else sum(deep(x, n - 1) + k for k in range(1))

    def guarded(x: torch.Tensor, n: int) -> torch.Tensor:
        try:
            return deep(x, n)
        except Exception:
            return x - 1000
    assert torch.equal(thruway.compile(guarded)(torch.ones(2), 150), guarded(torch.ones(2), 150))
