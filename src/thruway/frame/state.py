"""The torch modes that every entry is keyed on, read once per capture; `native` compares its own short form of them at each call."""

from __future__ import annotations

import torch

from thruway import native
from thruway.frame.guard import GlobalState
from thruway.frame.modes import AUTOCAST_DEVICES, has_only_device_mode, present_devices


def read_state() -> GlobalState:
    """The modes of this thread now."""
    return GlobalState(
        grad_enabled=torch.is_grad_enabled(),
        inference=torch.is_inference_mode_enabled(),
        autocast=tuple((d, torch.is_autocast_enabled(d), _name(torch.get_autocast_dtype(d))) for d in AUTOCAST_DEVICES),
        deterministic=(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        default_dtype=_name(torch.get_default_dtype()),
        default_device=str(torch.get_default_device()),
        function_modes=torch._C._len_torch_function_stack(),
        dispatch_modes=torch._C._len_torch_dispatch_stack(),
        devices=present_devices(),
        word=native.core().read_state(),
    )


def is_outside_torch_transforms() -> bool:
    """Whether nothing watches or rewrites torch calls here: no modes but a default device, no functorch level, no tracing,
    no torch.compile."""
    return not (
        not has_only_device_mode() or torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level() is not None
        or torch._C._get_tracing_state() is not None or torch.compiler.is_compiling()
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
