"""The order of execution: every group after what it needs, as near to program order as that allows.

Program order keeps producers next to their consumers, and what the user wrote frees memory where the user let go of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from thruway.core.errors import CompilerBug
from thruway.schedule.depend import members
from thruway.schedule.fuse import Group


def order(groups: Sequence[Group]) -> list[Group]:
    """`groups` topologically sorted; among those that are ready, the one whose last node comes first."""
    home = {i: k for k, g in enumerate(groups) for i in g.nodes}
    waits = [{home[i] for i in members(g.direct)} - {k} for k, g in enumerate(groups)]
    followers: dict[int, list[int]] = {}
    for k, needs in enumerate(waits):
        for need in needs:
            followers.setdefault(need, []).append(k)
    left = [len(needs) for needs in waits]
    ready = [(g.nodes[-1], k) for k, g in enumerate(groups) if not left[k]]
    heapify(ready)
    result = []
    while ready:
        _, k = heappop(ready)
        result.append(groups[k])
        for follower in followers.get(k, ()):
            left[follower] -= 1
            if not left[follower]:
                heappush(ready, (groups[follower].nodes[-1], follower))
    if len(result) != len(groups):
        raise CompilerBug("schedule", "the fused groups depend on each other in a circle")
    return result
