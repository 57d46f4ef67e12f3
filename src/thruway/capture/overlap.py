"""Writes whose outcome hangs on the order in which elements are written: into a tensor that shows an element twice, or beside another view of it.

Graphs have no such order. A graph with one of these is run by torch's operators, one after the other, which do, or refuse, what eager does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from thruway.core import sizes as core
from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import Facts, bare
from thruway.shapes.trace_tensor import TraceTensor

Layout = tuple[list[int], list[int], int]       # sizes, strides, offset
Reach = tuple[int, int, int]                    # a stride, and how far it may be taken down and up
MOST = 64                                       # places that are tried along one stride


def hangs_on_order(written: TraceTensor, others: Iterable[object], facts: Facts) -> bool:
    """Whether `written`, which an operator writes, overlaps itself or one of the `others` in another way than being the same view."""
    views = [one for one in others if isinstance(one, TraceTensor) and one is not written and one.root is written.root]
    for hints in _trials(facts):
        layout = _layout(written._meta, hints)
        if layout is not None and (_repeats(layout) or any(_overlap(layout, _layout(one._meta, hints)) for one in views)):
            return True
    return False


def _trials(facts: Facts) -> Iterator[dict[str, int]]:
    """Values for symbolic sizes: those of this call, and others."""
    yield facts.hints
    if facts.hints:
        yield {name: 2 * value + 1 for name, value in facts.hints.items()}


def _layout(meta: TensorMeta, hints: dict[str, int]) -> Layout | None:
    """None where there are no elements, or only a run says how many."""
    every: list[SizeLike] = [bare(one) for one in (*meta.sizes, *meta.strides, meta.offset)]
    if any(one.name not in hints for size in every for one in core.symbols(size)):
        return None
    numbers = [core.evaluate(size, hints) for size in every]
    rank = len(meta.sizes)
    return None if 0 in numbers[:rank] else (numbers[:rank], numbers[rank:-1], numbers[-1])


def _repeats(layout: Layout) -> bool:
    """Whether two indices may show one element."""
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(*layout[:2]) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _overlap(one: Layout, other: Layout | None) -> bool:
    if other is None or other == one:
        return False
    reaches: dict[int, tuple[int, int]] = {}
    for sign, (sizes, strides, _) in ((1, one), (-1, other)):
        for size, stride in zip(sizes, strides):
            low, high = reaches.get(stride, (0, 0))
            reaches[stride] = (low, high + size - 1) if sign > 0 else (low - size + 1, high)
    return _meets(other[2] - one[2], [(stride, *reaches[stride]) for stride in sorted(reaches, reverse=True) if stride])


def _meets(distance: int, reaches: Sequence[Reach]) -> bool:
    """Whether steps along the strides bridge the distance. Where there are many ways to try it is taken to be so."""
    if not reaches:
        return distance == 0
    (stride, low, high), *rest = reaches
    down, up = sum(s * least for s, least, _ in rest), sum(s * most for s, _, most in rest)
    first, last = max(low, -((up - distance) // stride)), min(high, (distance - down) // stride)
    return last - first > MOST or any(_meets(distance - step * stride, rest) for step in range(first, last + 1))
