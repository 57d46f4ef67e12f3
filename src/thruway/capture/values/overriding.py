"""Who answers for torch's functions: objects whose class has `__torch_function__`, and function modes entered inside."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import DictValue, ListValue, ObjectValue, TensorValue, TupleValue, Value

DISABLED = torch._C._disabled_torch_function_impl
DEFAULT = torch.Tensor.__torch_function__.__func__


@dataclass(frozen=True, slots=True)
class FunctionsAsk:
    """Whether torch's functions ask their arguments around the call."""

    key: bool

    def __call__(self, nothing: object) -> bool:
        return torch._C._is_torch_function_enabled() is self.key


def is_mode(value: Value) -> bool:
    return isinstance(value, ObjectValue) and issubclass(value.cls.value, TorchFunctionMode)


def is_off(state: State) -> bool:
    """Whether arguments are not asked now."""
    return state.is_function_off or not all(map(is_mode, state.overriding))


def modes_on(state: State) -> bool:
    return bool(state.overriding) and any(map(is_mode, state.overriding))


def answers(state: State, value: Value) -> bool:
    """Whether torch's functions ask the argument."""
    return isinstance(value, ObjectValue) and overrides(value.cls.value) and not is_off(state)


@functools.lru_cache(maxsize=1024)
def overrides(cls: type) -> bool:
    """Whether instances say themselves what torch's functions do with them."""
    found = getattr(cls, "__torch_function__", DISABLED)
    return cls is not torch.Tensor and found is not DISABLED and not issubclass(cls, TorchFunctionMode)


def is_tensor_object(value: Value) -> bool:
    """A tensor of a class of its own."""
    return isinstance(value, ObjectValue) and isinstance(value.storage, TensorValue)


def may_ask(state: State, values: Any) -> bool:
    return any(answers(state, one) or isinstance(one, ListValue | TupleValue) and may_ask(state, one.items)
               or isinstance(one, DictValue) and may_ask(state, [item for _, item in one.items.values()]) for one in values)


def plain_part(state: State, value: ObjectValue) -> Value:
    """The content that a builtin base class keeps. A tensor's is asked for where torch alone says what happens to it."""
    if isinstance(value.storage, TensorValue) and not is_off(state) and value.cls.value.__torch_function__.__func__ is not DEFAULT:
        raise unsupported(state, "TW108", value.cls.value.__name__)
    return value.storage
