"""Result dtypes of pointwise operators: tensors with dimensions win over 0-dim tensors, those over Python numbers, within a category."""

from __future__ import annotations

from thruway.core.dtypes import COMPLEX, FLOATS, LOW_FLOATS
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import default_dtype, promote
from thruway.shapes.refuse import require

_COMPLEX_OF = {"float16": "complex64", "bfloat16": "complex64", "float32": "complex64", "float64": "complex128"}
REAL_OF = {"complex64": "float32", "complex128": "float64"}


def category(dtype: str) -> int:
    """bool < integers < floats < complex."""
    return 0 if dtype == "bool" else 3 if dtype in COMPLEX else 2 if dtype in FLOATS else 1


def number_dtype(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return default_dtype()
    if isinstance(value, complex):
        return _COMPLEX_OF[default_dtype()]
    return "int64"


def result_dtype(operands: list[object]) -> str:
    """The common dtype of `operands`: TensorMeta or Python numbers."""
    levels: list[str | None] = [None, None, None]
    for one in operands:
        if isinstance(one, TensorMeta):
            level, dtype = (0 if one.sizes else 1), one.dtype
        else:
            level, dtype = 2, number_dtype(one)
        levels[level] = dtype if levels[level] is None else promote(levels[level], dtype)
    result: str | None = None
    for dtype in levels:
        if dtype is not None:
            result = dtype if result is None else _join(result, dtype)
    assert result is not None
    return result


def _join(strong: str, weak: str) -> str:
    if category(weak) <= category(strong):
        return strong
    require(category(weak) < 3 or strong not in LOW_FLOATS, f"{strong} with complex numbers")
    return promote(strong, weak)


def as_float(dtype: str) -> str:
    return dtype if category(dtype) >= 2 else default_dtype()
