"""The limits of one device and its toolchain, as data, so that no stage asks another what is allowed.

`pipeline` fills a Target per device; schedule and codegen read it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """`kind`: "cpu" or "cuda". `vector_bytes`: SIMD width. `caches`: bytes of L1, L2, last level (per core or device).
    `parallel_grain`: elements of cheap work below which a loop stays on one thread. `library_calls`: names of the
    library entry points that exist here ("mkl", "onednn", "onednn_bf16", …). `kernels`: whether kernels can be compiled."""

    kind: str = "cpu"
    vector_bytes: int = 32
    caches: tuple[int, int, int] = (32 << 10, 1 << 20, 32 << 20)
    parallel_grain: int = 32768
    library_calls: frozenset[str] = frozenset()
    kernels: bool = True
