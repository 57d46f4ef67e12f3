"""What stands in a captured graph for a loop, and for a branch that selection cannot express: calls that read the condition when the graph runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph
from torch.fx._lazy_graph_module import _LazyGraphModule

from thruway.native import RegionFailed


Run = Callable[..., tuple[torch.Tensor, ...]]


class Conditional:
    """`sides[0](*operands)` where the condition holds, else `sides[1](*operands)`; both give tuples of as many tensors."""

    __name__ = __qualname__ = "conditional"

    def __init__(self, when_true: Graph, when_false: Graph):
        self.sides = (_module(when_true), _module(when_false))

    def __call__(self, condition: torch.Tensor, *operands: Any) -> tuple[torch.Tensor, ...]:
        return forward_of(self.sides[0 if condition else 1])(*operands)

    @staticmethod
    def driver(when_true: Run, when_false: Run) -> Run:
        """A conditional whose sides are compiled."""
        def conditional(condition: torch.Tensor, *operands: Any) -> tuple[torch.Tensor, ...]:
            return (when_true if condition else when_false)(*operands)

        return conditional


class WhileLoop:
    """Rounds of `sides[0]` while the flag holds. A round takes the first `carried` operands and those behind the first `kept`; it gives the
    next flag, and what takes the place of the first `kept` operands: these are what the loop gives."""

    __name__ = __qualname__ = "while_loop"

    def __init__(self, body: Graph, carried: int, kept: int):
        self.sides = (_module(body),)
        self.carried, self.kept = carried, kept

    def __call__(self, flag: Any, *operands: Any) -> tuple[Any, ...]:
        return self.driver(forward_of(self.sides[0]))(flag, *operands)

    def driver(self, body: Run) -> Run:
        """What runs the loop by `body`."""
        carried, kept = self.carried, self.kept

        def while_loop(flag: Any, *operands: Any) -> tuple[Any, ...]:
            state, rest = operands[:kept], operands[kept:]
            while flag:
                flag, *state = body(*state[:carried], *rest)
            return tuple(state)

        return while_loop


def _module(graph: Graph) -> torch.fx.GraphModule:
    return _LazyGraphModule(torch.nn.Module(), graph)


def forward_of(side: torch.fx.GraphModule) -> Run:
    """What the module does, without what its call prints about errors."""
    if isinstance(side, _LazyGraphModule):
        _LazyGraphModule.force_recompile(side)
    return side.forward


class SideRaises(RegionFailed):
    """The user's code raises here: the function itself runs, and does."""


def expect(condition: torch.Tensor, wanted: bool) -> None:
    """Goes on where the condition is as wanted; the other side of the branch raises."""
    if bool(condition) is not wanted:
        raise SideRaises("a branch is taken whose code raises")


def is_raise_of_side(failure: BaseException | None) -> bool:
    """Whether a graph gave up because the user's code raises."""
    while failure is not None and not isinstance(failure, SideRaises):
        failure = failure.__cause__
    return failure is not None
