"""Whether eager has a kernel for an operator on uint16, uint32 or uint64, and takes an out= of another dtype. It has few, and which ones differs
between torch's versions, so the kernel itself is asked, over tensors of zeros; what it lacks is refused, and eager raises its own error.

Only on a CPU. Which kernels a GPU has nobody could ask without one.
"""

from __future__ import annotations

from functools import partial

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_any, tree_map_only

from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import dtype_name, torch_dtype
from thruway.shapes.refuse import refuse
from thruway.shapes.symbolic import SizeNode
from thruway.shapes.traits import Traits

SPARSE = frozenset({"uint16", "uint32", "uint64"})
MOST, LONGEST = 4096, 8             # elements up to which sizes are taken as they are, and what longer ones are cut to


def require_kernel(op: OpOverload, traits: Traits, args: tuple, kwargs: dict) -> None:
    """Refuses a call that eager has no kernel for; views have none, and random numbers are not drawn to try."""
    if traits.view_of is not None or traits.random:
        return
    if tree_any(_is_sparse, (args, kwargs)):
        _ask(op, args, kwargs, "not implemented for")           # another error is one that zeros make, or that `infer` tells
    elif traits.outs:
        _ask(op, args, kwargs, "type")


def _ask(op: OpOverload, args: tuple, kwargs: dict, words: str) -> None:
    """Refuses a call whose kernel raises an error with `words`."""
    metas: list[TensorMeta] = []
    tree_map_only(TensorMeta, metas.append, (args, kwargs))
    if any(meta.device != "cpu" for meta in metas) or torch.device(kwargs.get("device") or "cpu").type != "cpu":
        return
    stand_in = partial(_stand_in, cut=any(_elements(meta) > MOST for meta in metas))
    zeros, named = tree_map_only((TensorMeta, SizeNode), stand_in, (args, kwargs))
    with torch._C._DisableTorchDispatch():
        try:
            op(*zeros, **named)
        except Exception as error:
            if words in str(error):
                refuse(f"{op}: {str(error).splitlines()[0]}")


def _stand_in(x: TensorMeta | SizeNode, cut: bool) -> torch.Tensor | int:
    if isinstance(x, SizeNode):
        return _size(x, cut)
    return torch.zeros([_size(n, cut) for n in x.sizes], dtype=torch_dtype(x.dtype), device="cpu")


def _is_sparse(x: object) -> bool:
    return isinstance(x, TensorMeta) and x.dtype in SPARSE or isinstance(x, torch.dtype) and dtype_name(x) in SPARSE


def _elements(meta: TensorMeta) -> int:
    total = 1
    for size in meta.sizes:
        total *= _size(size, False)
    return total


def _size(size: SizeLike | SizeNode, cut: bool) -> int:
    known = size if type(size) is int else 2
    return min(known, LONGEST) if cut else known
