"""Numbers that torch itself reads: a tensor of one element where an operator wants a number (`torch.zeros(n)`, `pad(x, (0, n))`, `clamp(x, 0, n)`).

Torch's parser calls `item()` there; so is it written down, and the call is made with the number.
"""

from __future__ import annotations

import torch

from thruway.capture.state import State
from thruway.capture.values.base import ListValue, TensorValue, TupleValue, Value

READ = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.float64, torch.float32, torch.float16, torch.bfloat16})


def with_number(state: State, tensor: torch.Tensor, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]] | None:
    """The arguments with the number that `tensor` holds in its place; None where it is none of them. Of several places the last: what an
    operator works on comes first."""
    if tensor.dtype not in READ:
        return None
    for name, value in reversed(kwargs.items()):
        if (changed := _replaced(state, tensor, value)) is not None:
            return args, kwargs | {name: changed}
    for at, value in reversed([*enumerate(args)]):
        if (changed := _replaced(state, tensor, value)) is not None:
            return [*args[:at], changed, *args[at + 1:]], kwargs
    return None


def _replaced(state: State, tensor: torch.Tensor, value: Value) -> Value | None:
    match value:
        case TensorValue() if value.known_trace is tensor:
            return state.known[torch.Tensor.item](state, [value], {})
        case TupleValue() | ListValue():
            for at, item in reversed([*enumerate(value.items)]):
                if (changed := _replaced(state, tensor, item)) is not None:
                    items = [*value.items[:at], changed, *value.items[at + 1:]]
                    return ListValue(items) if isinstance(value, ListValue) else TupleValue(tuple(items), cls=value.cls)
    return None
