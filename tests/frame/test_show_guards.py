"""Every kind of guard reads as a condition in the user's terms."""

from __future__ import annotations

import types

import pytest
import torch

from thruway.core.errors import UserLine
from thruway.core.sizes import symbol
from thruway.frame.guard import KINDS, GlobalState, Guard, GuardSet, TensorExpectation
from thruway.frame.show_guards import show_guard, show_guards
from thruway.frame.source import Attr, Global, Local

X = Local("x", 0)
STATE = GlobalState(False, False, (("cpu", True, "bfloat16"),), (False, False), "float32", "cpu", 0, 0)
TENSOR = TensorExpectation(torch.nn.Parameter, "float32", "cpu", True, (symbol("s0"), 4, None), (4, 1, None))
SHOWN = {
    "tensor": (TENSOR, "x: Parameter float32[s0, 4, any] strides (4, 1, any) on cpu, requires grad"),
    "type": (torch.nn.Linear, "type(x) is torch.nn.modules.linear.Linear"),
    "identity": (None, "x is None"),
    "equal": ("a" * 200, "x == 'aaa"),
    "length": (3, "len(x) == 3"),
    "dict_keys": (("a", "b"), "list(x) == ['a', 'b']"),
    "ordered_keys": (("a", "b"), "list(x) == ['a', 'b']"),
    "has_not": ("bias", "not hasattr(x, 'bias')"),
    "absent": ("k", "'k' not in x"),
    "type_lookup": (("forward", torch.nn.Linear.forward), "x.forward is found as torch.nn.modules.linear.Linear.forward"),
    "code": (show_guard.__code__, "x.__code__ is show_guard"),
    "same_object": (Attr(X, "y"), "x is x.y"),
    "not_same_object": (Global("g"), "x is not g"),
    "no_overlap": (Global("g"), "x shares no memory with g"),
    "answer": (types.SimpleNamespace(key=3), "x has the same answer for 3"),
    "truth": (False, "bool(x) is False"),
    "size": (symbol("s0"), "x is an int: s0"),
    "relation": ((symbol("s0"), "<=", 7), "s0 <= 7"),
}


def test_every_kind_is_shown():
    assert set(SHOWN) == set(KINDS)


@pytest.mark.parametrize("kind", SHOWN)
def test_conditions(kind):
    expected, text = SHOWN[kind]
    shown = show_guard(Guard(kind, X, expected))
    assert shown.startswith(text) and len(shown) < 130


def test_the_users_line_stands_behind_it():
    guard = Guard("equal", X, 2, UserLine("model.py", 7, "forward", "return y * x"))
    assert show_guard(guard) == "x == 2    # model.py:7 in forward: return y * x"
    assert show_guards(GuardSet(STATE, (guard,))).splitlines() == [
        "modes: grad off, default dtype float32, autocast cpu bfloat16", "x == 2    # model.py:7 in forward: return y * x"]
