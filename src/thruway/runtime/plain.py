"""A captured graph run by torch's own operators: where gradients are wanted, and where thruway's compiler cannot take the graph.

Where an operator fails before anything older than the call was written, random state goes back and RegionFailed says so: the caller
runs the function itself, which raises eager's error at the user's line. An operator that writes something older may have written half of it
when it fails, so its error is raised as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.fx import Graph, Node

from thruway.native import RegionFailed
from thruway.runtime.users_line import failed_node, raise_at_users_line

DRAWING = ("dropout", "rand", "bernoulli", "normal", "multinomial", "uniform", "exponential", "geometric", "cauchy", "poisson", "rrelu", "gumbel",
           "scaled_dot_product")
WRITING = ("batch_norm", "instance_norm", "setitem", "embedding", "embedding_bag")       # statistics; weights renormalised by max_norm
IN_PLACE = frozenset({operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, operator.iand,
                      operator.ior, operator.ixor, operator.imatmul, operator.ilshift, operator.irshift})
IN_PLACE_METHODS = frozenset({f"__{one.__name__}__" for one in IN_PLACE} | {"__setitem__"})
Outputs = tuple[torch.Tensor, ...]


def plain_region(graph: Graph, run: Callable[..., Outputs]) -> Callable[..., Outputs]:
    """A callable over the inputs of `graph`, which `run` runs."""
    writes, draws, older = may_write(graph), may_draw(graph), _writing_older(graph)

    def call(*inputs: torch.Tensor) -> Outputs:
        before = _versions(inputs) if writes else ()
        state = random_state() if draws else None
        try:
            return run(*inputs)
        except Exception as error:
            if _has_saved_tensors_hooks():
                raise
            if not writes or _versions(inputs) == before and failed_node(error, graph) not in older:
                if state is not None:
                    set_random_state(state)
                raise RegionFailed(error) from error
            failure = error
        try:                                           # out here what is raised takes no context from the one just caught
            raise_at_users_line(failure, graph)
        finally:
            del failure

    return call


def random_state() -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Of the CPU and of every GPU in use; a generator that is being recorded tells nothing."""
    on_gpus = torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if on_gpus else []


def set_random_state(state: tuple[torch.Tensor, list[torch.Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def _has_saved_tensors_hooks() -> bool:
    """The error may then come from a hook of the caller's, which must not run twice (activation checkpointing stops by raising in one)."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def may_write(graph: Graph) -> bool:
    """Whether some operator may write a tensor in place."""
    return any(_may_write(node) for node in calls_in(graph))


def may_draw(graph: Graph) -> bool:
    """Whether some operator may draw random numbers."""
    return any(word in name_of(node) for node in calls_in(graph) for word in DRAWING)


def calls_in(graph: Graph) -> Iterator[Node]:
    """The calls of a captured graph, those in the sides of its branches included."""
    for node in graph.nodes:
        if node.op.startswith("call"):
            yield node
            for side in getattr(node.target, "sides", ()):
                yield from calls_in(side.graph)


def name_of(node: Node) -> str:
    """The name of the function or method that a node of a captured graph calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _may_write(node: Node) -> bool:
    name = name_of(node)
    in_place = name in IN_PLACE_METHODS if name.endswith("__") else name.endswith("_")
    return in_place or node.target in IN_PLACE or name in WRITING or "out" in node.kwargs or node.kwargs.get("inplace", False) is not False \
        or any(argument is True for argument in node.args) and not hasattr(node.target, "sides")            # training, not a loop's first test


def _writing_older(graph: Graph) -> set[Node]:
    """The calls that may write what was there before the graph ran. Where it is not known whose memory a tensor shares, it counts as older."""
    outside = {id(_root(node)) for node in graph.nodes if node.op in ("placeholder", "get_attr")}
    return {node for node in graph.nodes if node.op.startswith("call") and any(
        _may_write(call) and any(_root(one) is None or id(_root(one)) in outside for one in call.all_input_nodes) for call in _with_sides(node))}


def _root(node: Node) -> object:
    """Whose memory the node's tensor shares; None where that is not known."""
    return getattr(node.meta.get("example_value"), "root", None)


def _with_sides(node: Node) -> Iterator[Node]:
    yield node
    for side in getattr(node.target, "sides", ()):
        yield from calls_in(side.graph)


def _versions(inputs: Sequence[object]) -> list[int]:
    return [each._version for each in inputs if isinstance(each, torch.Tensor) and not each.is_inference()]
