"""A captured graph run by torch's own operators: where gradients are wanted, and where thruway's compiler cannot take the graph.

Where an operator fails before anything older than the call was written, random state goes back and RegionFailed says so: the caller
runs the function itself, which raises eager's error at the user's line. So it does where what was written is put back. Otherwise the error
is raised as it is: an operator that writes something older may have written half of it when it fails.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.fx import Graph, Node

from thruway.native import RegionFailed
from thruway.runtime.put_back import Before
from thruway.runtime.users_line import failed_node, raise_at_users_line

DRAWING = ("dropout", "rand", "bernoulli", "normal", "multinomial", "uniform", "exponential", "geometric", "cauchy", "poisson", "rrelu", "gumbel",
           "scaled_dot_product")
WRITING = ("batch_norm", "instance_norm")       # statistics
NORMALISING = ("embedding", "embedding_bag")                       # renormalise weights where they are given a `max_norm`
IN_PLACE = frozenset({operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, operator.iand,
                      operator.ior, operator.ixor, operator.imatmul, operator.ilshift, operator.irshift})
IN_PLACE_METHODS = frozenset({f"__{one.__name__}__" for one in IN_PLACE} | {"__setitem__"})
Outputs = tuple[torch.Tensor, ...]


def plain_region(graph: Graph, run: Callable[..., Outputs], put_back: Sequence[int] = ()) -> Callable[..., Outputs]:
    """A callable over the inputs of `graph`, which `run` runs. `put_back`: the places of all those that it writes, where they are to get back
    what they held if an operator fails."""
    writes, draws, older = may_write(graph), may_draw(graph), set() if put_back else _writing_older(graph)

    def call(*inputs: torch.Tensor) -> Outputs:
        others = [each for i, each in enumerate(inputs) if i not in put_back]
        before = _versions(others) if writes else ()
        held = [Before(inputs[i]) for i in put_back]
        state = random_state() if draws else None
        try:
            return run(*inputs)
        except Exception as error:
            if _has_saved_tensors_hooks():
                raise
            if not writes or _versions(others) == before and failed_node(error, graph) not in older and all(one.is_known() for one in held):
                for one in held:
                    one.put_back()
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
    return _writes_first(node) or name in WRITING or name in NORMALISING and _is_given(node, "max_norm", 3) \
        or "out" in node.kwargs or node.kwargs.get("inplace", False) is not False \
        or any(argument is True for argument in node.args) and not hasattr(node.target, "sides")            # training, not a loop's first test


def _writes_first(node: Node) -> bool:
    """Whether it is an operator in place."""
    name = name_of(node)
    return node.target in IN_PLACE or name == "setitem" or (name in IN_PLACE_METHODS if name.endswith("__") else name.endswith("_"))


def _is_given(node: Node, name: str, place: int) -> bool:
    return node.kwargs.get(name, node.args[place] if len(node.args) > place else None) is not None


def _may_be_written(node: Node) -> list[Node]:
    if not _may_write(node):
        return []
    return list(node.args[:1]) if _writes_first(node) and isinstance(node.args[0], Node) else node.all_input_nodes


def _writing_older(graph: Graph) -> set[Node]:
    """The calls that may write what was there before the graph ran. Where it is not known whose memory a tensor shares, it counts as older."""
    outside = {id(_root(node)) for node in graph.nodes if node.op in ("placeholder", "get_attr")}
    return {node for node in graph.nodes if node.op.startswith("call") and any(
        any(_root(one) is None or id(_root(one)) in outside for one in _may_be_written(call)) for call in _with_sides(node))}


def _root(node: Node) -> object:
    """Whose memory the node's tensor shares; None where that is not known."""
    return getattr(node.meta.get("example_value"), "root", None)


def _with_sides(node: Node) -> Iterator[Node]:
    yield node
    for side in getattr(node.target, "sides", ()):
        yield from calls_in(side.graph)


def _versions(inputs: Sequence[object]) -> list[int]:
    return [each._version for each in inputs if isinstance(each, torch.Tensor) and not each.is_inference()]
