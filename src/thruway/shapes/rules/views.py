"""Views: sizes, strides and offset of another look at the same storage. Stride computation of `view` after ATen's TensorUtils.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from thruway.core.dtypes import ITEMSIZE
from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import dtype_name
from thruway.shapes.refuse import expect, refuse, require
from thruway.shapes.rules.dims import fresh, wrap_dim
from thruway.shapes.rules.promote import REAL_OF
from thruway.shapes.rules.strides import Sizes, contiguous_strides, equals, is_free, larger, numel, smaller

END = 2**63 - 1


def _look(x: TensorMeta, sizes: Sequence[SizeLike], strides: Sequence[SizeLike], offset: SizeLike | None = None) -> TensorMeta:
    return TensorMeta(tuple(sizes), tuple(strides), x.dtype, x.device, False, x.offset if offset is None else offset)


def _same(x: TensorMeta, *_: object) -> TensorMeta:
    return replace(x, requires_grad=False)


def full_shape(total: SizeLike, shape: Sequence[SizeLike]) -> Sizes:
    """`shape` with its -1 filled in; refuses where it does not hold `total` elements."""
    known: SizeLike = 1
    hole = None
    for i, size in enumerate(shape):
        if equals(size, -1):
            require(hole is None, "two unknown sizes in view")
            hole = i
        else:
            expect(size, ">=", 0, "a negative size in view")
            known = known * size
    if hole is None:
        expect(known, "==", total, f"view of {total} elements as {tuple(shape)}")
        return tuple(shape)
    require(known != 0 and total % known == 0, f"view of {total} elements as {tuple(shape)}")
    return (*shape[:hole], total // known, *shape[hole + 1:])


def view_strides(sizes: Sizes, strides: Sizes, shape: Sizes) -> Sizes | None:
    """Strides under which the same memory has `shape`; None where there are none."""
    if not sizes:
        return (1,) * len(shape)
    if equals(numel(sizes), 0):
        return strides if sizes == shape else _empty_view_strides(shape)
    result: list[SizeLike] = [0] * len(shape)
    at = len(shape) - 1
    step, old_count, new_count = strides[-1], 1, 1
    for dim in range(len(sizes) - 1, -1, -1):
        old_count = old_count * sizes[dim]
        if dim and (equals(strides[dim - 1], old_count * step) or sizes[dim - 1] == 1):
            continue
        while at >= 0 and (equals(shape[at], 1) or _is_less(new_count, old_count) or not is_free(shape[at]) and shape[at] == 1):
            result[at] = new_count * step
            new_count = new_count * shape[at]
            at -= 1
        if not _is_count(new_count, old_count):
            return None
        if dim:
            step, old_count, new_count = strides[dim - 1], 1, 1
    return tuple(result) if at == -1 else None


def _is_less(new_count: SizeLike, old_count: SizeLike) -> bool:
    """new_count < old_count, where sizes that depend on elements are at least 2: strides that then say the same memory do so for less, too."""
    if is_free(new_count):
        return new_count.surely("<", old_count, 2) or (not new_count.surely(">=", old_count, 2) and new_count < old_count)
    if is_free(old_count):
        return old_count.surely(">", new_count, 2) or (not old_count.surely("<=", new_count, 2) and new_count < old_count)
    return new_count < old_count


def _is_count(new_count: SizeLike, old_count: SizeLike) -> bool:
    """Whether the counts are equal. Where only elements say so, the operator checks it: no other view of the memory has these sizes."""
    if not is_free(new_count) and not is_free(old_count):
        return new_count == old_count
    one, other = (new_count, old_count) if is_free(new_count) else (old_count, new_count)
    return not one.surely("!=", other, 1) and one.expect("==", other)


def _empty_view_strides(shape: Sizes) -> Sizes:
    return contiguous_strides(tuple(1 if size == 0 else size for size in shape))


def _view(x: TensorMeta, shape: Sequence[SizeLike]) -> TensorMeta:
    sizes = full_shape(numel(x.sizes), shape)
    strides = view_strides(x.sizes, x.strides, sizes)
    if strides is None:
        refuse(f"view of sizes {x.sizes} and strides {x.strides} as {sizes}")
    return _look(x, sizes, strides)


def _reshape_alias(x: TensorMeta, sizes: Sequence[SizeLike], strides: Sequence[SizeLike]) -> TensorMeta:
    return _look(x, sizes, strides)


def _expand(x: TensorMeta, shape: Sequence[SizeLike], *, implicit: bool = False) -> TensorMeta:
    lead = len(shape) - len(x.sizes)
    if not x.sizes:
        require(all(size >= 0 for size in shape), "expand of a new dimension to -1")
        return _look(x, shape, (0,) * len(shape))
    require(lead >= 0, f"expand of {len(x.sizes)} dimensions to {len(shape)}")
    sizes: list[SizeLike] = []
    strides: list[SizeLike] = []
    for i in range(len(shape) - 1, -1, -1):
        size, old, stride = shape[i], (x.sizes[i - lead] if i >= lead else 1), (x.strides[i - lead] if i >= lead else None)
        if stride is None:
            require(size >= 0, "expand of a new dimension to -1")
            stride = strides[-1] * sizes[-1] if strides else 1
        if equals(size, -1):
            size = old
        if not equals(old, size) and not equals(old, 1) and (is_free(old) or is_free(size)):
            stride = (old if is_free(old) else size).fresh(("expanded", old, size, stride))          # 0, or as it is
        elif not equals(old, size) and old != size:
            require(old == 1, f"expand of {x.sizes} to {tuple(shape)}")
            stride = 0
        sizes.append(size)
        strides.append(stride)
    return _look(x, sizes[::-1], strides[::-1])


def _permute(x: TensorMeta, dims: Sequence[int]) -> TensorMeta:
    order = [wrap_dim(d, len(x.sizes)) for d in dims]
    require(len(order) == len(x.sizes) and len(set(order)) == len(order), f"permute of {len(x.sizes)} dimensions by {tuple(dims)}")
    return _look(x, [x.sizes[d] for d in order], [x.strides[d] for d in order])


def _transpose(x: TensorMeta, a: int, b: int) -> TensorMeta:
    a, b = wrap_dim(a, len(x.sizes)), wrap_dim(b, len(x.sizes))
    sizes, strides = list(x.sizes), list(x.strides)
    if sizes:
        sizes[a], sizes[b] = sizes[b], sizes[a]
        strides[a], strides[b] = strides[b], strides[a]
    return _look(x, sizes, strides)


def _t(x: TensorMeta) -> TensorMeta:
    require(len(x.sizes) <= 2, f"t of {len(x.sizes)} dimensions")
    return _look(x, x.sizes[::-1], x.strides[::-1])


def _unsqueeze(x: TensorMeta, dim: int) -> TensorMeta:
    dim = wrap_dim(dim, len(x.sizes) + 1)
    stride = x.sizes[dim] * x.strides[dim] if dim < len(x.sizes) else 1
    return _look(x, (*x.sizes[:dim], 1, *x.sizes[dim:]), (*x.strides[:dim], stride, *x.strides[dim:]))


def _squeeze(x: TensorMeta, dims: int | Sequence[int] | None = None) -> TensorMeta:
    rank = len(x.sizes)
    if dims is None:
        chosen = set(range(rank))
    else:
        chosen = {wrap_dim(d, rank) for d in ([dims] if isinstance(dims, int) else dims)}
        require(isinstance(dims, int) or len(chosen) == len(dims), "a dimension appears twice")
    keep = [d for d in range(rank) if d not in chosen or x.sizes[d] != 1]
    return _look(x, [x.sizes[d] for d in keep], [x.strides[d] for d in keep])


def _select(x: TensorMeta, dim: int, index: SizeLike) -> TensorMeta:
    require(bool(x.sizes), "select of a 0-dim tensor")
    dim = wrap_dim(dim, len(x.sizes))
    expect(-x.sizes[dim], "<=", index, f"index {index} of size {x.sizes[dim]}")
    expect(index, "<", x.sizes[dim], f"index {index} of size {x.sizes[dim]}")
    if _is_unsigned(index):
        return _look(x, x.sizes[:dim] + x.sizes[dim + 1:], x.strides[:dim] + x.strides[dim + 1:], _somewhere(x, index, dim))
    if index < 0:
        index = index + x.sizes[dim]
    offset = x.offset + index * x.strides[dim]
    return _look(x, x.sizes[:dim] + x.sizes[dim + 1:], x.strides[:dim] + x.strides[dim + 1:], offset)


def _slice(x: TensorMeta, dim: int = 0, start: SizeLike | None = None, end: SizeLike | None = None, step: SizeLike = 1) -> TensorMeta:
    require(bool(x.sizes), "slice of a 0-dim tensor")
    require(step > 0, "slice step must be positive")
    dim = wrap_dim(dim, len(x.sizes))
    size = x.sizes[dim]
    if _is_unsigned(start) or _is_unsigned(end):
        return _slice_somewhere(x, dim, start, end, step)
    start = _clamped(0 if start is None else start, 0, size)
    end = size if end is None or (type(end) is int and end >= END) else _clamped(end, start, size)
    length = (end - start + step - 1) // step
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[dim], strides[dim] = length, strides[dim] * step
    return _look(x, sizes, strides, x.offset + start * x.strides[dim])


def _is_unsigned(place: SizeLike | None) -> bool:
    """Whether only elements say if the number counts from the end."""
    return is_free(place) and not place.surely(">=", 0) and not place.surely("<", 0)


def _slice_somewhere(x: TensorMeta, dim: int, start: SizeLike | None, end: SizeLike | None, step: SizeLike) -> TensorMeta:
    """A slice that torch's kernel makes: of some length, from some element on."""
    sizes, strides = list(x.sizes), list(x.strides)
    bound = start if _is_unsigned(start) else end
    sizes[dim], strides[dim] = bound.fresh(("slice", start, end, step, sizes[dim]), sizes[dim]), strides[dim] * step
    return _look(x, sizes, strides, _somewhere(x, bound, dim))


def _somewhere(x: TensorMeta, bound: SizeLike, dim: int) -> SizeLike:
    """The offset of a view that begins at `bound`."""
    return bound.fresh(("offset", x.offset, bound, x.sizes[dim], x.strides[dim]))


def _clamped(place: SizeLike, low: SizeLike, size: SizeLike) -> SizeLike:
    if place < 0:
        place = place + size
    if any(map(is_free, (place, low, size))):
        return smaller(larger(place, low), size)
    if place < low:
        return low
    return size if place > size else place


def _split(x: TensorMeta, size: SizeLike, dim: int = 0) -> list[TensorMeta]:
    require(bool(x.sizes), "split of a 0-dim tensor")
    dim = wrap_dim(dim, len(x.sizes))
    length = x.sizes[dim]
    require(not is_free(size), "a split size that depends on elements")
    require(size >= 0 and (size > 0 or length == 0), f"split size {size}")
    if size == 0:
        return [_slice(x, dim, 0, 0)]
    count = max(int((length + size - 1) // size), 1)
    return [_slice(x, dim, i * size, (i + 1) * size if i < count - 1 else length) for i in range(count)]


def _split_with_sizes(x: TensorMeta, sizes: Sequence[SizeLike], dim: int = 0) -> list[TensorMeta]:
    require(bool(x.sizes), "split of a 0-dim tensor")
    dim = wrap_dim(dim, len(x.sizes))
    parts, start = [], 0
    for size in sizes:
        expect(size, ">=", 0, f"split size {size}")
        part = _slice(x, dim, 0, 0)
        changed = list(x.sizes)
        changed[dim] = size
        parts.append(replace(part, sizes=tuple(changed), offset=x.offset + start * x.strides[dim]))
        start = start + size
    expect(start, "==", x.sizes[dim], f"split sizes {tuple(sizes)} of {x.sizes[dim]}")
    return parts


def _unbind(x: TensorMeta, dim: int = 0) -> list[TensorMeta]:
    require(bool(x.sizes), "unbind of a 0-dim tensor")
    dim = wrap_dim(dim, len(x.sizes))
    return [_select(x, dim, i) for i in range(int(x.sizes[dim]))]


def _diagonal(x: TensorMeta, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorMeta:
    a, b = wrap_dim(dim1, len(x.sizes)), wrap_dim(dim2, len(x.sizes))
    require(a != b, "diagonal of one dimension")
    rows, columns = (x.sizes[a], x.sizes[b] - offset) if offset >= 0 else (x.sizes[a] + offset, x.sizes[b])
    length = min(rows, columns)
    length = length if length > 0 else 0
    start = x.offset
    if length != 0:
        start = start + (offset * x.strides[b] if offset >= 0 else -offset * x.strides[a])
    keep = [d for d in range(len(x.sizes)) if d not in (a, b)]
    return _look(x, [*(x.sizes[d] for d in keep), length], [*(x.strides[d] for d in keep), x.strides[a] + x.strides[b]], start)


def _as_strided(x: TensorMeta, sizes: Sequence[SizeLike], strides: Sequence[SizeLike], offset: SizeLike | None = None) -> TensorMeta:
    require(len(sizes) == len(strides), "as_strided with sizes and strides of different lengths")
    require(all(s >= 0 for s in sizes) and all(s >= 0 for s in strides), "as_strided with a negative size or stride")
    made = _look(x, sizes, strides, offset)
    require(_end(made) <= _end(x), "as_strided past the tensor it looks at: what its storage holds there is not known")
    return made


def _end(x: TensorMeta) -> SizeLike:
    """Behind the last element, counted from the start of the storage."""
    if any(size == 0 for size in x.sizes):
        return 0
    return x.offset + 1 + sum(((size - 1) * stride for size, stride in zip(x.sizes, x.strides)), 0)


def _unfold(x: TensorMeta, dim: int, size: int, step: int) -> TensorMeta:
    dim = wrap_dim(dim, len(x.sizes))
    length, stride = (x.sizes[dim], x.strides[dim]) if x.sizes else (1, 1)
    require(0 <= size and size <= length and step > 0, f"unfold by {size} of {length}")
    sizes, strides = list(x.sizes), list(x.strides)
    if sizes:
        sizes[dim], strides[dim] = (length - size) // step + 1, step * stride
    return _look(x, [*sizes, size], [*strides, stride])


def _view_as_real(x: TensorMeta) -> TensorMeta:
    require(x.dtype in REAL_OF, "view_as_real of a real tensor")
    return TensorMeta((*x.sizes, 2), (*(s * 2 for s in x.strides), 1), REAL_OF[x.dtype], x.device, False, x.offset * 2)


def _view_as_complex(x: TensorMeta) -> TensorMeta:
    wide = {"float32": "complex64", "float64": "complex128"}.get(x.dtype)
    if wide is None or not x.sizes or x.sizes[-1] != 2 or x.strides[-1] != 1 or any(s % 2 != 0 for s in x.strides[:-1]) or x.offset % 2 != 0:
        refuse("view_as_complex needs a last dimension of two adjacent floats")
    return TensorMeta(x.sizes[:-1], tuple(s // 2 for s in x.strides[:-1]), wide, x.device, False, x.offset // 2)


def _view_dtype(x: TensorMeta, dtype: object) -> TensorMeta:
    name = dtype_name(dtype)
    old, new = ITEMSIZE[x.dtype], ITEMSIZE[name]
    if old == new:
        return replace(x, dtype=name, requires_grad=False)
    require(bool(x.sizes) and x.strides[-1] == 1, f"view of {x.dtype} as {name}: elements of another size are no adjacent ones")
    if old > new:
        by = old // new
        return replace(x, sizes=(*x.sizes[:-1], x.sizes[-1] * by), strides=(*(s * by for s in x.strides[:-1]), 1), offset=x.offset * by, dtype=name,
                       requires_grad=False)
    by = new // old
    require(all(n % by == 0 for n in (x.sizes[-1], x.offset, *x.strides[:-1])), f"view of {x.dtype} as {name}: sizes, strides or offset do not fit")
    return replace(x, sizes=(*x.sizes[:-1], x.sizes[-1] // by), strides=(*(s // by for s in x.strides[:-1]), 1), offset=x.offset // by, dtype=name,
                   requires_grad=False)


def _unsafe_view(x: TensorMeta, shape: Sequence[SizeLike]) -> TensorMeta:
    return replace(_view(x, shape), offset=0) if x.offset == 0 else _view(x, shape)


def _repeat(x: TensorMeta, repeats: Sequence[SizeLike]) -> TensorMeta:
    lead = len(repeats) - len(x.sizes)
    require(lead >= 0, f"repeat of {len(x.sizes)} dimensions by {tuple(repeats)}")
    for r in repeats:
        expect(r, ">=", 0, f"repeat of {len(x.sizes)} dimensions by {tuple(repeats)}")
    sizes = (1,) * lead + x.sizes
    return fresh(x, tuple(s * r for s, r in zip(sizes, repeats)))


RULES = {
    "aten::view": _view,
    "aten::view.dtype": _view_dtype,
    "aten::_unsafe_view": _unsafe_view,
    "aten::_reshape_alias": _reshape_alias,
    "aten::expand": _expand,
    "aten::permute": _permute,
    "aten::transpose.int": _transpose,
    "aten::t": _t,
    "aten::unsqueeze": _unsqueeze,
    "aten::squeeze": _squeeze,
    "aten::squeeze.dim": _squeeze,
    "aten::squeeze.dims": _squeeze,
    "aten::select.int": _select,
    "aten::slice.Tensor": _slice,
    "aten::split.Tensor": _split,
    "aten::split_with_sizes": _split_with_sizes,
    "aten::unbind.int": _unbind,
    "aten::diagonal": _diagonal,
    "aten::as_strided": _as_strided,
    "aten::unfold": _unfold,
    "aten::view_as_real": _view_as_real,
    "aten::view_as_complex": _view_as_complex,
    "aten::alias": _same,
    "aten::detach": _same,
    "aten::lift_fresh": _same,
    "aten::repeat": _repeat,
}
