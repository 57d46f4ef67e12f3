"""Element types by name, so that the compiler's middle needs no torch.

Names are torch's own without the prefix ("float32", "bfloat16", "int64", "bool", …).
"""

ITEMSIZE = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "complex64": 8, "complex128": 16,
}
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
LOW_FLOATS = frozenset({"float16", "bfloat16"})
INTEGERS = frozenset({"uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"})
COMPLEX = frozenset({"complex64", "complex128"})


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def compute_dtype(dtype: str) -> str:
    """The dtype in which eager computes inside one pointwise operator: float32 for bf16 and fp16, else the dtype itself."""
    return "float32" if dtype in LOW_FLOATS else dtype
