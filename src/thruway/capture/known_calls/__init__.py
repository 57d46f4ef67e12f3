"""Rows only: callable → handler(state, args, kwargs). Support for a builtin is a row; a row over ten lines is a type in values/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thruway.capture.known_calls import (
    autograd_function, builtin_functions, builtin_types, caches, containers, control, copies, float_functions, functional_call, iterators, library,
    normalization, numpy_calls, ordering, output, reflection, rounding, standard_functions, tensor_truths, torch_functions, torch_modes,
    torch_state, torch_tensors, transforms, weak_references,
)

TABLES = (autograd_function, builtin_functions, builtin_types, caches, containers, control, copies, float_functions, functional_call, iterators,
          library, normalization, ordering, output, reflection, rounding, standard_functions, tensor_truths, torch_functions, torch_modes, torch_state,
          torch_tensors, numpy_calls, transforms, weak_references)
KNOWN: dict[Any, Callable[..., Any]] = {target: handler for table in TABLES for target, handler in table.ROWS.items()}
