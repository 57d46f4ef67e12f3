"""Functions of torch's Python that warn for some arguments: then they are followed as code, and the call of `warnings.warn` inside is the effect.

`torch_warnings` tells of all others. It could not of these: the words name sizes, which may be another call's next time; the line is
that of a caller further up, inside torch's modules; and a backend of the user's would run, and warn, once more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F

from thruway.capture.values.base import NONE, Constant, TensorValue, Value

Given = dict[str, Value]
LEGACY = ("size_average", "reduce")


def warns(function: Any, args: list[Value], kwargs: Given) -> bool:
    """Whether the call warns."""
    asks = WARNS.get(function)
    if asks is None and not any(name in kwargs for name in LEGACY):
        return False
    given = dict(zip(inspect.getfullargspec(function).args, args)) | kwargs
    return any(given.get(name, NONE) is not NONE for name in LEGACY) or asks is not None and asks(given)


def _sizes_differ(given: Given) -> bool:
    input, target = given.get("input"), given.get("target")
    return isinstance(input, TensorValue) and isinstance(target, TensorValue) and input.trace.shape != target.trace.shape


def _lacks(name: str) -> Callable[[Given], bool]:
    return lambda given: given.get(name, NONE) is NONE


def _divides_by_all(given: Given) -> bool:
    reduction = given.get("reduction", Constant("mean"))
    return isinstance(reduction, Constant) and reduction.value == "mean"


def _always(given: Given) -> bool:
    return True


WARNS: dict[Any, Callable[[Given], bool]] = {
    F.mse_loss: _sizes_differ, F.l1_loss: _sizes_differ, F.smooth_l1_loss: _sizes_differ, F.huber_loss: _sizes_differ,
    F.softmax: _lacks("dim"), F.log_softmax: _lacks("dim"), F.softmin: _lacks("dim"), F._get_softmax_dim: _always,
    F.grid_sample: _lacks("align_corners"), F.affine_grid: _lacks("align_corners"),
    F.kl_div: _divides_by_all,
    F.upsample: _always, F.upsample_nearest: _always, F.upsample_bilinear: _always,
}
