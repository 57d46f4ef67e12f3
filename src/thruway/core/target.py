"""The limits of one device and its toolchain, as data, so that no stage asks another what is allowed.

`pipeline` fills a Target per device; schedule and codegen read it.
"""

from __future__ import annotations

from dataclasses import dataclass


OWN_VECTOR_BYTES = 64
OWN_ROWS, OWN_WORK = 4, 1 << 18          # rows and multiplications below which a library's product, or a loop, is as fast as the kernel of ours


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

    def has_own_product(self, dtype: str, rows: int, work: int) -> bool:
        """Whether a product of so many rows and multiplications is a kernel of ours: in float32 where MKL takes its slow path."""
        able = self.kind == "cpu" and self.kernels and self.vector_bytes == OWN_VECTOR_BYTES and "mkl_fast" not in self.library_calls
        return able and dtype == "float32" and rows >= OWN_ROWS and work >= OWN_WORK
