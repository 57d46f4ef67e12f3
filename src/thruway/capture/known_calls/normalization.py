"""Batch norm with a factor that the run computes: a cumulative average's, 1 / number of batches."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import call_torch
from thruway.capture.values.base import FALSE, NONE, Constant, SizeValue, TensorValue, TupleValue, Value
from thruway.capture.values.binary import binary
from thruway.capture.values.call import run_inline
from thruway.capture.values.truth import truth

Args = list[Value]
Kwargs = dict[str, Value]
DEFAULTS = {"input": NONE, "running_mean": NONE, "running_var": NONE, "weight": NONE, "bias": NONE, "training": FALSE,
            "momentum": Constant(0.1), "eps": Constant(1e-5)}


def batch_norm(state: State, args: Args, kwargs: Kwargs) -> Value:
    """F.batch_norm. Torch's takes the factor as a plain number: where the run computes it, the averages are updated beside."""
    given = DEFAULTS | dict(zip(DEFAULTS, args)) | kwargs
    factor, mean, variance = given["momentum"], given["running_mean"], given["running_var"]
    apart = isinstance(factor, SizeValue) and truth(state, given["training"])
    if apart:
        args, kwargs = list((given | {"running_mean": NONE, "running_var": NONE, "momentum": Constant(0.0)}).values()), {}
    result = call_torch(state, F.batch_norm, args, kwargs)                  # which checks the sizes first
    if result is None:
        raise unsupported(state, "TW101", "F.batch_norm")
    if apart and isinstance(mean, TensorValue) and isinstance(variance, TensorValue):
        _update(state, given["input"], mean, variance, factor)
    return result


def _update(state: State, value: TensorValue, mean: TensorValue, variance: TensorValue, factor: Value) -> None:
    """running = running * (1 - factor) + new * factor."""
    dims = TupleValue(tuple(Constant(dim) for dim in range(value.trace.dim()) if dim != 1))
    detached = call_torch(state, torch.Tensor.detach, [value], {})
    wide = call_torch(state, torch.Tensor.to, [detached, Constant(mean.trace.dtype)], {})
    rest = run_inline(state, binary(state, "-", Constant(1.0), factor))
    for running, function in ((mean, torch.Tensor.mean), (variance, torch.Tensor.var)):
        new = run_inline(state, binary(state, "*", call_torch(state, function, [wide, dims], {}), factor))
        run_inline(state, binary(state, "*=", running, rest))
        run_inline(state, binary(state, "+=", running, new))


ROWS = {F.batch_norm: batch_norm}
