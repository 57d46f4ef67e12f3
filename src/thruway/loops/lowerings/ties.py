"""Which elements eager's loops on a CPU take by vectors, and which one by one: of 0 and -0 their maxima return different operands.

The loop runs over dimensions as torch's iterator orders and merges them. Where operands stand side by side along the innermost one (one of
them may stand still), it takes two vectors at a time and the rest one by one; where they do not, everything one by one. Threads are not
looked at: from 32,768 elements several of them cut the range, and each part has a rest of its own unless it is a multiple.
"""

from __future__ import annotations

from collections.abc import Sequence

from thruway.core.sizes import SizeLike, add, floordiv, mul, product
from thruway.loops.builder import Builder, Tensor, axis_index
from thruway.loops.expressions import op
from thruway.loops.ir import Condition, Expr, Within
from thruway.shapes.meta import TensorMeta, contiguous_strides
from thruway.shapes.rules.strides import iteration_order

PAIR = {"float32": 16, "float64": 8, "bfloat16": 32, "float16": 32}     # elements of two vectors; torch registers these kernels for AVX2


def by_vectors(b: Builder, operands: Sequence[object], dtype: str) -> bool | Condition:
    """Whether the element of the node's result is taken by vectors, or the condition under which it is."""
    if b.device != "cpu" or dtype not in PAIR:
        return True
    metas = [b.out, *(x.meta for x in operands if isinstance(x, Tensor))]
    inner = _innermost(b.out.sizes, [_broadcast(meta, len(b.out.sizes)) for meta in metas])
    if inner is None:
        return True
    dims, side_by_side = inner
    extent: SizeLike = product([b.out.sizes[d] for d in dims])
    if not side_by_side:
        return False
    whole = mul(floordiv(extent, PAIR[dtype]), PAIR[dtype])
    if whole == extent:
        return True
    place: SizeLike = 0
    for d in reversed(dims):
        place = add(mul(place, b.out.sizes[d]), 0 if b.out.sizes[d] == 1 else axis_index(d))
    return False if whole == 0 else Condition(place, whole)


def either(vectors: bool | Condition, paired: Expr, single: Expr) -> Expr:
    """`paired` for elements taken by vectors, `single` for the others."""
    if isinstance(vectors, bool):
        return paired if vectors else single
    return Within((vectors,), paired, single, paired.dtype)


def extreme(name: str, vectors: bool | Condition, x: Expr, y: Expr) -> Expr:
    """max or min: of equal values vectors give the second, single elements the first."""
    return either(vectors, op(name, x, y), op(name, y, x))


def _broadcast(meta: TensorMeta, rank: int) -> tuple[SizeLike, ...]:
    """Strides over the result's dimensions; 0 where the tensor is repeated."""
    own = [0 if size == 1 else stride for size, stride in zip(meta.sizes, meta.strides, strict=True)]
    return (*[0] * (rank - len(own)), *own)


def _innermost(sizes: tuple[SizeLike, ...], strides: list[tuple[SizeLike, ...]]) -> tuple[list[int], bool] | None:
    """The dimensions merged into the innermost one, fastest first, and whether operands stand side by side along it; None where
    sizes that are not known decide."""
    plain = tuple(0 if size == 1 else stride for size, stride in zip(sizes, contiguous_strides(sizes), strict=True))
    if all(one == plain for one in strides):
        return list(reversed(range(len(sizes)))), True
    if any(type(x) is not int for x in (*sizes, *(s for one in strides for s in one))):
        return None
    order = [d for d in iteration_order(sizes, strides[1:]) if sizes[d] != 1]
    if not order:
        return [], True
    inner, steps = order[:1], [one[order[0]] for one in strides]
    extent = sizes[order[0]]
    for d in order[1:]:
        if any(one[d] != extent * step for one, step in zip(strides, steps, strict=True)):
            break
        inner.append(d)
        extent *= sizes[d]
    still = [k for k, step in enumerate(steps) if step == 0]
    return inner, steps[0] == 1 and len(still) <= 1 and all(step in (0, 1) for step in steps)
