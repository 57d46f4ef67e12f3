"""Sizes that guards hold equal become one."""

from thruway.core.sizes import add, mul, symbol
from thruway.shapes.equal_sizes import solve, unite
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import Fact, Facts

A, B, C = symbol("a"), symbol("b"), symbol("c")
PLACED = frozenset(one for size in (A, B, C) for (one,) in size.terms)


def solved(left, right):
    return {name.name: value for name, value in solve([Fact(left, "==", right)], PLACED).items()}


def test_one_of_two_equal_sizes_takes_the_place_of_the_other():
    assert solved(A, B) == {"a": B}
    assert solved(B, add(A, 1)) == {"a": add(B, -1)}


def test_a_factor_of_both_sides_says_nothing():
    assert solved(mul(A, 16), mul(B, 16)) == {"a": B}
    assert solved(mul(A, 6), add(mul(B, 3), mul(C, 3))) == {"b": add(mul(A, 2), mul(C, -1))}
    assert solved(mul(A, 6), add(mul(B, 6), 12)) == {"a": add(B, 2)}


def test_what_has_no_solution_in_whole_numbers_stays():
    assert solved(mul(A, 6), mul(B, 4)) == {}
    assert solved(mul(A, 16), add(mul(B, 16), 8)) == {}
    assert solved(mul(A, B), mul(A, C)) == {}                # a may be 0


def test_metadata_is_written_in_the_sizes_that_stay():
    metas = [TensorMeta((2, size, 16), (mul(size, 16), 16, 1), "float32", "cpu") for size in (A, B)]
    facts = Facts({"a": 4, "b": 4})
    (one, other), _ = unite(metas, Facts({"a": 4, "b": 4}, known=facts.known | {Fact(mul(A, 256), "==", mul(B, 256))}))
    assert one.sizes == other.sizes and one.strides == other.strides
