"""Long reductions of few points as two steps, for a target that wants many programs at once.

A GPU gives one program to each point of a reduction's result, so that a sum over everything would keep one multiprocessor busy and leave the
others idle. Where points are few and rows long, the longest reduced axis is cut into parts: a first step reduces each part into a
temporary, a second one the temporary. Operators that do not depend on the order of their operands are taken, in the same accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import Axis, Buffer, Compute, Condition, Expr, Literal, Load, Node, Program, Reduce, Within
from thruway.schedule.rewrite import is_size, map_expressions, rewrite, walk, weigh

PROGRAMS = 528                    # about four for each multiprocessor of a large GPU
FEW = 132                         # programs up to which cutting is worth another step
ABREAST = 32                      # points that a program takes side by side where rows stand across memory
LONG, LEAST_PART = 8192, 2048     # elements of a row that is worth cutting, and of a part, along memory
LONG_ACROSS, LEAST_PART_ACROSS = 1024, 128
IDENTITIES: Mapping[str, bool | int | float] = {"sum": 0, "prod": 1, "any": False, "all": True, "xor": 0}
EXTREMES = frozenset({"min", "max"})
SEPARATOR = "_part"


def split_long_reductions(program: Program) -> Program:
    """`program` with its long reductions cut where their results have few points."""
    buffers = dict(program.buffers)
    nodes: list[Node] = []
    for node in program.nodes:
        if isinstance(node, Compute) and any(isinstance(x, Reduce) and _is_long(x, node.axes) for x in walk(node.value)):
            nodes.extend(_cut(node, buffers))
        else:
            nodes.append(node)
    return program if len(nodes) == len(program.nodes) else replace(program, buffers=buffers, nodes=tuple(nodes))


def _cut(node: Compute, buffers: dict[str, Buffer]) -> list[Node]:
    """The parts of the node's long reductions, and what joins them."""
    first: list[Node] = []

    def joined(x: Expr) -> Expr:
        if not isinstance(x, Reduce) or not _is_long(x, node.axes):
            return x
        part = f"{node.out}{SEPARATOR}{len(first)}"
        inner, count = _parts(x, node.axes)
        axis = Axis(f"{x.axes[0].name}_of_part", count)
        rest = tuple(a.extent for a in node.axes)
        buffers[part] = Buffer(part, x.dtype, (count, *rest), None, "temp", buffers[node.out].device)
        first.append(Compute(part, (axis, *node.axes), inner(axis), node.origin))
        return Reduce(x.op, (axis,), Load(part, (axis.index, *(a.index for a in node.axes)), x.dtype), x.dtype)

    value = map_expressions(node.value, joined)
    return [*first, replace(node, value=value)]


def _is_long(x: Reduce, outer: tuple[Axis, ...]) -> bool:
    points, row = (sizes.product(a.extent for a in axes) for axes in (outer, x.axes))
    if type(points) is not int or type(row) is not int:
        return False
    alone = not any(isinstance(part, Reduce) for part in walk(x.x))
    few, long = (FEW * ABREAST, LONG_ACROSS) if _stands_across(x, outer) else (FEW, LONG)
    return alone and 0 < points <= few and row >= long and (x.op in IDENTITIES or x.op in EXTREMES)


def _stands_across(x: Reduce, outer: tuple[Axis, ...]) -> bool:
    """Whether neighbours in memory belong to neighbouring points, not to one row: the last coordinate of what is read is a point's."""
    lasts = {part.index[-1] for part in walk(x.x) if isinstance(part, Load) and part.index and is_size(part.index[-1])}
    return bool(outer) and outer[-1].extent != 1 and bool(lasts) and all(last == outer[-1].index for last in lasts)


def _parts(x: Reduce, outer: tuple[Axis, ...]) -> tuple[Callable[[Axis], Reduce], int]:
    """(axis of the parts → the reduction of one part, number of parts)."""
    longest = max(x.axes, key=lambda a: weigh(a.extent))
    extent = weigh(longest.extent)
    points, row = (weigh(sizes.product(a.extent for a in axes)) for axes in (outer, x.axes))
    across = _stands_across(x, outer)
    programs, least = (PROGRAMS * ABREAST, LEAST_PART_ACROSS) if across else (PROGRAMS, LEAST_PART)
    wanted = max(2, min(extent, programs // points, row // least))
    length = -(-extent // wanted)
    count = -(-extent // length)
    short = replace(longest, extent=length)

    def inner(part: Axis) -> Reduce:
        place = sizes.add(sizes.mul(part.index, length), longest.index)
        value = rewrite(x.x, lambda size: _substituted(size, longest, place))
        if length * count != extent:
            value = Within((Condition(place, extent),), value, Literal(_identity(x), value.dtype), value.dtype)
        return Reduce(x.op, tuple(short if a is longest else a for a in x.axes), value, x.dtype)

    return inner, count


def _substituted(size: SizeLike, axis: Axis, place: SizeLike) -> SizeLike:
    return size if type(size) is int else sizes.substitute(size, {Symbol(axis.name): place})


def _identity(x: Reduce) -> bool | int | float:
    """What changes nothing under the operator, in the dtype of the values."""
    if x.op in IDENTITIES:
        return IDENTITIES[x.op]
    dtype = x.x.dtype
    if dtype.startswith(("float", "bfloat")):
        return float("-inf") if x.op == "max" else float("inf")
    if dtype == "bool":
        return x.op == "min"
    unsigned, bits = dtype.startswith("uint"), int(dtype.lstrip("uint"))
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if x.op == "max" else high
