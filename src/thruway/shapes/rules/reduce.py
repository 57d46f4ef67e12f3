"""Reductions and scans. Results are contiguous: eager allocates them so whatever the input's layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from thruway.core.dtypes import COMPLEX
from thruway.core.sizes import SizeLike
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import dtype_name
from thruway.shapes.refuse import expect, require
from thruway.shapes.rules.dims import fresh, wrap_dim, wrap_dims
from thruway.shapes.rules.promote import REAL_OF, as_float, category, result_dtype
from thruway.shapes.rules.strides import Sizes, preserved_strides

Rule = Callable[..., object]
Dims = int | Sequence[int] | None


def reduced(sizes: Sizes, dims: tuple[int, ...], keepdim: bool) -> Sizes:
    if keepdim:
        return tuple(1 if d in dims else size for d, size in enumerate(sizes))
    return tuple(size for d, size in enumerate(sizes) if d not in dims)


def _over(x: TensorMeta, dims: Dims, keepdim: bool, dtype: str) -> TensorMeta:
    return fresh(x, reduced(x.sizes, wrap_dims(dims, len(x.sizes)), keepdim), dtype)


def _sum_dtype(x: TensorMeta, dtype: object) -> str:
    return dtype_name(dtype) if dtype is not None else "int64" if category(x.dtype) < 2 else x.dtype


def _sum(x: TensorMeta, *, dtype: object = None) -> TensorMeta:
    return fresh(x, (), _sum_dtype(x, dtype))


def _sum_dims(x: TensorMeta, dims: Dims = None, keepdim: bool = False, *, dtype: object = None) -> TensorMeta:
    return _over(x, dims, keepdim, _sum_dtype(x, dtype))


def _prod_dim(x: TensorMeta, dim: int, keepdim: bool = False, *, dtype: object = None) -> TensorMeta:
    return _over(x, dim, keepdim, _sum_dtype(x, dtype))


def _mean_dims(x: TensorMeta, dims: Dims = None, keepdim: bool = False, *, dtype: object = None) -> TensorMeta:
    result = dtype_name(dtype) if dtype is not None else x.dtype
    require(category(result) >= 2, f"mean of {result}")
    return _over(x, dims, keepdim, result)


def _mean(x: TensorMeta, *, dtype: object = None) -> TensorMeta:
    return _mean_dims(x, dtype=dtype)


def _extreme_dims(x: TensorMeta, dims: Dims = (), keepdim: bool = False) -> TensorMeta:
    """amax and amin."""
    require(x.dtype not in COMPLEX, "amax of complex")
    _nonempty(x, wrap_dims(dims, len(x.sizes)))
    return _over(x, dims, keepdim, x.dtype)


def _extreme(x: TensorMeta) -> TensorMeta:
    require(x.dtype not in COMPLEX, "max of complex")
    _nonempty(x, tuple(range(len(x.sizes))))
    return fresh(x, ())


def _nonempty(x: TensorMeta, dims: tuple[int, ...]) -> None:
    for d in dims if x.sizes else ():
        expect(x.sizes[d], ">", 0, "reduction of a dimension of size 0")


def _extreme_dim(x: TensorMeta, dim: int, keepdim: bool = False) -> tuple[TensorMeta, TensorMeta]:
    """max.dim and min.dim: values and indices."""
    require(x.dtype not in COMPLEX, "max of complex")
    dims = (wrap_dim(dim, len(x.sizes)),)
    _nonempty(x, dims)
    return _over(x, dim, keepdim, x.dtype), _over(x, dim, keepdim, "int64")


def _arg_extreme(x: TensorMeta, dim: int | None = None, keepdim: bool = False) -> TensorMeta:
    require(x.dtype not in COMPLEX and x.dtype != "bool", f"argmax of {x.dtype}")
    _nonempty(x, tuple(range(len(x.sizes))) if dim is None else (wrap_dim(dim, len(x.sizes)),))
    return _over(x, dim, keepdim, "int64")


def _any(x: TensorMeta, dims: Dims = None, keepdim: bool = False) -> TensorMeta:
    return _over(x, dims, keepdim, "uint8" if x.dtype == "uint8" else "bool")


def _any_dims(x: TensorMeta, dims: Dims = None, keepdim: bool = False) -> TensorMeta:
    """An empty list of dimensions reduces nothing."""
    if dims is not None and not isinstance(dims, int) and not dims:
        return fresh(x, x.sizes, "uint8" if x.dtype == "uint8" else "bool")
    return _any(x, dims, keepdim)


def _nansum(x: TensorMeta, dims: Dims = None, keepdim: bool = False, *, dtype: object = None) -> TensorMeta:
    require(x.dtype not in COMPLEX, "nansum of complex")
    return _sum_dims(x, dims, keepdim, dtype=dtype)


def _variance(x: TensorMeta, dims: Dims = None, *, correction: object = None, keepdim: bool = False) -> TensorMeta:
    require(category(x.dtype) >= 2, f"var of {x.dtype}")
    return _over(x, dims, keepdim, REAL_OF.get(x.dtype, x.dtype))


def _variance_mean(x: TensorMeta, dims: Dims = None, *, correction: object = None, keepdim: bool = False) -> tuple[TensorMeta, TensorMeta]:
    return _variance(x, dims, keepdim=keepdim), _over(x, dims, keepdim, x.dtype)


def _logsumexp(x: TensorMeta, dims: Dims, keepdim: bool = False) -> TensorMeta:
    require(isinstance(dims, int) or bool(dims) or not x.sizes, "logsumexp over no dimension")
    return _over(x, dims, keepdim, as_float(x.dtype))


def _vector_norm(x: TensorMeta, ord: object = 2, dim: Dims = None, keepdim: bool = False, *, dtype: object = None) -> TensorMeta:
    require(category(x.dtype) >= 2, f"norm of {x.dtype}")
    result = dtype_name(dtype) if dtype is not None else x.dtype
    require(category(result) == category(x.dtype) and result_dtype([replace(x, dtype=result), x]) == result, f"norm of {x.dtype} in {result}")
    if dim is not None and (isinstance(ord, float) and (ord < 0 or ord == float("inf"))):
        _nonempty(x, wrap_dims(dim, len(x.sizes)))
    require(not (isinstance(ord, float) and (ord < 0 or ord == float("inf"))) or all(s != 0 for s in x.sizes), "norm of nothing")
    return _over(x, dim, keepdim, REAL_OF.get(result, result))


def _cumulative(x: TensorMeta, dim: int, *, dtype: object = None) -> TensorMeta:
    wrap_dim(dim, len(x.sizes))
    result = _sum_dtype(x, dtype)
    require(result != "bool", "a running sum or product in bool")
    return fresh(x, x.sizes, result)


def _cumulative_extreme(x: TensorMeta, dim: int) -> tuple[TensorMeta, TensorMeta]:
    wrap_dim(dim, len(x.sizes))
    require(x.dtype not in COMPLEX, "cummax of complex")
    return fresh(x, x.sizes), fresh(x, x.sizes, "int64")


def _logcumsumexp(x: TensorMeta, dim: int) -> TensorMeta:
    wrap_dim(dim, len(x.sizes))
    require(category(x.dtype) == 2, f"logcumsumexp of {x.dtype}")
    return fresh(x, x.sizes)


def _softmax(to_float: bool, x: TensorMeta, dim: int, dtype: object = None) -> TensorMeta:
    """softmax.int and log_softmax.int: `dtype` is what the input is converted to first."""
    result = dtype_name(dtype) if dtype is not None else x.dtype
    require(category(result) == 2, f"softmax of {result}")
    wrap_dim(dim, len(x.sizes))
    return fresh(x, x.sizes, result)


def _raw_softmax(x: TensorMeta, dim: int, half_to_float: bool) -> TensorMeta:
    require(category(x.dtype) == 2, f"softmax of {x.dtype}")
    require(not half_to_float or (x.dtype == "float16" and x.device != "cpu"), "half_to_float is for float16 on a GPU")
    wrap_dim(dim, len(x.sizes))
    return fresh(x, x.sizes, "float32" if half_to_float else x.dtype)


def _sort(x: TensorMeta, dim: int = -1, descending: bool = False) -> tuple[TensorMeta, TensorMeta]:
    wrap_dim(dim, len(x.sizes))
    require(x.dtype not in COMPLEX, "sort of complex")
    strides = preserved_strides(x.sizes, x.strides)
    return TensorMeta(x.sizes, strides, x.dtype, x.device), TensorMeta(x.sizes, strides, "int64", x.device)


def _sort_stable(x: TensorMeta, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[TensorMeta, TensorMeta]:
    return _sort(x, dim, descending)


def _argsort(x: TensorMeta, dim: int = -1, descending: bool = False) -> TensorMeta:
    return _sort(x, dim)[1]


def _topk(x: TensorMeta, k: SizeLike, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[TensorMeta, TensorMeta]:
    dim = wrap_dim(dim, len(x.sizes))
    require(x.dtype not in COMPLEX and x.dtype != "bool", f"topk of {x.dtype}")
    limit = x.sizes[dim] if x.sizes else 1
    expect(k, ">=", 0, f"topk of {k} from {limit}")
    expect(k, "<=", limit, f"topk of {k} from {limit}")
    sizes = tuple(k if d == dim else s for d, s in enumerate(x.sizes))
    return fresh(x, sizes), fresh(x, sizes, "int64")


def _count_nonzero(x: TensorMeta, dims: Dims = None) -> TensorMeta:
    return _over(x, dims, False, "int64")


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return {f"aten::{name}": rule for name in names.split()}


RULES: dict[str, Rule] = {
    **_named(_sum, "sum prod"),
    **_named(_sum_dims, "sum.dim_IntList"),
    **_named(_mean_dims, "mean.dim"),
    **_named(_extreme_dims, "amax amin"),
    **_named(_extreme, "max min"),
    **_named(_extreme_dim, "max.dim min.dim"),
    **_named(_arg_extreme, "argmax argmin"),
    **_named(_any, "any all any.dim all.dim"),
    **_named(_any_dims, "any.dims all.dims"),
    **_named(_variance, "var.correction std.correction"),
    **_named(_variance_mean, "var_mean.correction std_mean.correction"),
    **_named(_cumulative, "cumsum cumprod"),
    **_named(_cumulative_extreme, "cummax cummin"),
    **_named(partial(_softmax, True), "softmax.int log_softmax.int"),
    **_named(_raw_softmax, "_softmax _log_softmax"),
    **_named(_count_nonzero, "count_nonzero count_nonzero.dim_IntList"),
    "aten::prod.dim_int": _prod_dim,
    "aten::mean": _mean,
    "aten::nansum": _nansum,
    "aten::logsumexp": _logsumexp,
    "aten::linalg_vector_norm": _vector_norm,
    "aten::logcumsumexp": _logcumsumexp,
    "aten::sort": _sort,
    "aten::sort.stable": _sort_stable,
    "aten::argsort": _argsort,
    "aten::topk": _topk,
}
