"""A truth value behind torch's symbolic nodes: comparisons of symbolic numbers are answered at once."""

from __future__ import annotations


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
    def sym_and(self, other): return BoolNode(self.value and other.value)
    def sym_or(self, other): return BoolNode(self.value or other.value)
    def and_(self, other): return self.sym_and(other)
    def or_(self, other): return self.sym_or(other)
    def str(self): return str(self.value)
    def __str__(self): return str(self.value)
