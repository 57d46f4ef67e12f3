"""Tensors that are one in eager, or share memory there, on one side of a branch only.

A selection gives a new tensor where eager gives one of two that exist. That shows only if both ends of such a link are seen outside, or
if one is written and the other read afterwards. Whether that is so is known when capture ends; the branch is then taken more carefully.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from thruway.capture.state import State
from thruway.capture.values.base import TensorValue, Value


@dataclass(frozen=True, slots=True)
class Link:
    """`site`: the branch. `first` and `second`: traces that own the storage. `is_copy`: what came out is never the same tensor."""

    site: Any
    first: torch.Tensor
    second: torch.Tensor
    node: torch.fx.Node
    is_copy: bool


class Reconsider(Exception):
    """Capture shall start again, with more care at `sites`."""

    def __init__(self, sites: set[Any]):
        super().__init__()
        self.sites = sites


def may_be_one(state: State, left: Value, right: Value) -> bool:
    """Whether a branch decides if the two tensors are one object."""
    if not isinstance(left, TensorValue) or not isinstance(right, TensorValue):
        return False
    return any({id(left.trace.root), id(right.trace.root)} <= roots for roots, _ in groups(state))


def groups(state: State) -> list[tuple[set[int], list[Link]]]:
    """Storages that links connect."""
    found: list[tuple[set[int], list[Link]]] = []
    for link in state.links:
        roots, links = {id(link.first), id(link.second)}, [link]
        for group in [one for one in found if one[0] & roots]:
            found.remove(group)
            roots, links = roots | group[0], [*group[1], *links]
        found.append((roots, links))
    return found


def check_links(state: State, outputs: list[torch.fx.Node]) -> None:
    """Reconsider where a link shows."""
    if not state.links:
        return
    seen = {id(root) for root in map(_root_of, outputs) if root is not None} | {id(one.value.trace.root) for one in state.inputs
                                                                                if isinstance(one.value, TensorValue)}
    doubtful: set[Any] = set()
    for roots, links in groups(state):
        if len(roots & seen) > 1:
            doubtful |= {link.site for link in links if link.is_copy}
        if roots & state.written and _others_are_used(state, roots, links, seen):
            doubtful |= {link.site for link in links}
    if doubtful:
        raise Reconsider(doubtful)


def _others_are_used(state: State, roots: set[int], links: list[Link], seen: set[int]) -> bool:
    """Whether any storage but a single one of `roots` is seen outside, or read behind the first of the branches."""
    own = {link.node for link in links}
    used, behind = roots & seen, False
    for node in state.graph.nodes:
        if behind and node not in own:
            used |= roots & {id(root) for root in map(_root_of, node.all_input_nodes) if root is not None}
        behind |= node in own
    return len(used) > 1


def _root_of(node: torch.fx.Node) -> torch.Tensor | None:
    return getattr(node.meta.get("example_value"), "root", None)
