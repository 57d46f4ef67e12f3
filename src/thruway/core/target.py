"""The limits of one device and its toolchain, as data, so that no stage asks another what is allowed.

`pipeline` fills a Target per device; schedule and codegen read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from thruway.core.sizes import SizeLike


OWN_VECTOR_BYTES, OWN_SIDE = 64, 32       # fewest columns and inner elements
OWN_ROWS, OWN_WORK = 4, 1 << 18          # rows and multiplications below which a library's product, or a loop, is as fast as the kernel of ours
PAIRED_ROWS, PAIRED_COLUMNS, PAIRED_INNER = range(24, 513), 8, 4096     # in bfloat16: rows for which it is faster, columns of a tile, longest sums
PAIRED_PIXELS = range(24, 1025)         # and pixels of a convolution by windows of one

ATTENTION_WIDTH, ATTENTION_ELEMENTS = 128, 1 << 17      # of a head in bfloat16: its widest rows, the most elements of its values
ATTENTION_QUERIES, ATTENTION_KEYS = 16, 16              # fewer are left to others


@dataclass(frozen=True, slots=True)
class Target:
    """`kind`: "cpu" or "cuda". `vector_bytes`: SIMD width. `caches`: bytes of L1, L2, last level (per core or device).
    `parallel_grain`: elements of cheap work below which a loop stays on one thread. `library_calls`: names of the
    library entry points that exist here ("mkl", "onednn", "onednn_bf16", …), and what decides about them. `kernels`: whether kernels can be compiled."""

    kind: str = "cpu"
    vector_bytes: int = 32
    caches: tuple[int, int, int] = (32 << 10, 1 << 20, 32 << 20)
    parallel_grain: int = 32768
    library_calls: frozenset[str] = frozenset()
    kernels: bool = True

    def has_own_product(self, dtype: str, rows: int, work: int, paired: range = PAIRED_ROWS) -> bool:
        """Whether a product of so many rows and multiplications is a kernel of ours: in float32 where MKL takes its slow path, in bfloat16 where
        pairs are multiplied, but not by matrix tiles."""
        if self.kind != "cpu" or not self.kernels or self.vector_bytes != OWN_VECTOR_BYTES or "mkl_fast" in self.library_calls or work < OWN_WORK:
            return False
        if dtype == "bfloat16":
            return self.multiplies_pairs() and rows in paired
        return dtype == "float32" and rows >= OWN_ROWS

    def multiplies_pairs(self) -> bool:
        """Whether the fastest way to multiply in bfloat16 is by pairs across a vector."""
        return "bf16_pairs" in self.library_calls and "amx" not in self.library_calls

    def has_own_attention(self, dtype: str, queries: SizeLike, keys: SizeLike, width: SizeLike) -> bool:
        """Whether attention of these sizes is a kernel of ours. A number of queries that is not known counts as large."""
        if self.kind != "cpu" or not self.kernels or self.vector_bytes != OWN_VECTOR_BYTES or dtype != "bfloat16" or not self.multiplies_pairs():
            return False
        if type(keys) is not int or type(width) is not int or type(queries) is int and queries < ATTENTION_QUERIES:
            return False
        fits = width % PAIRED_COLUMNS == 0 and 0 < width <= ATTENTION_WIDTH and keys * width <= ATTENTION_ELEMENTS
        return fits and keys >= ATTENTION_KEYS


def fits_pairs(columns: SizeLike, inner: SizeLike) -> bool:
    """Whether the kernel of ours in bfloat16 can take a weight of these sizes."""
    return type(columns) is int and type(inner) is int and columns % PAIRED_COLUMNS == 0 == inner % 2 and inner <= PAIRED_INNER
