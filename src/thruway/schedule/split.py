"""Long reductions of few points as two steps, for a target that wants many programs at once.

A GPU gives one program to each point of a reduction's result, so that a sum over everything would keep one multiprocessor busy and leave the
others idle. Where points are few and rows long, the longest reduced axis is cut into parts: a first step reduces each part into a
temporary, a second one the temporary. Operators that do not depend on the order of their operands are taken, in the same accumulator.
A sum and the squared distances from its mean are cut alike: each part has a mean of its own, so that memory is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import Axis, Buffer, Compute, Condition, Expr, Literal, Load, Node, Op, Program, Reduce, Within
from thruway.schedule.products import is_product
from thruway.schedule.rewrite import is_size, map_expressions, rewrite, strip_reduce, walk, weigh

PROGRAMS = 528                    # about four for each multiprocessor of a large GPU
FEW = 132                         # programs up to which cutting is worth another step
ABREAST = 32                      # points that a program takes side by side where rows stand across memory
LONG, LEAST_PART = 8192, 2048     # elements of a row that is worth cutting, and of a part, along memory
LONG_ACROSS, LEAST_PART_ACROSS = 1024, 128
IDENTITIES: Mapping[str, bool | int | float] = {"sum": 0, "prod": 1, "any": False, "all": True, "xor": 0}
EXTREMES = frozenset({"min", "max"})
SEPARATOR = "_part"
KEPT = 16384                      # elements of a part that one program keeps in registers
KEPT_PRODUCT = 2048               # inner elements of a product, which takes along the rows before it


def split_long_reductions(program: Program) -> Program:
    """`program` with its long reductions cut where their results have few points."""
    buffers = dict(program.buffers)
    nodes: list[Node] = []
    moments = _moments(program.nodes)
    sums = {each.total.out: each for each in moments.values()}
    for node in program.nodes:
        if isinstance(node, Compute) and node.out in sums:
            nodes.extend(_cut_sum(sums[node.out], buffers))
        elif isinstance(node, Compute) and node.out in moments:
            nodes.extend(_cut_squares(node, moments[node.out], buffers))
        elif isinstance(node, Compute) and any(isinstance(x, Reduce) and _is_long(x, node.axes) for x in walk(node.value)):
            nodes.extend(_cut(node, buffers))
        else:
            nodes.append(node)
    return program if len(nodes) == len(program.nodes) else replace(program, buffers=buffers, nodes=tuple(nodes))


@dataclass(frozen=True, slots=True)
class _Moments:
    """A sum, the buffer of its mean, and how both are cut: the axis, the length of a part, and how many there are."""

    total: Compute
    mean: str
    axis: Axis
    length: int
    count: int

    @property
    def part(self) -> str:
        return f"{self.total.out}{SEPARATOR}"

    @property
    def elements(self) -> Literal:
        """How many elements a part has."""
        reduce = strip_reduce(self.total.value)[0]
        return Literal(float(self.length * weigh(sizes.product(a.extent for a in reduce.axes if a is not self.axis))), reduce.dtype)


def _moments(nodes: Sequence[Node]) -> dict[str, _Moments]:
    """By the node that sums squared distances from a mean: what it belongs to, where rows are long, points few and parts equal."""
    computes = {node.out: node for node in nodes if isinstance(node, Compute)}
    found = {}
    for node in computes.values():
        match node.value:
            case Reduce("sum", axes, Op("mul", (Op("sub", (x, Load(mean))) as away, again)), dtype) if away == again and mean in computes:
                total = _summed_by(computes[mean], computes)
                if total is not None and total.value == Reduce("sum", axes, x, dtype) and _is_long(total.value, node.axes):
                    cut = _equal_parts(total.value, node.axes)
                    if cut is not None and dtype.startswith("float"):
                        found[node.out] = _Moments(total, mean, *cut)
            case _:
                pass
    return found


def _summed_by(mean: Compute, computes: Mapping[str, Compute]) -> Compute | None:
    """The sum that `mean` divides."""
    match mean.value:
        case Op("div", (Load(total), Literal())) if total in computes and computes[total].axes == mean.axes:
            return computes[total]
        case _:
            return None


def _equal_parts(x: Reduce, outer: tuple[Axis, ...]) -> tuple[Axis, int, int] | None:
    """Axis, length and number of equal parts that one program keeps in registers."""
    longest, length, _ = _part(x, outer)
    extent = weigh(longest.extent)
    most = KEPT // weigh(sizes.product(a.extent for a in x.axes if a is not longest))
    lengths = [n for n in range(min(length, most), 0, -1) if extent % n == 0][:1]
    if not lengths or 2 * lengths[0] < min(length, most):
        return None
    return longest, lengths[0], extent // lengths[0]


def _cut_sum(moments: _Moments, buffers: dict[str, Buffer]) -> list[Node]:
    """The sums of the parts, and their sum."""
    node, part = moments.total, moments.part
    reduce = strip_reduce(node.value)[0]
    axis = Axis(f"{moments.axis.name}_of_part", moments.count)
    buffers[part] = Buffer(part, reduce.dtype, (moments.count, *(a.extent for a in node.axes)), None, "temp", buffers[node.out].device)
    place = (axis.index, *(a.index for a in node.axes))
    first = Compute(part, (axis, *node.axes), _of_part(reduce, moments, axis, lambda x: x), node.origin)
    return [first, replace(node, value=Reduce("sum", (axis,), Load(part, place, reduce.dtype), reduce.dtype))]


def _cut_squares(node: Compute, moments: _Moments, buffers: dict[str, Buffer]) -> list[Node]:
    """Squared distances from each part's own mean, and their sum with those of the parts' means from the whole's."""
    reduce, part = strip_reduce(node.value)[0], f"{node.out}{SEPARATOR}"
    axis = Axis(f"{moments.axis.name}_of_part", moments.count)
    buffers[part] = Buffer(part, reduce.dtype, (moments.count, *(a.extent for a in node.axes)), None, "temp", buffers[node.out].device)
    place = (axis.index, *(a.index for a in node.axes))
    mean = Op("div", (Load(moments.part, place, reduce.dtype), moments.elements), reduce.dtype)

    def squared(a: Expr, b: Expr) -> Expr:
        away = Op("sub", (a, b), reduce.dtype)
        return Op("mul", (away, away), reduce.dtype)
    x, whole = reduce.x.args[0].args
    summed = Reduce(reduce.op, reduce.axes, x, reduce.dtype)
    first = Compute(part, (axis, *node.axes), _of_part(summed, moments, axis, lambda x: squared(x, mean)), node.origin)
    between = Op("mul", (moments.elements, squared(mean, whole)), reduce.dtype)
    joined = Op("add", (Load(part, place, reduce.dtype), between), reduce.dtype)
    return [first, replace(node, value=Reduce("sum", (axis,), joined, reduce.dtype))]


def _of_part(reduce: Reduce, moments: _Moments, part: Axis, change: Callable[[Expr], Expr]) -> Reduce:
    """The reduction over one part of what `change` makes of each element."""
    place = sizes.add(sizes.mul(part.index, moments.length), moments.axis.index)
    value = change(rewrite(reduce.x, lambda size: _substituted(size, moments.axis, place)))
    short = replace(moments.axis, extent=moments.length)
    return Reduce(reduce.op, tuple(short if a == moments.axis else a for a in reduce.axes), value, reduce.dtype)


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
    if is_product(x) and row <= KEPT_PRODUCT:
        return False
    few, long = (FEW * ABREAST, LONG_ACROSS) if _stands_across(x, outer) else (FEW, LONG)
    return alone and 0 < points <= few and row >= long and (x.op in IDENTITIES or x.op in EXTREMES)


def _stands_across(x: Reduce, outer: tuple[Axis, ...]) -> bool:
    """Whether neighbours in memory belong to neighbouring points, not to one row: the last coordinate of what is read is a point's."""
    found = [part for part in walk(x.x) if isinstance(part, Load) and part.index and is_size(part.index[-1])]
    most = max((len({s for i in part.index if is_size(i) for s in sizes.symbols(i)}) for part in found), default=0)
    lasts = {part.index[-1] for part in found if len({s for i in part.index if is_size(i) for s in sizes.symbols(i)}) == most}
    return bool(outer) and outer[-1].extent != 1 and bool(lasts) and all(last == outer[-1].index for last in lasts)


def _parts(x: Reduce, outer: tuple[Axis, ...]) -> tuple[Callable[[Axis], Reduce], int]:
    """(axis of the parts → the reduction of one part, number of parts)."""
    longest, length, count = _part(x, outer)
    extent = weigh(longest.extent)
    short = replace(longest, extent=length)

    def inner(part: Axis) -> Reduce:
        place = sizes.add(sizes.mul(part.index, length), longest.index)
        value = rewrite(x.x, lambda size: _substituted(size, longest, place))
        if length * count != extent:
            value = Within((Condition(place, extent),), value, Literal(_identity(x), value.dtype), value.dtype)
        return Reduce(x.op, tuple(short if a is longest else a for a in x.axes), value, x.dtype)

    return inner, count


def _part(x: Reduce, outer: tuple[Axis, ...]) -> tuple[Axis, int, int]:
    """The axis to cut, the length of a part, the number of parts."""
    longest = max(x.axes, key=lambda a: weigh(a.extent))
    extent = weigh(longest.extent)
    points, row = (weigh(sizes.product(a.extent for a in axes)) for axes in (outer, x.axes))
    programs, least = (PROGRAMS * ABREAST, LEAST_PART_ACROSS) if _stands_across(x, outer) else (PROGRAMS, LEAST_PART)
    length = -(-extent // max(2, min(extent, programs // points, row // least)))
    return longest, length, -(-extent // length)


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
