"""isinstance of a Value."""

from __future__ import annotations

import types
from typing import Any

import torch

from thruway.capture.state import State
from thruway.capture.values.attribute import find_attribute
from thruway.capture.values.base import TensorValue, Value
from thruway.capture.values.truth import truth
from thruway.capture.values.types_ import is_subclass, python_type

FLAGS = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}        # attributes of tensors that these classes believe


def is_instance(state: State, value: Value, wanted: Any) -> bool:
    """isinstance(value, wanted), where no code of the user's answers that."""
    if isinstance(wanted, tuple | types.UnionType):
        return any(is_instance(state, value, one) for one in (wanted if isinstance(wanted, tuple) else wanted.__args__))
    if is_subclass(state, python_type(value), wanted):
        return True
    if not isinstance(value, TensorValue) or not isinstance(wanted, type) or wanted not in FLAGS:
        return False
    flag = find_attribute(state, value, FLAGS[wanted])
    return flag is not None and truth(state, flag)
