"""Attention and torch's fused encoder layer. Which kernel eager takes decides the layout of the result."""

from __future__ import annotations

from collections.abc import Callable

import torch

from thruway.core.dtypes import FLOATS, LOW_FLOATS
from thruway.core.sizes import mul
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import require
from thruway.shapes.rules.dims import fresh
from thruway.shapes.rules.strides import Sizes, broadcast, preserved_strides

Rule = Callable[..., object]
MATH, FLASH = 0, 1
_KEYS = torch.empty(1, 1, 2, 8, device="cpu")
SHARES_ONE_HEAD = torch._fused_sdp_choice(torch.empty(1, 2, 2, 8, device="cpu"), _KEYS, _KEYS) == FLASH       # not in all versions


def _check(q: TensorMeta, k: TensorMeta, v: TensorMeta, mask: TensorMeta | None, dropout: float, causal: bool, gqa: bool) -> Sizes:
    """The batch sizes of the result."""
    require(q.dtype == k.dtype == v.dtype and q.device == k.device == v.device and q.dtype in FLOATS, "attention of different dtypes or devices")
    require(len(q.sizes) >= 2 and len(k.sizes) >= 2 and len(v.sizes) >= 2, "attention of fewer than two dimensions")
    require(q.sizes[-1] == k.sizes[-1] and k.sizes[-2] == v.sizes[-2], f"attention of {q.sizes}, {k.sizes}, {v.sizes}")
    require(mask is None or not causal, "a mask beside is_causal")
    require(0 <= dropout <= 1, "attention's dropout")
    batch = _grouped(q, k, v) if gqa else broadcast([q.sizes[:-2], k.sizes[:-2], v.sizes[:-2]])
    if mask is not None:
        require(mask.dtype in ("bool", q.dtype) or (mask.dtype == "float32" and q.dtype in FLOATS), f"an attention mask of {mask.dtype}")
        scores = (*batch, q.sizes[-2], k.sizes[-2])
        require(2 <= len(mask.sizes) <= max(len(scores), 2) and broadcast([mask.sizes, scores]) == scores, f"a mask of {mask.sizes} for {scores}")
    return batch


def _grouped(q: TensorMeta, k: TensorMeta, v: TensorMeta) -> Sizes:
    """Query heads share key and value heads."""
    require(len(q.sizes) == len(k.sizes) == len(v.sizes) and len(q.sizes) >= 3, "grouped attention's ranks")
    require(q.sizes[-3] % k.sizes[-3] == 0 and q.sizes[-3] % v.sizes[-3] == 0, "grouped attention's heads")
    lead = broadcast([q.sizes[:-3], k.sizes[:-3], v.sizes[:-3]])
    return (*lead, q.sizes[-3])


def attention_choice(q: TensorMeta, k: TensorMeta, v: TensorMeta, mask: TensorMeta | None = None, dropout: float = 0.0,
                     is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False) -> int:
    """The kernel that eager takes on the CPU: flash where shapes are plain, else written out."""
    if q.device != "cpu" or dropout != 0.0 or q.dtype not in FLOATS or not len(q.sizes) == len(k.sizes) == len(v.sizes) == 4:
        return MATH
    if not (q.sizes[0] == k.sizes[0] == v.sizes[0]) or not (q.sizes[3] == k.sizes[3] == v.sizes[3]):
        return MATH
    if k.sizes[1] != v.sizes[1] or not (q.sizes[1] == k.sizes[1] or enable_gqa or SHARES_ONE_HEAD and k.sizes[1] == 1):
        return MATH
    if any(t.strides[-1] != 1 for t in (q, k, v)) or q.sizes[2] == 0 or k.sizes[2] == 0 or q.sizes[3] == 0:
        return MATH
    if mask is not None and not _flash_takes(mask, q, k):
        return MATH
    return FLASH


def _flash_takes(mask: TensorMeta, q: TensorMeta, k: TensorMeta) -> bool:
    b, h, rows, _ = q.sizes
    columns = k.sizes[2]
    if len(mask.sizes) not in (2, 4) or mask.sizes[-2] not in (rows, 1) or mask.sizes[-1] not in (columns, 1):
        return False
    return len(mask.sizes) == 2 or (mask.sizes[0] in (b, 1) and mask.sizes[1] in (h, 1))


def _attention(q: TensorMeta, k: TensorMeta, v: TensorMeta, mask: TensorMeta | None = None, dropout: float = 0.0, is_causal: bool = False,
               *, scale: float | None = None, enable_gqa: bool = False) -> TensorMeta:
    batch = _check(q, k, v, mask, dropout, is_causal, enable_gqa)
    require(q.sizes[-2] != 0 or tuple(batch) == q.sizes[:-2], "attention of no query over the batches of keys alone")
    sizes = (*batch, q.sizes[-2], v.sizes[-1])
    if attention_choice(q, k, v, mask, dropout, is_causal, enable_gqa=enable_gqa) == FLASH:
        return _flash_result(q)
    if q.device.startswith("cuda") and len(sizes) == 4 and q.dtype in LOW_FLOATS:
        return _fused_on_gpu(q, sizes, mask)
    require(q.dtype not in LOW_FLOATS or len(sizes) == 4 or any(s != 1 for s in sizes[:-1]), "attention of one query, whose layout varies")
    return fresh(q, sizes)


def _fused_on_gpu(q: TensorMeta, sizes: Sizes, mask: TensorMeta | None) -> TensorMeta:
    """Flash attention keeps the query's layout; the memory-efficient kernel, which masks go to, gives [batch, tokens, heads, width]."""
    if mask is None:
        return TensorMeta(sizes, preserved_strides(q.sizes, q.strides), q.dtype, q.device) if q.sizes == sizes else fresh(q, sizes)
    b, h, t, d = sizes
    return TensorMeta(sizes, (mul(mul(t, h), d), d, mul(h, d), 1), q.dtype, q.device)


def _flash_result(q: TensorMeta) -> TensorMeta:
    """The query's layout without gaps."""
    return TensorMeta(q.sizes, preserved_strides(q.sizes, q.strides), q.dtype, q.device)


def _flash_for_cpu(q: TensorMeta, k: TensorMeta, v: TensorMeta, dropout: float = 0.0, is_causal: bool = False, *,
                   attn_mask: TensorMeta | None = None, scale: float | None = None) -> tuple[TensorMeta, TensorMeta]:
    _check(q, k, v, attn_mask, dropout, is_causal, q.sizes[1] != k.sizes[1])
    b, h, t, _ = q.sizes
    statistics = "float64" if q.dtype == "float64" else "float32"
    return _flash_result(q), TensorMeta((b, h, t), (t * h, 1, h), statistics, q.device)


def _encoder_layer(x: TensorMeta, embed_dim: int, num_heads: int, qkv_weight: TensorMeta, *rest: object) -> TensorMeta:
    require(len(x.sizes) == 3 and x.sizes[-1] == embed_dim and embed_dim % num_heads == 0, f"encoder layer of {x.sizes}")
    require(qkv_weight.sizes == (3 * embed_dim, embed_dim) and qkv_weight.dtype == x.dtype, "encoder layer's weights")
    return fresh(x, x.sizes)


def _multi_head(query: TensorMeta, key: TensorMeta, value: TensorMeta, embed_dim: int, num_head: int, qkv_weight: TensorMeta, qkv_bias: TensorMeta,
                proj_weight: TensorMeta, proj_bias: TensorMeta, mask: TensorMeta | None = None, need_weights: bool = True,
                average_attn_weights: bool = True, mask_type: int | None = None) -> tuple[TensorMeta, TensorMeta | None]:
    """The result and the weights, which are None where nobody needs them."""
    require(len(query.sizes) == 3 and query.sizes[-1] == embed_dim and embed_dim % num_head == 0, f"multi-head attention of {query.sizes}")
    require(query.sizes[0] == key.sizes[0] and key.sizes == value.sizes and key.sizes[-1] == embed_dim, f"multi-head attention over {key.sizes}")
    require(qkv_weight.sizes == (3 * embed_dim, embed_dim) and qkv_weight.dtype == query.dtype, "multi-head attention's weights")
    batch, tokens, _ = query.sizes
    weights = (batch, tokens, key.sizes[1]) if average_attn_weights else (batch, num_head, tokens, key.sizes[1])
    return fresh(query, query.sizes), fresh(query, weights) if need_weights else None


RULES: dict[str, Rule] = {
    "aten::scaled_dot_product_attention": _attention,
    "aten::_fused_sdp_choice": attention_choice,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _flash_for_cpu,
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
    "aten::_native_multi_head_attention": _multi_head,
}
