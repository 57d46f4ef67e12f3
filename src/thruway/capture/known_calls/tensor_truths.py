"""Questions about what tensors hold, answered by a truth value that stays in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import call_torch
from thruway.capture.values.base import Value
from thruway.capture.values.call import call_pure
from thruway.capture.values.numbers import is_element, kept_condition, number_tensor, truth_value

Args = list[Value]
Kwargs = dict[str, Value]


def truth_of_tensor(state: State, args: Args, kwargs: Kwargs) -> Value:
    held = kept_condition(state, args[0])
    if held is None:
        raise unsupported(state, "TW103", "the truth of a tensor")
    return truth_value(state, held)


def classified(function: Callable[[float], bool], torch_function: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """math.isnan and its like, also of numbers that tensors hold."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or not is_element(args[0]):
            return call_pure(state, function, args, kwargs)
        return truth_value(state, call_torch(state, torch_function, [number_tensor(state, args[0])], {}))
    return handler


ROWS = {
    torch.is_nonzero: truth_of_tensor, torch.Tensor.is_nonzero: truth_of_tensor, torch.Tensor.__bool__: truth_of_tensor,
    math.isnan: classified(math.isnan, torch.isnan), math.isinf: classified(math.isinf, torch.isinf),
    math.isfinite: classified(math.isfinite, torch.isfinite),
}
