"""Captured: what one capture gives. Made here, read by pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch.fx import GraphModule
from torch.fx._lazy_graph_module import _LazyGraphModule

from thruway.core.errors import BreakReason
from thruway.core.sizes import SizeLike
from thruway.frame.guard import GuardSet
from thruway.frame.source import Source
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import Facts


@dataclass(frozen=True, slots=True)
class GraphInput:
    """One placeholder of the graph, in order: a tensor, an integer where `meta` is a size, a float where it is `float`, or
    an array of numpy's where it is `object`.
    `weight`: reached through a module's parameters or buffers and not written. `written`: by an operator of the graph."""

    name: str
    source: Source
    meta: TensorMeta | SizeLike | type
    weight: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Captured:
    """`graph` holds torch-level calls (None where nothing was captured) and returns a flat tuple of tensors.
    `guards` hold for every later call that may use this entry.
    `finish(*locals, *graph_outputs)` applies the waiting effects in order, rebuilds the return value or carries on after a break; where
    it is None the return value is the graph's only output (`single_output`) or the tuple of them. With neither graph nor `finish` the
    function itself runs: its code raises.
    `kept` are objects that the entry must keep alive (`Made` sources index it). `break_reasons` say what is not in the graph, `facts` what the
    guards say of symbolic sizes. `hides_compiling`: the code heard that it is not being compiled, and its continuations must, too.
    `fails_behind_write`: elements decide whether an operator raises, behind a write of an input.
    `overlap`: an input that is written shares memory with another, so that calls may not be reordered; none of them was left out.
    `has_warned`: torch warns of a call in it; `finish` says so, and what runs the graph need not."""

    name: str
    graph: GraphModule | None
    inputs: tuple[GraphInput, ...]
    guards: GuardSet
    finish: Callable[..., object] | None
    single_output: bool
    kept: tuple[object, ...] = ()
    break_reasons: tuple[BreakReason, ...] = ()
    facts: Facts = field(default_factory=Facts)
    hides_compiling: bool = False
    overlap: BreakReason | None = None
    fails_behind_write: bool = False
    has_warned: bool = False

    @property
    def written(self) -> tuple[int, ...]:
        """The places of the inputs that the graph writes."""
        return tuple(i for i, each in enumerate(self.inputs) if each.written)

    @property
    def forward(self) -> Callable[..., tuple[object, ...]]:
        """The graph as a function of its inputs."""
        _LazyGraphModule.force_recompile(self.graph)
        return self.graph.forward

    def run(self, *inputs: object) -> tuple[object, ...]:
        """The same, whose Python code is written only if it runs."""
        return self.forward(*inputs)
