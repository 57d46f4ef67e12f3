"""Operators that can raise by what their tensors hold: where nobody uses their result they run all the same, since eager raises.

Only on a CPU: on a GPU an operator checks by an assertion that cannot be undone. Kept nodes have `meta["kept"]`; they stay calls of torch's
own operators, and their error gives the call back to the function itself.
"""

from __future__ import annotations

from torch.fx import Node

from thruway.shapes.meta import TensorMeta
from thruway.shapes.raising import indexes_or_divides, name_of_operator


def can_raise(node: Node) -> bool:
    """Whether the values, not the shapes, decide about an error of this call."""
    value = node.meta.get("value")
    first = value[0] if isinstance(value, tuple) and value else value
    if node.op != "call_function" or not isinstance(first, TensorMeta) or first.device.partition(":")[0] != "cpu":
        return False
    return indexes_or_divides(name_of_operator(node.target), first.dtype)
