"""Size expressions against plain integers: whatever is rewritten keeps its value at every point of its ranges."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thruway.core import sizes
from thruway.core.errors import Unsupported
from thruway.core.sizes import Size, Symbol, add, bounds, evaluate, floordiv, mod, mul, simplify, substitute, symbol

NAMES = ("i", "j", "k")
EXTENTS = st.tuples(*[st.integers(1, 5)] * len(NAMES))


def leaf_values():
    return st.one_of(st.sampled_from(NAMES), st.integers(-6, 12))


def trees():
    leaves = leaf_values()
    return st.recursive(leaves, lambda inner: st.one_of(
        st.tuples(st.sampled_from(("add", "sub", "mul")), inner, inner),
        st.tuples(st.sampled_from(("floordiv", "mod")), inner, st.integers(1, 12)),
        st.tuples(st.sampled_from(("max", "min")), inner, inner)), max_leaves=8)


def build(tree, ranges):
    match tree:
        case int():
            return tree
        case str():
            return symbol(tree)
        case (name, left, right):
            a, b = build(left, ranges), build(right, ranges)
            match name:
                case "add":
                    return add(a, b)
                case "sub":
                    return add(a, mul(b, -1))
                case "mul":
                    return mul(a, b)
                case "floordiv":
                    return floordiv(a, b, ranges)
                case "mod":
                    return mod(a, b, ranges)
                case "max":
                    return sizes.maximum(a, b)
                case _:
                    return sizes.minimum(a, b)


def brute(tree, values):
    match tree:
        case int():
            return tree
        case str():
            return values[tree]
        case (name, left, right):
            a, b = brute(left, values), brute(right, values)
            return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "floordiv": lambda: a // b, "mod": lambda: a % b,
                    "max": lambda: max(a, b), "min": lambda: min(a, b)}[name]()


def points(extents):
    for point in itertools.product(*[range(n) for n in extents]):
        yield dict(zip(NAMES, point))


def ranges_for(extents):
    return {Symbol(name): (0, n - 1) for name, n in zip(NAMES, extents)}


@settings(max_examples=400, deadline=None)
@given(trees(), EXTENTS)
def test_built_with_ranges_equals_brute_force(tree, extents):
    ranges = ranges_for(extents)
    size = build(tree, ranges)
    for values in points(extents):
        assert evaluate(size, values) == brute(tree, values)


@settings(max_examples=300, deadline=None)
@given(trees(), EXTENTS)
def test_simplify_keeps_the_value(tree, extents):
    size = simplify(build(tree, None), ranges_for(extents))
    for values in points(extents):
        assert evaluate(size, values) == brute(tree, values)


@settings(max_examples=300, deadline=None)
@given(trees(), EXTENTS)
def test_bounds_hold(tree, extents):
    ranges = ranges_for(extents)
    low, high = bounds(build(tree, ranges), ranges)
    for values in points(extents):
        value = brute(tree, values)
        assert low is None or low <= value
        assert high is None or value <= high


@settings(max_examples=200, deadline=None)
@given(trees(), trees(), EXTENTS)
def test_substitution_is_composition(outer, inner, extents):
    whole = substitute(build(outer, None), {Symbol("i"): build(inner, None)})
    for values in points(extents):
        replaced = brute(inner, values)
        if replaced >= 0:           # as symbols are
            assert evaluate(whole, values) == brute(outer, {**values, "i": replaced})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_equal_polynomials_are_equal(coefficients, others):
    i, j = symbol("i"), symbol("j")
    terms = [i * c + j * d + i * j for c, d in zip(coefficients, others)]
    forward, backward = 0, 0
    for term in terms:
        forward = add(forward, term)
    for term in reversed(terms):
        backward = add(term, backward)
    assert forward == backward and hash(forward) == hash(backward)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_symbolic_extents_divide_as_numbers_do(n, m, rows):
    """(i*n*m + j*m + k) split by n*m, m and n with j < n, k < m gives back i, j, k."""
    i, j, k, ns, ms = (symbol(x) for x in ("i", "j", "k", "n", "m"))
    ranges = {Symbol("j"): (0, ns - 1), Symbol("k"): (0, ms - 1)}
    flat = i * ns * ms + j * ms + k
    assert floordiv(flat, ns * ms, ranges) == i
    assert mod(flat, ms, ranges) == k
    assert mod(floordiv(flat, ms, ranges), ns, ranges) == j
    values = {"i": rows, "j": n - 1, "k": m - 1, "n": n, "m": m}
    assert evaluate(flat, values) == rows * n * m + n * m - 1


@pytest.mark.parametrize("text, got", [
    ("(4*i + j) // 4", floordiv(symbol("i") * 4 + symbol("j"), 4, {Symbol("j"): (0, 3)}) == symbol("i")),
    ("(6*i + 3) // 4 keeps a small rest", evaluate(floordiv(symbol("i") * 6 + 3, 4), {"i": 5}) == 33 // 4),
    ("4*(x // 4) + x % 4", substitute(floordiv(symbol("i"), 4) * 4 + mod(symbol("i"), 4), {}) == symbol("i")),
    ("(x // 4) // 3", floordiv(floordiv(symbol("i"), 4), 3) == floordiv(symbol("i"), 12)),
    ("(x % 12) % 4", mod(mod(symbol("i"), 12), 4) == mod(symbol("i"), 4)),
    ("(8*i + 4*j) // 12", floordiv(symbol("i") * 8 + symbol("j") * 4, 12) == floordiv(symbol("i") * 2 + symbol("j"), 3)),
    ("(n+1)*i + j over n+1", floordiv((symbol("n") + 1) * symbol("i") + symbol("j"), symbol("n") + 1, {Symbol("j"): (0, symbol("n"))}) == symbol("i")),
])
def test_known_forms(text, got):
    assert got, text


def test_three_way_split_comes_back_together():
    flat = symbol("f")
    parts = floordiv(flat, 12) * 12 + mod(floordiv(flat, 4), 3) * 4 + mod(flat, 4)
    assert simplify(parts, {}) == flat


def test_truth_of_a_symbol_is_an_error():
    with pytest.raises(TypeError, match="not known"):
        bool(symbol("i"))


def test_text_reads_back():
    size = floordiv(symbol("i") * 3 + 1, 4) - mod(symbol("j"), 5) * 2
    assert isinstance(size, Size)
    assert eval(str(size), {"i": 7, "j": 9}) == evaluate(size, {"i": 7, "j": 9})


@pytest.mark.parametrize("divide", [floordiv, mod])
@pytest.mark.parametrize("size", [0, 5, symbol("s0"), symbol("s0") * 2 + 1])
def test_a_division_by_zero_is_refused(divide, size):
    with pytest.raises(Unsupported, match="divided by 0"):
        divide(size, 0)
    with pytest.raises(Unsupported, match="divided by 0"):
        substitute(divide(size + 1, symbol("s1")), {Symbol("s1"): 0})
