"""Products that a kernel of ours may make: sizes that fit no tile, weights both ways round, views, rows whose number changes, NaN and threads."""

import pytest
import torch

import thruway

SHAPES = [(4, 128, 600), (13, 257, 333), (128, 768, 96), (600, 513, 45), (29, 40, 1031)]


def rnd(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def assert_close(function, *inputs):
    with torch.no_grad():
        got, wanted, wide = thruway.compile(function)(*inputs), function(*inputs), function(*(x.double() for x in inputs))
    error, theirs = (got - wide).abs().max(), (wanted - wide).abs().max()
    assert got.shape == wanted.shape and error <= 4 * theirs + 1e-7, (error, theirs)


@pytest.mark.parametrize("rows, inner, columns", SHAPES)
def test_both_orders_with_and_without_bias(rows, inner, columns):
    x, w, bias = rnd(rows, inner), rnd(inner, columns), rnd(columns)
    assert_close(lambda x, w: x @ w, x, w)
    assert_close(lambda x, w, b: torch.addmm(b, x, w).relu(), x, w, bias)
    assert_close(lambda x, w, b: torch.nn.functional.linear(x, w, b) * 2, x, w.t().contiguous(), bias)
    assert_close(lambda x, w: torch.nn.functional.linear(x, w.t()), x, w)


def test_views_are_read_where_they_lie():
    assert_close(lambda x, w: x[:, 1, 10:] @ w[10:, 5:], rnd(64, 3, 300), rnd(300, 205))


def test_what_is_not_finite_stays_in_its_row_and_column():
    x, w = rnd(40, 300), rnd(300, 70)
    x[3, 7], w[9, 69] = float("nan"), float("inf")
    got, wanted = thruway.compile(lambda x, w: x @ w)(x, w), x @ w
    assert torch.equal(got.isnan(), wanted.isnan()) and torch.equal(got.isinf(), wanted.isinf())


def test_rows_whose_number_changes():
    layer = torch.nn.Linear(300, 333)
    compiled = thruway.compile(layer)
    with torch.no_grad():
        for rows in (128, 7, 1, 64, 1025, 0, 13):
            torch.testing.assert_close(compiled(rnd(rows, 300)), layer(rnd(rows, 300)), rtol=1e-5, atol=1e-5)


def test_two_threads_give_the_bits_of_one():
    x, w, before = rnd(1100, 300), rnd(300, 333), torch.get_num_threads()
    compiled = thruway.compile(lambda x, w: x @ w)
    try:
        torch.set_num_threads(1)
        one = compiled(x, w)
        torch.set_num_threads(2)
        assert torch.equal(compiled(x, w), one)
    finally:
        torch.set_num_threads(before)
