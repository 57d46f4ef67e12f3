"""A truth value behind torch's symbolic nodes: comparisons of symbolic numbers are answered at once, but for those that depend on elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


class BoolNode:
    """What torch's C++ gets for a comparison: a known truth value."""

    def __init__(self, value: bool):
        self.value = value

    def is_int(self): return False
    def is_float(self): return False
    def is_bool(self): return True
    def is_symbolic(self): return False
    def is_constant(self): return True
    def is_nested_int(self): return False
    def has_hint(self): return True
    def maybe_as_int(self): return None
    def nested_int(self): return None
    def constant_bool(self): return self.value
    def guard_bool(self, file, line): return self.value
    def bool_(self): return self.value
    def guard_size_oblivious(self, file, line): return self.value
    def guard_or_false(self, file, line): return self.value
    def guard_or_true(self, file, line): return self.value
    def statically_known_true(self, file, line): return self.value
    def expect_true(self, file, line): return self.value
    def wrap_bool(self, value): return BoolNode(value)
    def sym_not(self): return BoolNode(not self.value)
    def sym_and(self, other): return other if self.value else self
    def sym_or(self, other): return self if self.value else other
    def and_(self, other): return self.sym_and(other)
    def or_(self, other): return self.sym_or(other)
    def str(self): return str(self.value)
    def __str__(self): return str(self.value)


class OpenNode(BoolNode):
    """A comparison whose answer depends on the elements of a tensor. Code that has a road for both gets that one; a check is `defer`red to the
    operator that makes it; whatever else asks is refused (`refuse` raises). `question`: (left, sign, right), where it is known as one."""

    def __init__(self, refuse: Callable[[], NoReturn], defer: Callable[[], None], question: tuple = ()):
        self.refuse, self.defer, self.question = refuse, defer, question

    @property
    def value(self) -> NoReturn:
        self.refuse()

    def is_symbolic(self): return True
    def is_constant(self): return False
    def has_hint(self): return False
    def constant_bool(self): return None
    def guard_size_oblivious(self, file, line): return False
    def guard_or_false(self, file, line): return False
    def guard_or_true(self, file, line): return True
    def statically_known_true(self, file, line): return False
    def sym_not(self): return OpenNode(self.refuse, self.defer)
    def sym_and(self, other): return self.sym_not() if isinstance(other, OpenNode) else self if other.value else other
    def sym_or(self, other): return self.sym_not() if isinstance(other, OpenNode) else other if other.value else self
    def str(self): return "a comparison of what tensors hold"
    __str__ = str

    def expect_true(self, file, line):
        self.defer()
        return True
