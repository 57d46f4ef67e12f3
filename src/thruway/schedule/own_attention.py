"""Attention that a CPU runs by a kernel of ours (`codegen/attention_bf16_c.py`) instead of torch's.

Torch's flash kernel multiplies bfloat16 at a fifth of the processor's rate where that has pairs but no matrix tiles. Ours takes the four tensors
as they lie, without a mask or with a causal one (docs/decisions, products of ours on CPUs).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from thruway.core.sizes import SizeLike
from thruway.core.target import Target
from thruway.loops.ir import Buffer, BufferRef, Extern
from thruway.schedule.own_products import OwnProduct, is_even, is_plain, own_product, place

NAME = "aten::scaled_dot_product_attention"
LARGEST_SCALE = 1e38
PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


@dataclass(frozen=True, slots=True)
class OwnAttention:
    """out = softmax(query @ key' * scale) @ value over [batch, heads, rows, width]; `sharing` heads of the query have one of the key and the value.
    `places`: for each of the four where its storage starts, and the distances of its batches, heads and rows."""

    pointers: tuple[str, ...]
    sizes: tuple[SizeLike, SizeLike, int, SizeLike, int, int]
    causal: bool
    scale: float
    places: tuple[tuple[SizeLike, ...], ...]
    dtype: str = "bfloat16"

    @property
    def out(self) -> str:
        return self.pointers[-1]

    @property
    def scalars(self) -> tuple[SizeLike, ...]:
        """As the kernel takes them; the scale by its bits."""
        bits = struct.unpack("I", struct.pack("f", self.scale))[0]
        return (*self.sizes, int(self.causal), bits, *(number for where in self.places for number in where))


def own_kernel(step: object, buffers: Mapping[str, Buffer], target: Target) -> OwnProduct | OwnAttention | None:
    """The kernel of ours that runs a library call's step, where there is one."""
    return own_product(step, buffers, target) or own_attention(step, buffers, target)


def own_attention(step: object, buffers: Mapping[str, Buffer], target: Target) -> OwnAttention | None:
    if not isinstance(step, Extern) or step.op != NAME or target.kind != "cpu":
        return None
    given = dict(zip(PARAMETERS, step.args)) | dict(step.kwargs)
    operands = tuple(x.name for name in PARAMETERS[:3] if isinstance(x := given[name], BufferRef))
    if len(operands) < 3 or given.get("attn_mask") is not None or given.get("dropout_p", 0.0) != 0.0:
        return None
    scale, causal = given.get("scale"), given.get("is_causal", False)
    if type(causal) is not bool or not (scale is None or isinstance(scale, (int, float)) and abs(scale) <= LARGEST_SCALE):
        return None
    names = (*operands, step.outs[0])
    if not _fits(names, bool(given.get("enable_gqa", False)), buffers, target):
        return None
    q, k = buffers[names[0]], buffers[names[1]]
    batch, heads, queries, width = q.sizes
    roots, starts = zip(*(place(name, buffers) for name in names))
    return OwnAttention(roots, (batch, heads, heads // k.sizes[1], queries, k.sizes[2], width), causal, width ** -0.5 if scale is None else float(scale),
                        tuple((start, *buffers[n].strides[:3]) for start, n in zip(starts, names)))


def _fits(names: tuple[str, ...], grouped: bool, buffers: Mapping[str, Buffer], target: Target) -> bool:
    """Four tensors of rank four that agree, rows without gaps, pairs of q and k that lie at even places."""
    q, k, v, out = (buffers[name] for name in names)
    if any(len(x.sizes) != 4 for x in (q, k, v, out)) or not all(is_plain(name, q.dtype, buffers) and buffers[name].strides[3] == 1 for name in names):
        return False
    agree = q.sizes[0] == k.sizes[0] and k.sizes == v.sizes and k.sizes[3] == q.sizes[3] and out.sizes == q.sizes and out.alias is None
    heads, shared = q.sizes[1], k.sizes[1]
    shares = type(heads) is int and type(shared) is int and shared > 0 and (heads == shared or (grouped and heads % shared == 0))
    return agree and shares and is_even(q.strides[2]) and is_even(k.strides[2]) and target.has_own_attention(q.dtype, q.sizes[2], k.sizes[2], q.sizes[3])
