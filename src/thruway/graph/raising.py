"""Operators that can raise by what their tensors hold: where nobody uses their result they run all the same, since eager raises.

Only on a CPU: on a GPU an operator checks by an assertion that cannot be undone. Kept nodes have `meta["kept"]`; they stay calls of torch's
own operators, and their error gives the call back to the function itself.
"""

from __future__ import annotations

from torch.fx import Node

from thruway.shapes.meta import TensorMeta

INDEXING = frozenset({
    "index", "index_select", "gather", "embedding", "embedding_bag", "take", "take_along_dim", "scatter", "scatter_add", "scatter_reduce", "index_add",
    "index_copy", "index_fill", "index_put", "index_reduce", "one_hot", "nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward",
    "nll_loss2d_forward", "cross_entropy_loss", "_unsafe_index", "bincount", "put",
})
DIVIDING = frozenset({"floor_divide", "remainder", "fmod", "div"})       # integers by 0


def can_raise(node: Node) -> bool:
    """Whether the values, not the shapes, decide about an error of this call."""
    value = node.meta.get("value")
    first = value[0] if isinstance(value, tuple) and value else value
    if node.op != "call_function" or not isinstance(first, TensorMeta) or first.device.partition(":")[0] != "cpu":
        return False
    name = str(node.target).removeprefix("aten.").partition(".")[0]
    return name in INDEXING or (name in DIVIDING and first.dtype.startswith(("int", "uint")))
