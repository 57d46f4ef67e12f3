"""math.ceil, floor and trunc, round and int of sizes and of fractions of sizes: whole numbers in terms of the sizes, as Python's floats give them.

A quotient of a size below LARGEST by a small fraction is rounded once, and never past a whole number or a half: exact arithmetic gives the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch

from thruway.capture.state import State
from thruway.capture.values.base import Constant, SizeValue, Value
from thruway.capture.values.call import call_pure
from thruway.capture.values.constants import from_python
from thruway.core.sizes import Size
from thruway.shapes.floats import FloatNode
from thruway.shapes.symbolic import SizeNode, symint

LARGEST, SMALL = 1 << 40, 1 << 10
Args = list[Value]
Kwargs = dict[str, Value]
Rounding = Callable[[Any, int], Any]


def part_of_size(state: State, value: Value) -> tuple[SizeNode, int] | None:
    """(a, b), where the value is a / b for a size a; None for other values."""
    if not isinstance(value, SizeValue):
        return None
    node = value.size.node
    if type(node) is SizeNode:
        return node, 1
    found = _fraction(node.expression) if type(node) is FloatNode else None
    if found is None:
        return None
    size, by = found
    if by.denominator > SMALL or abs(by.numerator) > SMALL or state.facts.is_free(size) or not state.facts.holds(size, "<", LARGEST):
        return None
    return SizeNode(size, state.facts) * by.numerator, by.denominator


def _fraction(expression: Any) -> tuple[Size, Fraction] | None:
    """The size, and what it is multiplied by."""
    match expression:
        case Size():
            return expression, Fraction(1)
        case (operator.truediv, Size() as size, int() | float() as by) if by and math.isfinite(by):
            return size, 1 / Fraction(by)
        case (operator.mul, Size() as size, int() | float() as by) | (operator.mul, int() | float() as by, Size() as size) if math.isfinite(by):
            return size, Fraction(by)
        case _:
            return None


def floor_of(a: Any, b: int) -> Any:
    return a // b


def ceil_of(a: Any, b: int) -> Any:
    return -(-a // b)


def trunc_of(a: Any, b: int) -> Any:
    return a // b if a >= 0 else -(-a // b)


def round_of(a: Any, b: int) -> Any:
    """To the nearest, halves to the even one."""
    return (a * 2 + (b - 1) + (a // b) % 2) // (2 * b)


def whole_part(state: State, function: Callable[[float], int], value: Value) -> Value | None:
    """The function of a root of a size, which Python computes at each call; None for other numbers."""
    node = value.size.node if isinstance(value, SizeValue) else None
    whole = node.whole(function) if type(node) is FloatNode else None
    return None if whole is None else from_python(state, torch.SymInt(whole))


def row(function: Callable[..., Any], rounding: Rounding) -> Callable[[State, Args, Kwargs], Value]:
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        part = part_of_size(state, args[0]) if len(args) == 1 and not kwargs else None
        if part is None and len(args) == 1 and (whole := whole_part(state, function, args[0])) is not None:
            return whole
        return call_pure(state, function, args, kwargs) if part is None else from_python(state, symint(rounding(*part), state.facts))
    return handler


def rounded(state: State, args: Args, kwargs: Kwargs) -> Value | None:
    """round() of a size, or of a fraction of one to a whole number; None for what else there is."""
    digits = args[1] if len(args) == 2 else kwargs.get("ndigits", Constant(None))
    part = part_of_size(state, args[0]) if args else None
    if part is None and isinstance(digits, Constant) and digits.value is None and args:
        return whole_part(state, round, args[0])
    if part is None or not isinstance(digits, Constant) or digits.value is not None and not isinstance(digits.value, int):
        return None
    size, by = part
    if digits.value is None:
        return from_python(state, symint(round_of(size, by), state.facts))
    if not isinstance(args[0].size, torch.SymInt):
        return None
    if digits.value >= 0:
        return args[0]
    unit = 10 ** -digits.value
    return from_python(state, symint(round_of(size, unit) * unit, state.facts))


ROWS = {math.ceil: row(math.ceil, ceil_of), math.floor: row(math.floor, floor_of), math.trunc: row(math.trunc, trunc_of)}
