"""Where a CPU's scaled_dot_product_attention is worth calling for attention that was written out.

Measured (docs/decisions, library calls on CPUs): torch's flash kernel wins in float32 once there are several queries and a
few dozen keys. In bfloat16 its own matrix products are 3 to 5 times slower than bmm where the CPU has no AMX; there a kernel of
ours wins, which takes no mask but a causal one. For one query at a time two bmm around a fused softmax are faster.
"""

from __future__ import annotations

from thruway.core.sizes import SizeLike
from thruway.core.target import Target
from thruway.shapes.meta import TensorMeta

FEW_KEYS = 32


def attention_pays(target: Target, query: TensorMeta, keys: SizeLike, plain: bool) -> bool:
    """Whether to call it; sizes that are not known count as large. `plain`: there is no mask, or it is causal."""
    if target.kind != "cpu":
        return True
    if query.dtype == "bfloat16" and "amx" not in target.library_calls:
        return plain and target.has_own_attention(query.dtype, query.sizes[-2], keys, query.sizes[-1])
    queries = query.sizes[-2]
    return queries != 1 and not (type(keys) is int and keys < FEW_KEYS)
