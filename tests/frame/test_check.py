"""Guard sets as native programs: inputs, sizes, states, and weak identity."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from thruway.core.errors import CompilerBug
from thruway.core.sizes import SizeLike, evaluate, floordiv, maximum, minimum, mod, symbol
from thruway.frame.check import compile_check
from thruway.frame.guard import Guard, GuardSet, TensorExpectation
from thruway.frame.source import Attr, Item, Local, Made
from thruway.frame.state import read_state
from thruway.native import fallback

S, T = symbol("s"), symbol("t")
X, Y = Local("x", 0), Local("y", 1)


def function(x, y):
    return x


def dense(*sizes: SizeLike, strides: tuple[SizeLike | None, ...] | None = None) -> TensorExpectation:
    return TensorExpectation(torch.Tensor, "float32", "cpu", False, sizes, strides or (None,) * len(sizes))


def program(core, *guards: Guard, inputs=(), kept=()):
    return compile_check(GuardSet(read_state(), guards), inputs, kept, core).program


def test_inputs_come_in_order_and_each_source_is_loaded_once(core):
    made = program(core, Guard("length", Attr(X, "a"), 2), inputs=(Item(Attr(X, "a"), 1), Y, Item(Attr(X, "a"), 0), Made(0)), kept=("kept",))

    class Thing:
        a = [1, 2]

    assert made.check(function, (Thing(), "y")) == (2, "y", 1, "kept")
    assert made.stats()["steps"] == 7


def test_sizes_bind_across_tensors_in_any_order(core):
    first = program(core, Guard("tensor", X, dense(S + 1, T)), Guard("tensor", Y, dense(T, S)))
    assert first.check(function, (torch.ones(4, 2), torch.ones(2, 3))) is not None
    assert first.check(function, (torch.ones(4, 2), torch.ones(3, 2))) is None
    assert first.explain(function, (torch.ones(5, 2), torch.ones(2, 3)))[0] == 0


def test_strides_in_terms_of_sizes(core):
    made = program(core, Guard("tensor", X, dense(S, T, 3, strides=(T * 3, 3, 1))))
    assert made.check(function, (torch.ones(2, 5, 3), None)) is not None
    assert made.check(function, (torch.ones(7, 4, 3), None)) is not None
    assert made.check(function, (torch.ones(4, 7, 3).transpose(0, 1), None)) is None


@pytest.mark.parametrize("rows", [0, 1])
def test_symbolic_sizes_are_at_least_two(core, rows):
    made = program(core, Guard("tensor", X, dense(S, 3)))
    assert made.check(function, (torch.ones(2, 3), None)) is not None
    assert made.check(function, (torch.ones(rows, 3), None)) is None


SIZES = st.recursive(
    st.integers(-20, 20) | st.sampled_from([S, T]),
    lambda inner: st.builds(lambda f, a, b: f(a, b), st.sampled_from([lambda a, b: a + b, lambda a, b: a * b, maximum, minimum]), inner, inner)
    | st.builds(lambda f, a, b: f(a, b), st.sampled_from([floordiv, mod]), inner, st.integers(1, 9)),
    max_leaves=6,
)


@given(SIZES, st.integers(2, 5), st.integers(2, 5), st.sampled_from(["==", "!=", "<", "<="]), st.integers(-1, 1))
def test_relations_evaluate_as_core_sizes_does(size, s, t, operator, offset):
    from thruway import native

    value = evaluate(size, {"s": s, "t": t})
    expected = {"==": offset == 0, "!=": offset != 0, "<": offset > 0, "<=": offset >= 0}[operator]
    for core in {native.core(), fallback}:
        made = program(core, Guard("tensor", X, dense(S, T)), Guard("relation", X, (size, operator, value + offset)))
        assert (made.check(function, (torch.ones(s, t), None)) is not None) == expected


def test_a_size_binds_ints_from_two(core):
    made = program(core, Guard("size", X, S), Guard("relation", X, (S, "<", 5)))
    answers = [made.check(function, (value, 0)) is not None for value in (2, 4, 5, 1, 0, -3, 1 << 61, 1 << 62, 1 << 80, True, 2.0)]
    assert answers == [True, True] + [False] * 9


def test_an_unbound_symbol_is_a_bug(core):
    with pytest.raises(CompilerBug, match="bound by no guard"):
        program(core, Guard("relation", X, (S, "<", 3)))


def test_identity_is_weak_where_it_can_be(core):
    class Thing:
        pass

    thing = Thing()
    made, watch = program(core, Guard("identity", X, thing)), weakref.ref(thing)
    assert made.check(function, (thing, None)) is not None and made.check(function, (Thing(), None)) is None
    del thing
    gc.collect()
    assert watch() is None
    assert made.check(function, (None, None)) is None
    assert program(core, Guard("identity", X, None)).check(function, (None, None)) is not None


def test_modes_are_asked_for_by_python(core):
    with torch.device("meta"):
        made = program(core, Guard("type", X, int))
        assert made.check(function, (1, None)) is not None
    with torch.device("cpu"):
        assert made.check(function, (1, None)) is None


def test_a_state_from_elsewhere_has_no_word(core):
    import dataclasses

    foreign = dataclasses.replace(read_state(), word=b"")
    assert compile_check(GuardSet(foreign, ()), (), (), core).word == read_state().word
    with pytest.raises(CompilerBug):
        compile_check(GuardSet(dataclasses.replace(foreign, grad_enabled=False), ()), (), (), core)


def test_state_words_follow_states():
    first = read_state()
    with torch.no_grad():
        inside = read_state()
    assert inside != first and inside.word != first.word and read_state() == first and read_state().word == first.word
