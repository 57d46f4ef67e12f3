"""Conversions and copies, and what is a rearranged copy: cat, stack, pad, flip, roll, repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thruway.core.dtypes import COMPLEX
from thruway.core.errors import Unsupported
from thruway.core.sizes import SizeLike, add, floordiv, mod, mul
from thruway.loops.builder import Builder, Tensor, axes_of, axis_indices, load, load_broadcast
from thruway.loops.expressions import cast, literal, within
from thruway.loops.ir import Condition, Expr
from thruway.loops.lowerings.elementwise import Operand, scalar
from thruway.loops.lowerings.views import same_layout, alias, axis_ranges, wrap_dim


def copy(b: Builder, self: Tensor, *more: object, **named: object) -> Tensor:
    """A fresh tensor with the elements of `self`, in the dtype and layout of the node's result."""
    if {self.dtype, b.out.dtype} & COMPLEX and self.dtype != b.out.dtype:
        raise Unsupported("TW505", "arithmetic on complex tensors in a generated kernel")
    if self.meta.device != b.out.device:
        raise Unsupported("TW515", "a copy between devices")
    return b.compute(b.out, load(self, axis_indices(self.rank)))


def convert(b: Builder, self: Tensor, *more: object, **named: object) -> Tensor:
    """`.to(…)`: the tensor itself where dtype and layout stay and no copy was asked for."""
    if self.dtype == b.out.dtype and same_layout(b.out, self.meta.strides) and True not in more and not named.get("copy"):
        return alias(b, self)
    return copy(b, self)


def copy_functional(b: Builder, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return b.compute(b.out, cast(load_broadcast(src, len(b.out.sizes)), self.dtype))


def copy_in_place(b: Builder, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return b.write(self, axis_indices(self.rank), load_broadcast(src, self.rank), axes_of(self.sizes))


def fill_in_place(b: Builder, self: Tensor, value: Operand = 0) -> Tensor:
    return b.write(self, axis_indices(self.rank), scalar(value, self.dtype), axes_of(self.sizes))


# Each element asks where it lies, and each end of a piece splits a loop: from some number on torch's operator, which copies, is made and run sooner.
MOST_PIECES, MOST_SYMBOLIC_PIECES = 64, 8


def cat(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """One `Within` per piece but the last; torch ignores pieces of sizes (0,)."""
    pieces = [x for x in tensors if not (x.rank == 1 and x.sizes[0] == 0 and len(b.out.sizes) > 1)]
    dim = wrap_dim(dim, len(b.out.sizes))
    if not pieces:
        return b.compute(b.out, literal(0, b.out.dtype))
    if len(pieces) > (MOST_PIECES if all(type(x.sizes[dim]) is int for x in pieces) else MOST_SYMBOLIC_PIECES):
        raise Unsupported("TW525", f"a catenation of {len(pieces)} tensors")
    axes = axis_indices(len(b.out.sizes))
    starts: list[SizeLike] = [0]
    for x in pieces:
        starts.append(add(starts[-1], x.sizes[dim]))
    values = [cast(_piece(x, axes, dim, start), b.out.dtype) for x, start in zip(pieces, starts)]
    return b.compute(b.out, chain([(axes[dim], end) for end in starts[1:]], values))


def _piece(x: Tensor, axes: Sequence[SizeLike], dim: int, start: SizeLike) -> Expr:
    return load(x, (*axes[:dim], add(axes[dim], mul(start, -1)), *axes[dim + 1:]))


def chain(ends: Sequence[tuple[SizeLike, SizeLike]], values: Sequence[Expr]) -> Expr:
    """The first of `values` whose `at < end` holds; the last one has no condition. Halved like a search, so that many pieces nest shallowly."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return within((Condition(*ends[half - 1]),), chain(ends[:half], values[:half]), chain(ends[half:], values[half:]))


def stack(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    rank = len(b.out.sizes)
    dim = wrap_dim(dim, rank)
    axes = axis_indices(rank)
    values = [cast(load(x, (*axes[:dim], *axes[dim + 1:])), b.out.dtype) for x in tensors]
    return b.compute(b.out, chain([(axes[dim], k + 1) for k in range(len(tensors))], values))


def constant_pad(b: Builder, self: Tensor, pad: Sequence[SizeLike], value: object = 0) -> Tensor:
    """`pad` holds (before, after) from the last dimension on; negative amounts cut."""
    index, conditions = list(axis_indices(self.rank)), []
    for k in range(len(pad) // 2):
        dim = self.rank - 1 - k
        before, after = pad[2 * k], pad[2 * k + 1]
        index[dim] = add(index[dim], mul(before, -1))
        if before != 0 or after != 0:
            conditions.append(Condition(index[dim], self.sizes[dim]))
    fill = scalar(0 if value is None else value, self.dtype)
    return b.compute(b.out, within(tuple(conditions), load(self, index), fill))


def pad(b: Builder, self: Tensor, pad: Sequence[SizeLike], mode: str = "constant", value: float | None = None) -> Tensor:
    if mode != "constant":
        raise Unsupported("TW512", f"padding by {mode}")
    return constant_pad(b, self, pad, value)


def flip(b: Builder, self: Tensor, dims: Sequence[int]) -> Tensor:
    turned = {wrap_dim(d, self.rank) for d in dims}
    index = [add(size, mul(at, -1)) - 1 if k in turned else at for k, (at, size) in enumerate(zip(axis_indices(self.rank), self.sizes))]
    return b.compute(b.out, load(self, index))


def roll(b: Builder, self: Tensor, shifts: object, dims: object = ()) -> Tensor:
    shifts, dims = _tuple(shifts), _tuple(dims)
    if not dims:
        raise Unsupported("TW513", "roll over the flattened tensor")
    index = list(axis_indices(self.rank))
    for shift, dim in zip(shifts, dims):
        dim = wrap_dim(dim, self.rank)
        if self.sizes[dim] != 0:
            index[dim] = mod(add(index[dim], mul(shift, -1)), self.sizes[dim])
    return b.compute(b.out, load(self, index))


def _tuple(x: object) -> tuple:
    return x if isinstance(x, tuple) else (x,)


def repeat(b: Builder, self: Tensor, repeats: Sequence[SizeLike]) -> Tensor:
    rank = len(b.out.sizes)
    ranges = axis_ranges(b.out.sizes)
    axes = axis_indices(rank)[rank - self.rank:]
    index = [mod(at, size, ranges) if size != 0 else 0 for at, size in zip(axes, self.sizes)]
    return b.compute(b.out, load(self, index))


def repeat_interleave(b: Builder, self: Tensor, repeats: SizeLike, dim: int | None = None, *, output_size: object = None) -> Tensor:
    if isinstance(repeats, Tensor) or dim is None and self.rank != 1 or repeats == 0:
        raise Unsupported("TW514", "repeat_interleave with counts that only the run knows")
    index = list(axis_indices(self.rank))
    at = wrap_dim(dim or 0, self.rank)
    index[at] = floordiv(index[at], repeats)
    return b.compute(b.out, load(self, index))


def pixel_shuffle(b: Builder, self: Tensor, upscale_factor: int) -> Tensor:
    """Channels c*r*r + p*r + q move to rows h*r + p and columns w*r + q."""
    r = upscale_factor
    *lead, c, h, w = axis_indices(self.rank)
    channel = add(mul(c, r * r), add(mul(mod(h, r), r), mod(w, r)))
    return b.compute(b.out, load(self, (*lead, channel, floordiv(h, r), floordiv(w, r))))


ROWS: dict[str, Callable[..., Tensor]] = {
    "aten.clone.default": copy, "aten._to_copy.default": copy, "aten.lift_fresh_copy.default": copy,
    "aten.copy.default": copy_functional, "aten.copy_.default": copy_in_place,
    "aten.fill_.Scalar": fill_in_place, "aten.fill_.Tensor": fill_in_place, "aten.zero_.default": fill_in_place,
    **{f"aten.to.{kind}": convert for kind in ("dtype", "dtype_layout", "device", "other")},
    "aten.type_as.default": convert, "aten.float.default": convert,
    "aten.cat.default": cat, "aten.concat.default": cat, "aten.stack.default": stack,
    "aten.constant_pad_nd.default": constant_pad, "aten.pad.default": pad,
    "aten.flip.default": flip, "aten.roll.default": roll, "aten.repeat.default": repeat, "aten.repeat_interleave.self_int": repeat_interleave,
    "aten.pixel_shuffle.default": pixel_shuffle,
}
