"""Functions and methods of numpy that only compute: rows over `values.arrays`. What draws random numbers, or writes where it is told, is not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from thruway.capture.breaks import OF_NUMPY, unsupported
from thruway.capture.known_calls.torch_tensors import as_tensor, new_tensor
from thruway.capture.state import State
from thruway.capture.values.arrays import array_of, call_numpy, number_in_array, tensor_of
from thruway.capture.values.base import ArrayValue, Constant, TensorValue, Value
from thruway.capture.values.constants import from_python

Args = list[Value]
Kwargs = dict[str, Value]
Row = Callable[[State, Args, Kwargs], Value]

# Shape and dtype of what they give hang on shapes and dtypes alone.
FUNCTIONS = (
    "sum mean std var min max amin amax prod cumsum cumprod argmin argmax sort argsort reshape ravel transpose swapaxes moveaxis "
    "squeeze expand_dims concatenate stack vstack hstack dstack column_stack split array_split tile repeat broadcast_to clip dot "
    "matmul inner outer tensordot einsum vdot zeros ones full zeros_like ones_like full_like arange linspace logspace geomspace "
    "eye identity array asarray ascontiguousarray asfortranarray copy flip fliplr flipud roll rot90 diff gradient meshgrid "
    "take_along_axis median percentile quantile average any all isclose round around nan_to_num nansum nanmean nanmax nanmin "
    "nanstd nanvar pad triu tril tri diag diagonal trace cross kron cov corrcoef interp searchsorted digitize ptp count_nonzero "
    "atleast_1d atleast_2d atleast_3d broadcast_arrays where sinc angle vander ndim shape size result_type promote_types can_cast "
    "isscalar iscomplexobj isrealobj ediff1d nancumsum nanprod nanmedian block append rollaxis cumulative_sum unstack permute_dims "
    "matrix_transpose vecdot argpartition partition").split()
# So do these where their arguments are constants.
OF_CONSTANTS = "unique nonzero flatnonzero argwhere allclose array_equal bincount histogram isin trim_zeros delete insert compress extract take choose".split()
SPACES = ((np.linalg, ("norm", "matrix_norm", "vector_norm"), ("inv", "det", "solve", "eigh", "eigvalsh", "cholesky", "qr", "svd", "pinv")),
          (np.fft, ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "fftn", "ifftn", "fftfreq", "rfftfreq", "fftshift", "ifftshift"), ()))
METHODS = (
    "all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum diagonal dot flatten max mean min prod ravel repeat reshape round squeeze "
    "std sum swapaxes trace transpose var").split()
METHODS_OF_CONSTANTS = "tolist item nonzero take searchsorted tobytes".split()
REFUSED = ("out", "where", "like")
FACTS = frozenset({"ndim", "shape", "size", "isscalar", "iscomplexobj", "isrealobj", "can_cast", "result_type", "promote_types"})
CONVERTS = frozenset({"asarray", "array", "ascontiguousarray"})             # take tensors, as arrays


def row(target: Callable[..., Any], name: str, needs_known: bool = False) -> Row:
    """A call of `target`. Where results are to be written is refused."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if any(key in kwargs for key in REFUSED) and name != "where":
            raise unsupported(state, "TW101", f"numpy's {name} with {', '.join(key for key in REFUSED if key in kwargs)}=", hint=OF_NUMPY)
        if name == "where" and len(args) != 3:
            return call_numpy(state, target, args, kwargs, name, True)
        if name in CONVERTS and args and isinstance(args[0], TensorValue):
            args = [array_of(state, args[0], f"numpy.{name}"), *args[1:]]
        if name in FACTS:
            return from_python(state, _fact(state, target, args, kwargs, name))
        return call_numpy(state, target, args, kwargs, name, needs_known)
    return handler


def _fact(state: State, target: Callable[..., Any], args: Args, kwargs: Kwargs, name: str) -> Any:
    """What shapes and dtypes alone say."""
    if not all(isinstance(one, ArrayValue | Constant) for one in (*args, *kwargs.values())):
        raise unsupported(state, "TW101", f"numpy's {name}", hint=OF_NUMPY)
    given = [one.example if isinstance(one, ArrayValue) else one.value for one in args]
    return target(*given, **{key: one.example if isinstance(one, ArrayValue) else one.value for key, one in kwargs.items()})


def method(name: str, needs_known: bool) -> Row:
    def called(owner: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(owner, name)(*args, **kwargs)
    called.__name__ = name
    return row(called, name, needs_known)


def item(state: State, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and not kwargs and isinstance(args[0], ArrayValue):
        return number_in_array(state, args[0], "item")
    return method("item", True)(state, args, kwargs)


def ufunc(target: np.ufunc) -> Row:
    return row(target, target.__name__)


def to_numpy(state: State, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1 or kwargs:
        raise unsupported(state, "TW103", "Tensor.numpy with force=", hint=OF_NUMPY)
    return array_of(state, args[0], "Tensor.numpy")


def from_numpy(state: State, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs or not isinstance(args[0], ArrayValue):
        raise unsupported(state, "TW101", "torch.from_numpy", hint=OF_NUMPY)
    return tensor_of(state, torch.from_numpy, args[0], {})


def of_data(function: Callable[..., Any], otherwise: Row) -> Row:
    """torch.tensor and torch.as_tensor, of an array or of anything else."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if len(args) == 1 and isinstance(args[0], ArrayValue) and not state.devices:
            return tensor_of(state, function, args[0], kwargs)
        return otherwise(state, args, kwargs)
    return handler


def _functions() -> dict[Any, Row]:
    found: dict[Any, Row] = {one: ufunc(one) for one in vars(np).values() if isinstance(one, np.ufunc)}
    for name in (*FUNCTIONS, *OF_CONSTANTS):
        if hasattr(np, name):
            found.setdefault(getattr(np, name), row(getattr(np, name), name, name in OF_CONSTANTS))
    for space, plain, of_constants in SPACES:
        for name in (*plain, *of_constants):
            if hasattr(space, name):
                found[getattr(space, name)] = row(getattr(space, name), name, name in of_constants)
    return found


def _methods() -> dict[Any, Row]:
    return {vars(cls)[name]: method(name, name in METHODS_OF_CONSTANTS) for cls in (np.ndarray, np.generic) for name in (*METHODS, *METHODS_OF_CONSTANTS)
            if name in vars(cls)}


SCALARS = {one for one in vars(np).values() if isinstance(one, type) and issubclass(one, np.number | np.bool_) and one not in (
    np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating, np.complexfloating)}
ROWS = {
    **_functions(), **_methods(), np.ndarray.item: item, np.generic.item: item, **{cls: row(cls, cls.__name__) for cls in SCALARS},
    np.dtype: row(np.dtype, "dtype"),
    torch.Tensor.numpy: to_numpy, torch.from_numpy: from_numpy, torch.tensor: of_data(torch.tensor, new_tensor),
    torch.as_tensor: of_data(torch.as_tensor, as_tensor),
}
