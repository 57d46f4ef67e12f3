"""Whether a number fits the dtype that an operator computes in: eager raises where it does not, compiled code would wrap.

A number that may be another one at the next call gets its range as a fact, and so as a guard. One that is out of range now is refused: eager then
says how. One that a tensor's elements give is known only when the graph runs, so Python has to be asked.
"""

from __future__ import annotations

import functools
import math

import torch
from torch._ops import OpOverload

from thruway.shapes.floats import FloatNode
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import torch_dtype
from thruway.shapes.refuse import refuse
from thruway.shapes.symbolic import as_node, needs_elements

# Eager wraps what these take as a number, as it does a tensor's elements, or computes with it in a wider dtype; factors named alpha it checks.
WRAPPING = frozenset(
    "add sub rsub mul div floor_divide remainder fmod bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift and or xor lshift rshift iand "
    "ior ixor ilshift irshift eq ne lt le gt ge arange isin searchsorted bucketize xlogy copysign".split())


@functools.cache
def _numbers(op: OpOverload) -> tuple[tuple[int, str], ...]:
    """Index and name of the arguments of which eager checks that they fit."""
    base = op._schema.name.partition("::")[2].strip("_")
    found = [(i, arg.name) for i, arg in enumerate(op._schema.arguments) if "number" in str(arg.type)]
    if base in WRAPPING:
        return tuple([one for one in found if one[1] == "alpha"])
    return tuple([one for one in found if not (base == "pow" and one[1] == "self")])


@functools.cache
def _range(kind: torch.dtype) -> tuple[int, int]:
    """The numbers that eager takes for the dtype. Negative integers wrap in unsigned dtypes, down to minus the largest."""
    if kind is torch.float16:
        return -65504, 65504
    if kind is torch.bool or kind.is_floating_point or kind.is_complex or kind.itemsize == 8:
        return -1 << 63, (1 << 63) - 1                  # as Python's integers come to torch
    limits = torch.iinfo(kind)
    return limits.min or -limits.max, limits.max


def check_numbers(op: OpOverload, args: tuple, kwargs: dict, result: object) -> None:
    """Each number among the arguments against the dtype of the result."""
    made = result[0] if isinstance(result, tuple | list) and result else result
    if not isinstance(made, TensorMeta) or not (numbers := _numbers(op)):
        return
    for index, name in numbers:
        value = args[index] if index < len(args) else kwargs.get(name)
        if not fits(value, torch_dtype(made.dtype), name == "exponent") or _overflows(op, value, made.dtype):
            refuse(f"a number that does not fit {made.dtype}")


def _overflows(op: OpOverload, value: object, dtype: str) -> bool:
    """Of the number that pads, which torch took for a float: it is a plain one here, where capture saw an integer that changes."""
    is_padding = op is torch.ops.aten.constant_pad_nd.default and dtype == "float16" and type(value) is float
    return is_padding and math.isfinite(value) and abs(value) > 65504


def fits(value: object, dtype: torch.dtype, is_exponent: bool = False) -> bool:
    """Whether eager takes the number for a tensor of the dtype, which a guard then holds. Of plain integers capture has asked eager."""
    low, high = _range(dtype)
    is_whole = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    if isinstance(value, float | torch.SymFloat):                   # an integer that torch took for a float: negative ones do not wrap
        return not is_whole or torch.iinfo(dtype).min <= float(value) <= high
    if not isinstance(value, torch.SymInt):
        return True
    if is_exponent and is_whole:                                    # eager has no reciprocals of integers
        low = 0
    node = value.node.as_size() if isinstance(value.node, FloatNode) else as_node(value)
    if type(node) is int:
        return low <= node <= high
    if not node.is_free:
        return node.facts.holds(node.size, "<=", high) and node.facts.holds(node.size, ">=", low)
    is_wide = high >= 1 << 62
    certain = (is_wide or node.surely("<=", high)) and (is_wide and low or node.surely(">=", low))
    return bool(certain) or needs_elements(node, "<=", high)

