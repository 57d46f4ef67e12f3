"""Results whose sizes depend on the elements of a tensor: their metadata with a fresh number for each size that only a run makes known.

One row per operator that torch's own kernel runs. A fresh number is at least 0 and has the upper bound that holds for every input;
nothing else is assumed of it (see `Facts.unbacked`). Strides are those of eager's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._ops import OpOverload

from thruway.core.sizes import SizeLike
from thruway.shapes.infer import apply_rule
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import data_dependent, require
from thruway.shapes.rules.dims import fresh, wrap_dim
from thruway.shapes.rules.strides import broadcast, contiguous_strides, equals, is_free, numel, preserved_strides
from thruway.shapes.symbolic import Facts, SizeNode, bare

MASKS = ("bool", "uint8")
INDEXING = ("aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
_INDEX = torch.ops.aten.index.Tensor
Row = Callable[..., object]


def is_masked(name: str, args: Sequence[object]) -> bool:
    """Whether the operator reads by a mask, or writes more than one value by one: that is `masked_fill` otherwise."""
    if name not in INDEXING or not any(isinstance(one, TensorMeta) and one.dtype in MASKS for one in args[1]):
        return False
    return len(args) < 3 or any(is_free(size) or size != 1 for size in args[2].sizes)


@dataclass(frozen=True, slots=True)
class Reading:
    """One data-dependent call: `operands` are the tensors themselves, `version` says how much was written so far."""

    facts: Facts
    operands: tuple
    version: int

    def fresh(self, high: SizeLike | None, low: int = 0) -> SizeNode:
        return SizeNode(self.facts.fresh(low, None if high is None else bare(high)), self.facts)

    def count(self, tensor: object, high: SizeLike) -> SizeNode:
        """How many elements of the tensor are not 0: one number as long as nothing is written."""
        return SizeNode(self.facts.shared((_Identity(tensor), self.version), bare(high)), self.facts)


class _Identity:
    """A tensor as a key: the object, which it keeps alive."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: object):
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.tensor is other.tensor

    def __hash__(self) -> int:
        return id(self.tensor)


def unbacked_result(op: OpOverload, metas: tuple, named: dict, reading: Reading) -> object:
    """The metadata of what `op` gives for `metas`, which stand for the tensors that it reads."""
    row = ROWS.get(op._name)
    if row is None:
        data_dependent(op._name)
    return row(reading, *metas, **named)


def _nonzero(read: Reading, x: TensorMeta) -> TensorMeta:
    found = read.count(read.operands[0], numel(x.sizes))
    return TensorMeta((found, len(x.sizes)), (1, found), "int64", x.device)


def _masked_select(read: Reading, x: TensorMeta, mask: TensorMeta) -> TensorMeta:
    require(mask.dtype in MASKS, f"masked_select by {mask.dtype}")
    sizes = broadcast([x.sizes, mask.sizes])
    is_whole = len(sizes) == len(mask.sizes) and all(map(equals, sizes, mask.sizes))
    return fresh(x, (read.count(read.operands[1], numel(sizes)) if is_whole else read.fresh(numel(sizes)),))


def _index(read: Reading, x: TensorMeta, indices: Sequence[TensorMeta | None]) -> object:
    """Each mask stands for as many index tensors as it has dimensions."""
    _check_masks(x, indices)
    opened: list[TensorMeta | None] = []
    for one, tensor in zip(indices, read.operands[1]):
        if one is None or one.dtype not in MASKS:
            opened.append(one)
            continue
        if not one.sizes:
            data_dependent("indexing by a 0-dim mask")
        found = read.count(tensor, numel(one.sizes))
        opened += [TensorMeta((found,), (1,), "int64", x.device)] * len(one.sizes)
    return apply_rule(_INDEX, (x, opened), None)


def _index_put(read: Reading, x: TensorMeta, indices: Sequence[TensorMeta | None], values: TensorMeta, accumulate: bool = False) -> TensorMeta:
    """The kernel counts what the masks choose, and whether there are as many values."""
    _check_masks(x, indices)
    require(values.dtype == x.dtype, f"index_put of {values.dtype} into {x.dtype}")
    read.facts.defer()
    return TensorMeta(x.sizes, preserved_strides(x.sizes, x.strides), x.dtype, x.device)


def _index_put_inplace(read: Reading, x: TensorMeta, indices: Sequence[TensorMeta | None], values: TensorMeta, *_: bool, **__: bool) -> TensorMeta:
    _index_put(read, x, indices, values)
    return x


def _check_masks(x: TensorMeta, indices: Sequence[TensorMeta | None]) -> None:
    at = 0
    for one in indices:
        if one is not None and one.dtype in MASKS:
            covered = x.sizes[at:at + len(one.sizes)]
            require(len(covered) == len(one.sizes) and all(map(equals, one.sizes, covered)), f"a mask of sizes {one.sizes} over {covered}")
        at += len(one.sizes) if one is not None and one.dtype in MASKS else 1


def _unique(read: Reading, x: TensorMeta, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> tuple[TensorMeta, ...]:
    return _uniques(read, x, return_inverse, return_counts)


def _uniques(read: Reading, x: TensorMeta, return_inverse: bool, return_counts: bool) -> tuple[TensorMeta, ...]:
    found = read.fresh(numel(x.sizes))
    inverse = fresh(x, x.sizes if return_inverse else (0,), "int64")
    return fresh(x, (found,)), inverse, fresh(x, (found if return_counts else 0,), "int64")


def _unique_dim(
    read: Reading, x: TensorMeta, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
) -> tuple[TensorMeta, ...]:
    dim = wrap_dim(dim, len(x.sizes))
    require(all(type(size) is int and size > 0 for size in x.sizes), "unique along a dimension of sizes that are not known")
    found = read.fresh(x.sizes[dim])
    moved = contiguous_strides((found, *x.sizes[:dim], *x.sizes[dim + 1:]))
    sizes, strides = (*x.sizes[:dim], found, *x.sizes[dim + 1:]), (*moved[1:dim + 1], moved[0], *moved[dim + 1:])
    inverse = fresh(x, (x.sizes[dim],), "int64")
    return TensorMeta(sizes, strides, x.dtype, x.device), inverse, fresh(x, (found if return_counts else 0,), "int64")


def _unique_consecutive(
    read: Reading, x: TensorMeta, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None,
) -> tuple[TensorMeta, ...]:
    if dim is not None:
        return _unique_dim(read, x, dim, True, return_inverse, return_counts)
    return _uniques(read, x, return_inverse, return_counts)


def _bincount(read: Reading, x: TensorMeta, weights: TensorMeta | None = None, minlength: int = 0) -> TensorMeta:
    dtype = "int64" if weights is None else "float32" if weights.dtype == "float32" else "float64"
    return fresh(x, (read.fresh(None, minlength),), dtype)


def _repeat_interleave(read: Reading, repeats: TensorMeta, *, output_size: SizeLike | None = None) -> TensorMeta:
    return fresh(repeats, (read.fresh(None) if output_size is None else output_size,))


ROWS: dict[str, Row] = {
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::index.Tensor": _index,
    "aten::index_put": _index_put,
    "aten::index_put_": _index_put_inplace,
    "aten::_index_put_impl_": _index_put_inplace,
    "aten::_unique2": _unique,
    "aten::unique_dim": _unique_dim,
    "aten::unique_consecutive": _unique_consecutive,
    "aten::bincount": _bincount,
    "aten::repeat_interleave.Tensor": _repeat_interleave,
}
