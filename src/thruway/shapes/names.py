"""torch's dtypes, devices and memory formats by name, both ways: the compiler's data carries names, operators carry objects."""

from __future__ import annotations

from functools import cache

import torch

from thruway.core.dtypes import ITEMSIZE
from thruway.core.errors import Unsupported

_NAMES = {getattr(torch, name): name for name in ITEMSIZE}


def dtype_name(dtype: torch.dtype) -> str:
    try:
        return _NAMES[dtype]
    except KeyError:
        raise Unsupported("TW305", f"tensors of {dtype}") from None


@cache
def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


@cache
def device_name(device: torch.device | str) -> str:
    """ "cpu", or type and index; a bare "cuda" means the first device."""
    text = str(device)
    return text if text in ("cpu", "meta") or ":" in text else f"{text}:0"


def default_dtype() -> str:
    return _NAMES[torch.get_default_dtype()]


@cache
def promote(a: str, b: str) -> str:
    """The dtype that holds both, as torch.promote_types gives it."""
    return _NAMES[torch.promote_types(torch_dtype(a), torch_dtype(b))]
