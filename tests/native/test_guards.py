"""Guard programs: tensors, sizes, constants, order of failure, memory safety."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thruway import native
from thruway.native import fallback, probe


def expectation(t: torch.Tensor, dims=None) -> tuple:
    dims = dims or tuple((0, n) for n in (*t.shape, *t.stride()))
    return type(t), probe.dtype_code(t.dtype), probe.device_code(t.device), t.requires_grad, probe.key_set(t), dims


def tensor_program(core, t: torch.Tensor, dims=None, symbols=0):
    return core.GuardProgram((("local", 0, 0, 0, None, 0), ("tensor", 0, 0, 0, expectation(t, dims), 0)), (0,), symbols)


def function(x):
    return x


def base() -> torch.Tensor:
    return torch.ones(2, 3)


SAME = {
    "itself": base,
    "another": lambda: torch.zeros(2, 3),
    "a slice of the same layout": lambda: torch.ones(4, 3)[1:3],
}
OTHER = {
    "sizes": lambda: torch.ones(3, 2),
    "strides": lambda: torch.ones(3, 2).T,
    "dims": lambda: torch.ones(2, 3, 1),
    "dtype": lambda: torch.ones(2, 3, dtype=torch.float64),
    "device": lambda: torch.ones(2, 3, device="meta"),
    "requires_grad": lambda: torch.ones(2, 3, requires_grad=True),
    "non-leaf": lambda: torch.ones(2, 3, requires_grad=True) * 1,
    "view of a leaf": lambda: torch.ones(4, 3, requires_grad=True)[:2],
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 3), requires_grad=False),
    "negative bit": lambda: torch.ones(2, 3, dtype=torch.complex64).conj().imag,
    "sparse": lambda: torch.ones(2, 3).to_sparse(),
    "inference": lambda: inference_tensor(),
    "a list": lambda: [1],
    "none": lambda: None,
}


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2, 3)


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_tensors_that_fit(core, make):
    program = tensor_program(core, base())
    t = make()
    assert program.check(function, (t,)) == (t,)
    assert program.check(function, (t,)) == (t,)


@pytest.mark.parametrize("make", OTHER.values(), ids=OTHER)
@pytest.mark.parametrize("armed", [False, True])
def test_tensors_that_do_not(core, make, armed):
    program = tensor_program(core, base())
    if armed:
        program.check(function, (base(),))
    seen = make()
    assert program.check(function, (seen,)) is None
    assert program.explain(function, (seen,)) == (0, True, seen) or isinstance(seen, torch.Tensor)


def test_a_tensor_changed_in_place_is_noticed(core):
    program, t = tensor_program(core, base()), base()
    assert program.check(function, (t,))
    t.data = torch.ones(3, 2)
    assert program.check(function, (t,)) is None
    t.data = torch.ones(2, 3)
    assert program.check(function, (t,))
    t.requires_grad_()
    assert program.check(function, (t,)) is None
    t.requires_grad_(False)
    assert program.check(function, (t,))
    t.t_()
    assert program.check(function, (t,)) is None


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_tensor_with_a_tangent_does_not_fit(core):
    program = tensor_program(core, base())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(base(), base())
        assert program.check(function, (base(),)) is not None
        assert program.check(function, (dual,)) is None


def test_more_than_five_dims(core):
    t = torch.ones(1, 2, 1, 3, 1, 2, 1)
    program = tensor_program(core, t)
    assert program.check(function, (t.clone(),))
    assert program.check(function, (t.transpose(1, 3),)) is None


def test_symbols_bind_once_and_relate(core):
    t = torch.ones(4, 6)
    dims = ((2, 0), (2, 1), (3, 1), (0, 1))                       # [s0, s1], strides [s1, 1]
    twice = ((1, 1, 0, 2, 3, 0), 1, (1, 0))                       # s1 * 2 <= s0: postfix pairs
    steps = (("local", 0, 0, 0, None, 0), ("tensor", 0, 0, 0, expectation(t, dims), 0), ("relation", 0, 0, 0, twice, 1))
    program = core.GuardProgram(steps, (), 2)
    assert program.check(function, (torch.ones(4, 2),)) == ()
    assert program.check(function, (torch.ones(6, 3),)) == ()
    assert program.explain(function, (torch.ones(5, 3),))[0] == 1
    assert program.explain(function, (torch.ones(2, 4).T,))[0] == 0


POSTFIX = {2: lambda a, b: a + b, 3: lambda a, b: a * b, 4: lambda a, b: a // b, 5: lambda a, b: a % b, 6: max, 7: min}


@given(st.integers(-50, 50), st.integers(-50, 50), st.sampled_from(sorted(POSTFIX)), st.integers(0, 3))
def test_arithmetic_is_pythons(a, b, operation, operator):
    if b == 0 and operation in (4, 5):
        return
    relation = ((0, a, 0, b, operation, 0), operator, (0, POSTFIX[operation](a, b)))
    steps = (("globals", 0, 0, 0, None, 0), ("relation", 0, 0, 0, relation, 0))
    for core in {native.core(), fallback}:
        assert (core.GuardProgram(steps, ()).check(function, ()) is not None) == (operator in (1, 2))


CONSTANTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.complex_numbers() | st.text(max_size=3) | st.binary(max_size=3)
    | st.just(torch.float32) | st.just(torch.device("cpu")) | st.just(...) | st.builds(slice, st.integers(0, 3), st.none(), st.none()),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    | st.frozensets(st.integers(0, 3) | st.booleans() | st.floats(0, 3), max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(CONSTANTS, CONSTANTS)
def test_equality_is_that_of_the_twin(a, b):
    def equal(core, x, y):
        return core.GuardProgram((("local", 0, 0, 0, None, 0), ("equal", 0, 0, 0, x, 0)), ()).check(function, (y,)) is not None

    assert equal(native.core(), a, a) and equal(fallback, a, a)
    assert equal(native.core(), a, b) == equal(fallback, a, b)


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ((1,), [1]), ((1,), (True,)), (torch.Size([1]), (1,)), ({1}, {True})], ids=repr)
def test_equal_means_same_type_and_bits(core, pair):
    for expected, seen in (pair, pair[::-1]):
        program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("equal", 0, 0, 0, expected, 0)), ())
        assert program.check(function, (expected,)) is not None
        assert program.check(function, (seen,)) is None


def test_no_overlap(core):
    program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("local", 1, 1, 0, None, 0), ("no_overlap", 0, 0, 1, None, 0)), ())
    whole = torch.ones(8)
    for _ in range(2):
        assert program.check(function, (whole[:4], whole[4:])) is not None
        assert program.check(function, (whole, whole[4:])) is None
        assert program.check(function, (whole, whole.clone())) is not None
        assert program.check(function, (whole, whole[2:2])) is not None


def test_same_object(core):
    program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("local", 1, 1, 0, None, 0), ("same", 0, 0, 1, None, 0)), ())
    a, b = [], []
    assert program.check(function, (a, a)) is not None
    assert program.check(function, (a, b)) is None
    program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("local", 1, 1, 0, None, 0), ("not_same", 0, 0, 1, None, 0)), ())
    assert program.check(function, (a, b)) is not None
    assert program.check(function, (a, a)) is None


def test_a_python_predicate_that_raises_does_not_hold(core):
    def predicate(value):
        if value > 3:
            raise KeyError
        return value > 1

    program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("python", 0, 0, 0, predicate, 0)), ())
    assert [program.check(function, (n,)) is not None for n in (1, 2, 3, 4)] == [False, True, True, False]


def test_programs_that_read_out_of_order_are_refused():
    core = native.core()
    for steps in (
        (("attr", 0, 0, 0, "a", 0),), (("local", 1, 0, 0, None, 0),), (("is_type", 0, 0, 0, int, 0),), (("nonsense", 0, 0, 0, None, 0),),
        (("local", 0, 0, 0, None, 0), ("same", 0, 0, 1, None, 0)), (("local", 0, 0, 0, None, 0), ("attr", 1, 0, 0, 3, 0)),
    ):
        with pytest.raises((ValueError, TypeError)):
            core.GuardProgram(steps, ())
    with pytest.raises(ValueError):
        core.GuardProgram((), (0,))


class Tree:
    def __init__(self, depth: int):
        self.value = depth
        if depth:
            self.child = Tree(depth - 1)


def tree_program(core, depth: int):
    steps = [("local", 0, 0, 0, None, 0)]
    for level in range(depth):
        steps.append(("attr", level + 1, level, 0, "child", level))
    steps += [("attr", depth + 1, depth, 0, "value", depth), ("equal", 0, depth + 1, 0, 0, depth)]
    return core.GuardProgram(tuple(steps), (depth,))


def test_a_check_keeps_nothing_alive_and_survives_what_dies(core):
    program = tree_program(core, 4)
    for _ in range(200):
        tree = Tree(4)
        for _ in range(3):
            assert program.check(function, (tree,))
        watch = weakref.ref(tree.child.child)
        tree.child.child = Tree(2)
        assert watch() is None
        assert program.check(function, (tree,)) == (tree.child.child.child.child,)
        watch = weakref.ref(tree)
        del tree
        assert watch() is None


def test_the_fast_pass_is_used_and_forgives_unrelated_writes():
    core = native.core()
    program, tree = tree_program(core, 4), Tree(4)
    for i in range(50):
        tree.counter = i
        assert program.check(function, (tree,))
    stats = program.stats()
    assert stats["full_passes"] <= 5 and stats["fast_hits"] >= 45


def test_reentrant_checks_from_a_property(core):
    class Odd:
        depth = 0

        @property
        def value(self):
            if Odd.depth < 3:
                Odd.depth += 1
                assert program.check(function, (self,)) is not None
                Odd.depth -= 1
            return 7

    program = core.GuardProgram((("local", 0, 0, 0, None, 0), ("attr", 1, 0, 0, "value", 0), ("equal", 0, 1, 0, 7, 0)), (1,))
    for _ in range(5):
        assert program.check(function, (Odd(),)) == (7,)


def test_a_property_that_destroys_what_the_guards_read(core):
    class Evil:
        def __init__(self):
            self.parts = [Tree(1)]

        @property
        def value(self):
            self.parts.clear()
            self.__dict__ = {"parts": [Tree(1)]}
            gc.collect()
            return 7

    steps = (
        ("local", 0, 0, 0, None, 0), ("attr", 1, 0, 0, "parts", 0), ("item", 2, 1, 0, 0, 0), ("attr", 3, 0, 0, "value", 0), ("equal", 0, 3, 0, 7, 0),
        ("attr", 4, 2, 0, "child", 0),
    )
    program = core.GuardProgram(steps, (2, 4))
    evil = Evil()
    for _ in range(4):
        part, child = program.check(function, (evil,))
        assert part.child is child


def test_no_references_leak(core):
    program, value = tensor_program(core, base()), base()
    marker = object()
    missing = core.GuardProgram((("local", 0, 0, 0, None, 0), ("attr", 1, 0, 0, "nothing", 0)), ())
    import sys

    before = sys.getrefcount(value), sys.getrefcount(marker), sys.getrefcount(torch.Tensor)
    for _ in range(2000):
        program.check(function, (value,))
        program.check(function, (marker,))
        missing.check(function, (marker,))
        missing.explain(function, (marker,))
    assert (sys.getrefcount(value), sys.getrefcount(marker), sys.getrefcount(torch.Tensor)) == before
