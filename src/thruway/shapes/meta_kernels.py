"""The slow way: run the operator over torch's meta tensors. Imports of sympy and more happen inside torch at the first such operator."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_map_only

from thruway.core.errors import Unsupported
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import device_name, dtype_name, torch_dtype
from thruway.shapes.refuse import DATA_DEPENDENT, ILL_SHAPED, NO_RULE


def infer_by_meta_kernel(op: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """The result's metadata, or Unsupported where torch has no meta kernel or rejects the call."""
    device: list[str] = []

    def tensor(m: TensorMeta) -> torch.Tensor:
        if not device or device[0] == "cpu":
            device[:] = [m.device]
        sizes, strides = [int(n) for n in m.sizes], [int(n) for n in m.strides]     # a symbolic size becomes a constant here
        return torch.empty_strided(sizes, strides, dtype=torch_dtype(m.dtype), device="meta")

    with torch._C._DisableTorchDispatch():
        meta_args, meta_kwargs = tree_map_only(TensorMeta, tensor, (args, dict(kwargs)))
        if "device" in meta_kwargs:
            device[:] = [device_name(meta_kwargs["device"] or "cpu")]
            meta_kwargs["device"] = "meta"
        try:
            result = op(*meta_args, **meta_kwargs)
        except NotImplementedError:     # in words on torch.compile, which is not what failed
            raise Unsupported(NO_RULE, f"{op} has no meta kernel: torch cannot say what it gives without running it") from None
        except Exception as error:      # whatever torch raises here, eager decides
            code = DATA_DEPENDENT if "data-dependent" in str(error) or "meta tensor" in str(error) else ILL_SHAPED
            raise Unsupported(code, f"{op} rejected the call: {_first_line(error)}") from None
    return tree_map_only(torch.Tensor, lambda t: _meta_of(t, device[0] if device else "cpu"), result)


def _meta_of(t: torch.Tensor, device: str) -> TensorMeta:
    return TensorMeta(tuple(t.shape), t.stride(), dtype_name(t.dtype), device, False, t.storage_offset())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
