"""Floats that change between calls, behind torch.SymFloat: an expression over inputs and sizes, with the value of this call as a hint.

`expression` is a leaf (`FloatInput`, `Element`, a size, a plain number) or (function, operands…). Only arithmetic that cannot raise stays symbolic.
Whatever asks for the value makes it a constant: the inputs that it came from are then noted in `Facts.fixed`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thruway.core.errors import Unsupported
from thruway.core.sizes import Size
from thruway.shapes.booleans import BoolNode
from thruway.shapes.refuse import NO_RULE

Expression = Any


@dataclass(frozen=True, slots=True)
class FloatInput:
    """A float found outside: `source` says where."""

    source: object


@dataclass(frozen=True, slots=True)
class Element:
    """The number that a tensor of one element holds, read by the graph's node `node`: not known at capture."""

    node: object


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
    def bool_(self): return bool(self.fix())
    def wrap_int(self, value): return FloatNode(value, float(value), self.facts)
    def wrap_float(self, value): return FloatNode(value, value, self.facts)
    def wrap_bool(self, value): return BoolNode(value)
    def add(self, other): return self._of(operator.add, self, other)
    def sub(self, other): return self._of(operator.sub, self, other)
    def mul(self, other): return self._of(operator.mul, self, other)
    def neg(self): return self._of(operator.neg, self)
    def truediv(self, other): return self._divided_by(other)
    def float_truediv(self, other): return self._divided_by(other)
    def eq(self, other): return self._compare(operator.eq, other)
    def ne(self, other): return self._compare(operator.ne, other)
    def lt(self, other): return self._compare(operator.lt, other)
    def le(self, other): return self._compare(operator.le, other)
    def gt(self, other): return self._compare(operator.gt, other)
    def ge(self, other): return self._compare(operator.ge, other)

    def fix(self) -> float:
        """The value as a plain number."""
        if self.is_element():
            raise Unsupported("TW103", "the value of a tensor is needed in Python",
                              "stay in torch's operators (torch.where, torch's own in place of numpy's), or accept the break")
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
        by = other.fix()
        if not by:
            raise Unsupported(NO_RULE, "a division by zero")
        return self._of(operator.truediv, self, other.wrap_float(by))

    def _compare(self, function: Callable[..., bool], other: FloatNode) -> BoolNode:
        return BoolNode(function(self.fix(), other.fix()))


class _IntNode(FloatNode):
    """What torch.SymInt asks of any integer that is not a size."""

    __slots__ = ()

    def is_int(self): return True
    def is_float(self): return False
    def guard_int(self, file, line): return self.fix()
    def int_(self): return self.fix()
    def sym_float(self): return self.fix()


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
