"""A tensor without its class, and with one: aliases that torch's functions take as any other tensor, whatever `__torch_function__` says."""

from __future__ import annotations

import torch


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as torch.Tensor: the same memory, and the same for autograd."""
    return with_class(tensor, torch.Tensor)


def with_class(tensor: torch.Tensor, cls: type) -> torch.Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(cls)
