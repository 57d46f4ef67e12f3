"""Sizes, named tuples, and tuples as members and keys that the compiled function finds outside: equal to those made inside, in their own order and class."""

from typing import NamedTuple

import pytest
import torch
from capture.beside_eager import check

HELD = torch.Size([4, 2])
MEMBERS = {(0, 1), (1, 0), (3, 3), torch.Size([4, 2])}
BY_SIZE = {torch.Size([4, 2]): 5, (1, 2): 6, 1: 7}
X = torch.arange(8.0).reshape(4, 2)


class Expecting(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def forward(self, x, other=torch.Size()):
        return (x * 2 if x.shape == self.shape else x * 3), x.shape[2:] != other, self.shape[1:] == x.shape[1:], other == self.shape[:0]


@pytest.mark.parametrize("shape", [X.shape, torch.Size([2, 4]), (4, 2), torch.Size([])])
def test_a_size_that_a_module_keeps(shape):
    check(Expecting(shape), X, graphs=1)


def sums_and_products(x):
    s = x.shape
    return x + 1, HELD + (1,), (1,) + s, s * 2, 2 * HELD, HELD + s, (s + (3,)).numel(), s[:1], HELD[1:], x.view(HELD), HELD == (4, 2), HELD < (5,), [*HELD]


def lookups(x):
    s = x.shape
    return x + 1, s in MEMBERS, (1, 0) in MEMBERS, (1, 1) in MEMBERS, BY_SIZE[s], BY_SIZE.get((2, 4)), [key == s for key in BY_SIZE], s in [HELD, None]


def order_of_sets(x):
    made = set()
    for pair in [(1, 2), (0, 1), (5, 5), (0, 0), (1, 2)]:
        made.add(pair)
    return x + 1, list(MEMBERS), list(made), len(MEMBERS | made), sorted(made)


def keys_of_their_own_type(x):
    return BY_SIZE[1.0] * x, BY_SIZE[True], [type(key) for key in BY_SIZE], list(BY_SIZE)


@pytest.mark.parametrize("function", [sums_and_products, lookups, order_of_sets, keys_of_their_own_type])
def test_sizes_and_tuples(function):
    check(function, X, graphs=1)


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor

    def __getitem__(self, index):
        return Pair(self.a[index], self.b[index])

    def __add__(self, other):
        return Pair(self.a + other.a, self.b)

    def __bool__(self):
        return False


class Plain(NamedTuple):
    a: int
    b: int = 2

    def twice(self):
        return self.a * 2

    @property
    def both(self):
        return self.a + self.b


class Named(NamedTuple):
    a: int

    def __repr__(self):
        return f"<{self.a}>"

    def __eq__(self, other):
        return True

    __hash__ = tuple.__hash__


def own_protocols(pair):
    added = pair[0] + pair[1]
    a, b = added._replace(b=pair.a.sum())
    return added, a, b, bool(pair), len(pair), type(added).__name__, added.a


def own_text_and_equality(x):
    return x + 1, repr(Named(1)), f"{Named(2)}", Named(1) == Named(2)


def plain_ones(x):
    return x * Plain(3).both, Plain(1).twice(), Plain(1) == (1, 2), Plain(1)._replace(b=5), Plain(2)[0], Plain(1) < Plain(2), str(Plain(4))


def test_named_tuples_with_protocols_of_their_own():
    check(own_protocols, Pair(X, X + 1), graphs=1)
    check(own_text_and_equality, X, graphs=1)


def test_named_tuples_without():
    check(plain_ones, X, graphs=1)


@pytest.mark.parametrize("mean, std", [(torch.float16, torch.float32), (torch.float32, torch.float64), (torch.bfloat16, torch.float16)])
def test_normal_draws_in_the_dtype_of_its_mean(mean, std):
    def draw(mean, std):
        drawn = torch.normal(mean.t(), std)
        return drawn, drawn * 2, drawn.dtype, drawn.stride(), torch.normal(mean.t(), 2.0).stride(), torch.normal(0.0, std.t()) + 1
    check(draw, torch.zeros(3, 4, dtype=mean), torch.ones(4, 3, dtype=std), graphs=1)
