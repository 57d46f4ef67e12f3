"""What a tensor held and was before a graph wrote it, to be put back where the graph fails.

That is its elements (norms write their statistics without a word to the version), its version and, where the write made it part of
autograd's graph, that it was not.
"""

from __future__ import annotations

from typing import Any

import torch


class Before:
    """`tensor` as it is at the start of a call."""

    __slots__ = ("tensor", "elements", "version", "form", "grad_fn")

    def __init__(self, tensor: torch.Tensor):
        self.tensor, self.elements = tensor, None
        if tensor.layout is torch.strided and not tensor.is_inference():
            self.version, self.form, self.grad_fn = tensor._version, _form(tensor), tensor.grad_fn
            with torch._C.DisableTorchFunctionSubclass():
                self.elements = tensor.detach().clone()

    def is_known(self) -> bool:
        """Whether all that was changed can be put back. A view of another tensor cannot be taken out of autograd's graph."""
        tensor = self.tensor
        return self.elements is not None and _form(tensor) == self.form and (
            tensor.grad_fn is self.grad_fn or self.grad_fn is None and not tensor._is_view())

    def put_back(self) -> None:
        tensor = self.tensor
        if tensor.grad_fn is not self.grad_fn:
            tensor.detach_()
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            tensor.detach().copy_(self.elements)
        torch._C._autograd._unsafe_set_version_counter((tensor,), (self.version,))


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.storage_offset()
