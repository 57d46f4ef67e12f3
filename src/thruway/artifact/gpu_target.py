"""What this machine's GPU offers, as a Target: asked of torch, which must have started CUDA."""

from __future__ import annotations

import torch

from thruway.artifact.gpu_kernels import has_triton
from thruway.core.target import Target


def gpu_target(index: int) -> Target:
    """The Target of GPU `index`; `kernels` says whether Triton is there to make any."""
    properties = torch.cuda.get_device_properties(index)
    libraries = {"cublaslt", f"sm_{capability(index)}"}
    if torch.backends.cudnn.is_available() and torch.backends.cudnn.enabled:
        libraries.add("cudnn")
    cache = getattr(properties, "L2_cache_size", 32 << 20)
    return Target(kind="cuda", vector_bytes=16, caches=(128 << 10, cache, cache), library_calls=frozenset(libraries), kernels=has_triton())


def capability(index: int) -> int:
    """90 for compute capability 9.0."""
    major, minor = torch.cuda.get_device_capability(index)
    return major * 10 + minor
