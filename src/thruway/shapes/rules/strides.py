"""Strides of results as eager's TensorIterator and its allocation functions choose them; formulas after ATen's TensorIterator.cpp
(`reorder_dimensions`, `fast_set_up`) and MemoryFormat (`is_channels_last_contiguous`).

Sizes and strides may be symbolic wherever they support comparison (see `shapes.symbolic`).
"""

from __future__ import annotations

from collections.abc import Sequence

from thruway.core.sizes import SizeLike
from thruway.shapes.refuse import refuse

Sizes = tuple[SizeLike, ...]
CHANNELS_LAST_ORDER = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


def is_free(size: SizeLike) -> bool:
    """Whether the size depends on the elements of a tensor: comparisons of it that are not certain are then refused."""
    return type(size) is not int and getattr(size, "is_free", False)


def equals(size: SizeLike, other: SizeLike) -> bool:
    """size == other; False where that depends on elements, so that the general road is taken."""
    if type(size) is int and type(other) is int:
        return size == other
    if is_free(size):
        return size.surely("==", other)
    return other.surely("==", size) if is_free(other) else size == other


def smaller(a: SizeLike, b: SizeLike) -> SizeLike:
    return a.smaller(b) if is_free(a) else b.smaller(a) if is_free(b) else a if a <= b else b


def larger(a: SizeLike, b: SizeLike) -> SizeLike:
    return a.larger(b) if is_free(a) else b.larger(a) if is_free(b) else a if a >= b else b


def precedes(a: SizeLike, b: SizeLike) -> bool:
    """Whether stride a < b. Strides that are equal where some size is 1 count as in order: a dimension of size 1 has its place anywhere."""
    if not is_free(a) and not is_free(b):
        return a < b
    if _surely_at_most(b, a):
        return False
    return _surely_at_most(a, b) or a < b


def _surely_at_most(a: SizeLike, b: SizeLike) -> bool:
    """For a tensor that has elements: another one has no use for strides."""
    return a.surely("<=", b, 1) if is_free(a) else b.surely(">=", a, 1)


def numel(sizes: Sequence[SizeLike]) -> SizeLike:
    total: SizeLike = 1
    for size in sizes:
        total = total * size
    return total


def broadcast(shapes: Sequence[Sizes]) -> Sizes:
    """The common shape; refuses where there is none."""
    first = shapes[0]
    if all(len(shape) == len(first) and all(map(equals, shape, first)) for shape in shapes):     # sizes are compared only where ranks agree
        return first
    result: list[SizeLike] = [1] * max(map(len, shapes))
    for shape in shapes:
        for back in range(1, len(shape) + 1):
            size = shape[-back]
            if equals(size, 1) or equals(size, result[-back]):
                continue
            if not equals(result[-back], 1) and (size != 1 and size != result[-back] and result[-back] != 1):
                refuse(f"shapes {', '.join(map(str, shapes))} do not broadcast")
            result[-back] = size
    return tuple(result)


def contiguous_strides(sizes: Sizes) -> Sizes:
    """Row-major strides; a dimension of size 0 counts as 1. Keeps symbolic sizes comparable, unlike `meta.contiguous_strides`.

    A size that depends on elements stands in them as it is: where it is 0, no element is found by them.
    """
    strides: list[SizeLike] = []
    step: SizeLike = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * (1 if equals(size, 0) else size)
    return tuple(reversed(strides))


def is_contiguous(sizes: Sizes, strides: Sizes) -> bool:
    """False where that depends on elements: results then get the strides of the general road, which differ in dimensions of size 1 alone."""
    expected: SizeLike = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if equals(size, 0):
            return True
        if not equals(size, 1):
            if not equals(stride, expected):
                return any(equals(one, 0) for one in sizes)
            expected = expected * size
    return True


def channels_last_strides(sizes: Sizes) -> Sizes:
    """Strides of a 4- or 5-dimensional channels_last tensor; a dimension of size 0 counts as 1 below the outermost."""
    strides: list[SizeLike] = [0] * len(sizes)
    step: SizeLike = 1
    for dim in CHANNELS_LAST_ORDER[len(sizes)]:
        strides[dim] = step
        step = step * (1 if equals(sizes[dim], 0) else sizes[dim])
    return tuple(strides)


def is_channels_last(sizes: Sizes, strides: Sizes) -> bool:
    """Whether memory is exactly channels_last (sizes of 1 impose nothing)."""
    if len(sizes) not in CHANNELS_LAST_ORDER:
        return False
    expected: SizeLike = 1
    for dim in CHANNELS_LAST_ORDER[len(sizes)]:
        if not equals(sizes[dim], 1):
            if not equals(strides[dim], expected):
                return False
            expected = expected * sizes[dim]
    return True


def suggests_channels_last(sizes: Sizes, strides: Sizes) -> bool:
    """Whether strides are ordered as channels_last: what `suggest_memory_format` answers."""
    if len(sizes) not in CHANNELS_LAST_ORDER or strides[1] == 0:
        return False
    least: SizeLike = 0
    for dim in CHANNELS_LAST_ORDER[len(sizes)]:
        if equals(sizes[dim], 0) or precedes(strides[dim], least):
            return False
        if dim == 0 and least == strides[1]:      # an N111 tensor, or NC11 with ambiguous strides, counts as contiguous
            return False
        least = strides[dim]
        if dim and sizes[dim] > 1:
            least = least * sizes[dim]
    return True


def is_dense(sizes: Sizes, strides: Sizes) -> bool:
    """Non-overlapping and dense: some order of the dimensions is contiguous."""
    if is_contiguous(sizes, strides):
        return True
    expected: SizeLike = 1
    dims = [(stride, size) for size, stride in zip(sizes, strides) if not equals(size, 1)]
    for stride, size in _by_stride(dims):
        if not equals(stride, expected):
            return False
        expected = expected * size
    return True


def _by_stride(dims: list[tuple[SizeLike, SizeLike]]) -> list[tuple[SizeLike, SizeLike]]:
    """Insertion sort by stride: symbolic strides compare but have no total order for `sorted`'s tuples."""
    done: list[tuple[SizeLike, SizeLike]] = []
    for dim in dims:
        place = len(done)
        while place and precedes(dim[0], done[place - 1][0]):
            place -= 1
        done.insert(place, dim)
    return done


def preserved_strides(sizes: Sizes, strides: Sizes) -> Sizes:
    """What empty_like gives under preserve_format."""
    if is_dense(sizes, strides):
        return strides
    return iterator_strides(sizes, [(sizes, strides)], like=True)


def iterator_strides(shape: Sizes, operands: Sequence[tuple[Sizes, Sizes]], like: bool = False) -> Sizes:
    """Strides of a fresh output of TensorIterator over `operands` (sizes, strides) broadcast to `shape`."""
    if not like and all(len(sizes) == len(shape) and all(map(equals, sizes, shape)) for sizes, _ in operands):
        fast = _fast_strides(shape, operands)
        if fast is not None:
            return fast
    aligned = [_broadcast_strides(sizes, strides, shape) for sizes, strides in operands]
    order = iteration_order(shape, aligned)
    if order == list(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    result: list[SizeLike] = [0] * len(shape)
    step: SizeLike = 1
    for dim in order:
        result[dim] = step
        step = step * (1 if like and equals(shape[dim], 0) else shape[dim])
    return tuple(result)


def _fast_strides(shape: Sizes, operands: Sequence[tuple[Sizes, Sizes]]) -> Sizes | None:
    if all(is_contiguous(*one) for one in operands):
        return contiguous_strides(shape)
    if all(is_channels_last(*one) for one in operands):
        return channels_last_strides(shape)
    first = operands[0][1]
    if all(all(map(equals, strides, first)) for _, strides in operands) and all(is_dense(*one) for one in operands):
        return first
    return None


def _broadcast_strides(sizes: Sizes, strides: Sizes, shape: Sizes) -> Sizes:
    lead = len(shape) - len(sizes)
    return (0,) * lead + tuple(0 if equals(size, 1) and not equals(shape[lead + i], 1) else stride for i, (size, stride) in enumerate(zip(sizes, strides)))


def iteration_order(shape: Sizes, operands: list[Sizes]) -> list[int]:
    """Dimensions from the fastest outward, as the operands' strides sort them."""
    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        here = i
        for there in range(i - 1, -1, -1):
            verdict = _compare(order[there], order[here], shape, operands)
            if verdict > 0:
                order[there], order[here] = order[here], order[there]
                here = there
            elif verdict < 0:
                break
    return order


def _compare(a: int, b: int, shape: Sizes, operands: list[Sizes]) -> int:
    for strides in operands:
        x, y = strides[a], strides[b]
        if equals(x, 0) or equals(y, 0):
            continue
        if precedes(x, y):
            return -1
        if precedes(y, x):
            return 1
        if shape[a] > shape[b]:
            return 1
    return 0
