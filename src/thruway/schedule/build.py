"""From a Program to a Plan: inline, fuse, order, give each group its phases, place every buffer.

The plan computes what the program's nodes compute in order; only memory traffic and the number of steps differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from thruway.core.settings import Settings
from thruway.core.target import Target
from thruway.loops.ir import Buffer, Extern, Kernel, Node, Program
from thruway.schedule.checks import settle_checks
from thruway.schedule.depend import read_buffers, root
from thruway.schedule.fuse import Fuser, Group, fuse
from thruway.schedule.inline import inline
from thruway.schedule.layout import settle_strides
from thruway.schedule.memory import plan_memory
from thruway.schedule.order import order
from thruway.schedule.phases import build_kernel
from thruway.schedule.plan import Plan, Prediction

# Library calls with an `.out` overload of the same arguments, whose result may therefore go into the arena.
OUT_VARIANTS = frozenset(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"))


def build_plan(program: Program, target: Target, settings: Settings) -> Plan:
    """The plan of `program` on `target`."""
    buffers = settle_strides(program.buffers)
    read_by_steps = {b for node in program.nodes for b in read_buffers(node)}
    kept = tuple(dict.fromkeys((*sorted(read_by_steps), *program.outputs)))
    derived, first = _steps(program.derived, buffers, kept, "d", target)
    steps, second = _steps(program.nodes, buffers, program.outputs, "k", target)
    steps = settle_checks(steps, buffers)
    placements, arena = plan_memory(buffers, derived, steps, program.outputs, OUT_VARIANTS, target)
    used = {name: buffer for name, buffer in buffers.items() if name in placements}
    return Plan(program.inputs, used, derived, steps, program.outputs, placements, arena, first + second)


def plan_unfused(program: Program, target: Target = Target()) -> Plan:
    """One step per node, nothing inlined: what tests and `report` hold the fused plan against."""
    buffers = settle_strides(program.buffers)
    parts = []
    for nodes, prefix in ((program.derived, "d"), (program.nodes, "k")):
        fuser = Fuser(nodes, buffers)
        for i in range(len(nodes)):
            fuser.add_alone(i)
        parts.append(_emit([g for g in fuser.groups if g is not None], nodes, buffers, frozenset(buffers), prefix))
    derived, steps = parts[0], settle_checks(parts[1], buffers)
    placements, arena = plan_memory(buffers, derived, steps, program.outputs, OUT_VARIANTS, target)
    used = {n: b for n, b in buffers.items() if n in placements}
    return Plan(program.inputs, used, derived, steps, program.outputs, placements, arena)


def _steps(
    nodes: Sequence[Node], buffers: dict[str, Buffer], outputs: Sequence[str], prefix: str, target: Target,
) -> tuple[tuple[Kernel | Extern, ...], tuple[Prediction, ...]]:
    nodes = inline(nodes, buffers, outputs, target.kind == "cuda")
    private = frozenset(buffers) - {root(b, buffers) for b in outputs} if target.kind == "cuda" else None
    groups, predictions = fuse(nodes, buffers, private)
    groups = order(groups)
    return _emit(groups, nodes, buffers, frozenset(root(b, buffers) for b in outputs), prefix), predictions


def _emit(
    groups: Sequence[Group], nodes: Sequence[Node], buffers: dict[str, Buffer], leaving: frozenset[str], prefix: str,
) -> tuple[Kernel | Extern, ...]:
    home = {i: k for k, g in enumerate(groups) for i in g.nodes}
    readers: dict[str, set[int]] = {}
    for i, node in enumerate(nodes):
        for name in read_buffers(node):
            readers.setdefault(root(name, buffers), set()).add(home[i])
    result = []
    for k, group in enumerate(groups):
        node = nodes[group.nodes[0]]
        if isinstance(node, Extern):
            result.append(node)
            continue
        needed = frozenset(name for name in group.writes if name in leaving or readers.get(name, set()) - {k})
        result.append(build_kernel(f"{prefix}{k}", group, nodes, buffers, needed))
    return tuple(result)
