"""Floats that change between calls, behind torch.SymFloat: an expression over inputs and sizes, with the value of this call as a hint.

`expression` is a leaf (`FloatInput`, `Element`, a size, a plain number) or (function, operands…). Arithmetic that cannot raise stays symbolic.
What depends on one input alone may also be compared, and go through functions that raise for some numbers: a `Truth` of the input is then guarded.
Whatever else asks for the value makes it a constant: the inputs that it came from are then noted in `Facts.fixed`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thruway.core.errors import Unsupported
from thruway.core.sizes import Size, evaluate, symbols
from thruway.shapes.booleans import BoolNode
from thruway.shapes.refuse import ELEMENTS, NO_RULE

Expression = Any
FLOAT_FUNCTIONS = (math.sqrt, math.exp, math.log, math.log2, math.log10, math.log1p, math.expm1, math.sin, math.cos, math.tan, math.tanh, math.atan, math.pow)
LOGARITHMS = (math.log, math.log2, math.log10)
GROW_SLOWLY = (math.sqrt, math.log1p, math.sin, math.cos, math.tan, math.tanh, math.atan, *LOGARITHMS)       # no size is too large for them
SIGNS = {operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}


@dataclass(frozen=True, slots=True)
class FloatInput:
    """A float found outside: `source` says where."""

    source: object


@dataclass(frozen=True, slots=True)
class Element:
    """The number that a tensor of one element holds, read by the graph's node `node`: not known at capture."""

    node: object


@dataclass(frozen=True, slots=True)
class Truth:
    """What holds of the value of one input: `function` of expressions over it gives `answer`."""

    function: Callable[..., bool]
    operands: tuple[Expression, ...]
    answer: bool

    @property
    def key(self) -> str:
        return f"{self.function.__name__}({', '.join(map(_shown, self.operands))})"

    def __call__(self, value: float) -> bool:
        try:
            return self.function(*(_value(one, value) for one in self.operands)) is self.answer
        except (ArithmeticError, ValueError, TypeError):
            return False


def is_number(value: object) -> bool:
    """Whether a function gave a float that is neither infinite nor nan; powers may give complex numbers."""
    return type(value) is float and math.isfinite(value)


def _value(expression: Expression, value: float) -> Any:
    """The expression where its one input has that value."""
    match expression:
        case FloatInput():
            return value
        case Size():
            return evaluate(expression, {one.name: int(value) for one in symbols(expression)})
        case (function, *operands):
            return function(*(_value(one, value) for one in operands))
        case _:
            return expression


def _shown(expression: Expression) -> str:
    match expression:
        case (function, *operands):
            return f"{function.__name__}({', '.join(map(_shown, operands))})"
        case FloatInput():
            return "it"
        case _:
            return str(expression)


class FloatNode:
    """What torch.SymFloat asks of its node."""

    __slots__ = ("expression", "hint", "facts")

    def __init__(self, expression: Expression, hint: float, facts: Any):
        self.expression, self.hint, self.facts = expression, hint, facts

    def is_int(self): return False
    def is_float(self): return True
    def is_bool(self): return False
    def is_symbolic(self): return True
    def is_constant(self): return False
    def is_nested_int(self): return False
    def nested_int(self): return None
    def has_hint(self): return True
    def require_hint(self, fallback=None): return self.hint
    def maybe_as_float(self): return None
    def maybe_as_int(self): return None
    def constant_float(self): return None
    def clone(self): return self
    def str(self): return "float"
    def _graph_repr(self): return "float"
    def sym_float(self): return self
    def guard_float(self, file, line): return self.fix()
    def float_(self): return self.fix()
    def bool_(self): return self._asked(operator.ne, self, self.wrap_float(0.0))
    def wrap_int(self, value): return FloatNode(value, float(value), self.facts)
    def wrap_float(self, value): return FloatNode(value, value, self.facts)
    def wrap_bool(self, value): return BoolNode(value)
    def add(self, other): return self._of(operator.add, self, other)
    def sub(self, other): return self._of(operator.sub, self, other)
    def mul(self, other): return self._of(operator.mul, self, other)
    def neg(self): return self._of(operator.neg, self)
    def abs(self): return self._of(abs, self)
    def truediv(self, other): return self._divided_by(other)
    def float_truediv(self, other): return self._divided_by(other)
    def pow(self, other): return self.through(operator.pow, other)
    def float_pow(self, other): return self.through(operator.pow, other)
    def eq(self, other): return self._compare(operator.eq, other)
    def ne(self, other): return self._compare(operator.ne, other)
    def lt(self, other): return self._compare(operator.lt, other)
    def le(self, other): return self._compare(operator.le, other)
    def gt(self, other): return self._compare(operator.gt, other)
    def ge(self, other): return self._compare(operator.ge, other)

    def fix(self) -> float:
        """The value as a plain number."""
        if self.is_element():
            raise Unsupported("TW103", "the value of a tensor is needed in Python", ELEMENTS)
        for leaf in leaves(self.expression):
            if isinstance(leaf, Size):
                self.facts.fix(leaf)
            elif leaf.source in self.facts.drawn:
                raise Unsupported("TW103", "a number from Python's random generator is needed in Python", "keep it in tensor arithmetic, or accept the break")
            else:
                self.facts.fixed[leaf.source] = None
        return self.hint

    def for_rules(self) -> Any:
        """What rules take for it: what they give depends on its type alone."""
        return self.hint

    def as_size(self) -> Any:
        """What stands for the number where sizes are computed: only an integer can."""
        return self.fix()

    def is_element(self) -> bool:
        """Whether the value comes from a tensor's elements."""
        return any(isinstance(leaf, Element) for leaf in leaves(self.expression))

    def _of(self, function: Callable[..., float], *operands: FloatNode) -> FloatNode:
        found = [leaf for one in operands for leaf in leaves(one.expression)]
        if len({isinstance(leaf, Element) for leaf in found}) > 1:
            raise Unsupported(NO_RULE, "arithmetic between a tensor's element and a number that changes")
        return FloatNode((function, *(one.expression for one in operands)), function(*(one.hint for one in operands)), self.facts)

    def _divided_by(self, other: FloatNode) -> FloatNode:
        if isinstance(other.expression, Size) and self.facts.holds(other.expression, "!=", 0):
            return self._of(operator.truediv, self, other)
        if other._settles() is None:
            other = other.wrap_float(other.fix())
        if not other._asked(operator.ne, other, other.wrap_float(0.0)):
            raise Unsupported(NO_RULE, "a division by zero")
        return self._of(operator.truediv, self, other)

    def through(self, function: Callable[..., Any], *others: FloatNode) -> FloatNode:
        """A function that raises, or gives no float, for some numbers: not for this one, nor for those that the guard lets pass."""
        operands = (self, *others)
        if self._always_through(function, others):
            return self._of(function, *operands)
        if self._settles(*others) is None:
            operands = tuple([one.wrap_float(one.fix()) for one in operands])
        try:
            hint = function(*(one.hint for one in operands))
        except (ArithmeticError, ValueError, TypeError):
            hint = None
        if not is_number(hint):
            raise Unsupported(NO_RULE, f"{function.__name__} of such numbers")
        made = self._of(function, *operands)
        made._asked(is_number, made)
        return made

    def _always_through(self, function: Callable[..., Any], others: tuple[FloatNode, ...]) -> bool:
        """Whether the function gives a float for whatever such a size of a tensor may be."""
        if not isinstance(self.expression, Size) or self._settles() is not None or self.facts.is_free(self.expression):
            return False
        if function in GROW_SLOWLY and not others:
            return self.facts.holds(self.expression, ">" if function in LOGARITHMS else ">=", 0)
        exponent = others[0].expression if function in (operator.pow, math.pow) and len(others) == 1 else None
        return type(exponent) is float and exponent <= 1 and self.facts.holds(self.expression, ">=" if exponent >= 0 else ">", 0)

    def whole(self, function: Callable[[float], int]) -> FloatNode | None:
        """What int, round or a function of `math` makes of a root of a tensor's size; None for other numbers."""
        found = leaves(self.expression)
        sizes_only = all(isinstance(leaf, Size) and not self.facts.is_free(leaf) for leaf in found)
        is_root = isinstance(self.expression, tuple) and self.expression[0] in (operator.pow, math.sqrt, math.pow)
        return WholeNode((function, self.expression), function(self.hint), self.facts) if found and sizes_only and is_root else None

    def _compare(self, function: Callable[..., bool], other: FloatNode) -> BoolNode:
        return BoolNode(self._asked(function, self, other))

    def _asked(self, function: Callable[..., bool], *operands: FloatNode) -> bool:
        """The answer for this call. Where it hangs on one input alone, that input's other values that have the same answer are as good."""
        source = operands[0]._settles(*operands[1:])
        if source is None:
            if (sign := SIGNS.get(function)) is not None and operands[0]._is_plain_size() and operands[1]._is_small_whole():
                return self.facts.holds(operands[0].expression, sign, int(operands[1].expression))
            return function(*(one.fix() for one in operands))
        answer = function(*(one.hint for one in operands))
        self.facts.truths.setdefault(source, {})[Truth(function, tuple(one.expression for one in operands), answer)] = None
        return answer

    def _is_plain_size(self) -> bool:
        return isinstance(self.expression, Size) and not self.facts.is_free(self.expression)

    def _is_small_whole(self) -> bool:
        """Whether a size as a float compares with the number as the size does."""
        return type(self.expression) in (int, float) and self.expression == self.expression // 1 and abs(self.expression) <= 1 << 52

    def _settles(self, *others: FloatNode) -> object | None:
        """The source of the one input that it, and the others, are made of; None where there is no such input."""
        found = {self._source(leaf) for one in (self, *others) for leaf in leaves(one.expression)}
        return found.pop() if len(found) == 1 else None

    def _source(self, leaf: FloatInput | Element | Size) -> object | None:
        if isinstance(leaf, FloatInput):
            return None if leaf.source in self.facts.drawn else leaf.source
        names = [one.name for one in symbols(leaf)] if isinstance(leaf, Size) else []
        return self.facts.numbers.get(names[0]) if len(names) == 1 else None


class _IntNode(FloatNode):
    """What torch.SymInt asks of any integer that is not a size."""

    __slots__ = ()

    def is_int(self): return True
    def is_float(self): return False
    def guard_int(self, file, line): return self.fix()
    def int_(self): return self.fix()
    def sym_float(self): return self.fix()


class WholeNode(_IntNode):
    """What torch.SymInt asks of the node of the whole part of a float that is made of sizes. Whatever asks for it needs its value."""

    __slots__ = ()

    def _of(self, function: Callable[..., float], *operands: FloatNode) -> FloatNode:
        raise Unsupported(NO_RULE, "arithmetic on the whole part of a float")

    def _divided_by(self, other: FloatNode) -> FloatNode:
        return self._of(operator.truediv, self, other)


class IntInputNode(_IntNode):
    """What torch.SymInt asks of the node of an integer found outside that is data, not a size: tensor arithmetic takes it, all else needs its value."""

    __slots__ = ()

    def _of(self, function: Callable[..., float], *operands: FloatNode) -> FloatNode:
        raise Unsupported(NO_RULE, "arithmetic on an integer that is data")

    def _divided_by(self, other: FloatNode) -> FloatNode:
        return self._of(operator.truediv, self, other)


class IntElementNode(_IntNode):
    """What torch.SymInt asks of the node of an integer that a tensor holds. In arithmetic, and as a size, it is a number that sizes are made of."""

    __slots__ = ()

    def wrap_int(self, value): return self.as_size().wrap_int(value)
    def expect_size(self, file, line): return self.as_size().expect_size(file, line)
    def as_size(self) -> Any: return self.facts.size_of(self.expression.node)
    def for_rules(self) -> Any: return self.facts.number_of(self.expression.node)

    @property
    def is_free(self) -> bool:
        return True

    @property
    def size(self) -> Size:
        return self.as_size().size


def _as_size(name: str) -> Callable[..., Any]:
    def method(self: IntElementNode, *others: Any) -> Any:
        return getattr(self.as_size(), name)(*(one.as_size() if isinstance(one, IntElementNode) else one for one in others))

    return method


for _name in ("add", "sub", "mul", "neg", "floordiv", "int_floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge", "sym_min", "sym_max", "pow", "truediv",
              "int_truediv"):
    setattr(IntElementNode, _name, _as_size(_name))


class BoolElementNode(FloatNode):
    """What torch.SymBool asks of the node of a truth value that a tensor holds. Whatever asks for it needs its value."""

    __slots__ = ()

    def is_float(self): return False
    def is_bool(self): return True
    def guard_bool(self, file, line): return self.fix()
    def sym_not(self): return BoolNode(not self.fix())


def element(node: object, is_float: bool, facts: Any) -> FloatNode:
    return FloatNode(Element(node), 1.0, facts) if is_float else IntElementNode(Element(node), 1, facts)


def leaves(expression: Expression) -> list[FloatInput | Element | Size]:
    """The inputs, elements and sizes that an expression is made of."""
    if isinstance(expression, tuple):
        return [leaf for part in expression[1:] for leaf in leaves(part)]
    return [expression] if isinstance(expression, FloatInput | Element | Size) else []
