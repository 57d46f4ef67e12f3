"""Arithmetic on symbolic sizes, done by torch.SymInt. Where it cannot follow (floats), the size becomes a constant, guarded as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thruway.capture.state import State
from thruway.capture.tensors import to_trace
from thruway.capture.values.base import SizeValue, Value
from thruway.capture.values.constants import from_python, specialize
from thruway.capture.values.errors import raise_real
from thruway.capture.values.number_calls import call_with_numbers
from thruway.core.errors import Unsupported


def size_operation(state: State, function: Callable[..., Any], *operands: Value) -> Value:
    """`function(*operands)`, at least one of them a SizeValue."""
    try:
        return from_python(state, function(*(to_trace(one) for one in operands)))
    except (Unsupported, TypeError, AttributeError, RuntimeError):    # SymInt asks its node for what it lacks, or checks that a power is not negative
        if (made := call_with_numbers(state, function, list(operands))) is not None:
            return made
        known = [specialize(state, one).value if isinstance(one, SizeValue) else one.value for one in operands]
    except ArithmeticError as error:
        raise_real(state, error)
    try:
        return from_python(state, function(*known))
    except Exception as error:
        raise_real(state, error)
