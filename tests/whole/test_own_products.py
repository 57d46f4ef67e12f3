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


@pytest.mark.parametrize("rows, inner, columns", [(24, 128, 96), (33, 514, 72), (64, 256, 40), (128, 2048, 72), (250, 96, 104), (512, 1026, 136)])
def test_pairs_of_bfloat16(rows, inner, columns):
    x, w, bias = (t.bfloat16() for t in (rnd(rows, inner), rnd(columns, inner) / inner ** 0.5, rnd(columns)))
    linear = torch.nn.functional.linear
    for function, inputs in ((linear, (x, w, bias)), (linear, (x, w)), (lambda x, w: linear(x, w).relu() * 2, (x, w)), (lambda x, w: linear(x[:, 2:], w[:, 2:]), (x, w))):
        compiled = thruway.compile(function)
        with torch.no_grad():
            got, wanted, wide = compiled(*inputs), function(*inputs), function(*(t.double() for t in inputs))
        error, theirs = (got - wide).abs(), (wanted - wide).abs()
        assert got.dtype == torch.bfloat16 and got.shape == wanted.shape
        assert error.max() <= 1.5 * theirs.max() and error.pow(2).mean() <= 1.1 * theirs.pow(2).mean()


def test_rounding_and_what_is_not_finite_in_bfloat16():
    x, w = rnd(40, 128).bfloat16(), rnd(64, 128).bfloat16()
    x[3, 7], w[9, 69], w[63, 127] = float("nan"), float("inf"), -float("inf")
    linear = torch.nn.functional.linear
    with torch.no_grad():
        got, wanted = thruway.compile(linear)(x, w), linear(x, w)
    assert torch.equal(got.isnan(), wanted.isnan()) and torch.equal(got.isinf(), wanted.isinf())
    ones, most = torch.eye(64, dtype=torch.bfloat16), torch.arange(-32768, 32768, dtype=torch.int16).view(torch.bfloat16).reshape(1024, 64)
    with torch.no_grad():
        for part in most.split(256):                     # every normal value comes back
            part = torch.where(part.nan_to_num(0, 0, 0).abs() < 2.0 ** -126, 0, part.nan_to_num(0, 0, 0))
            assert torch.equal(thruway.compile(linear)(part, ones), part)


def test_rows_of_bfloat16_whose_number_changes():
    layer = torch.nn.Linear(256, 512).bfloat16()
    compiled = thruway.compile(layer)
    with torch.no_grad():
        for rows in (128, 7, 1, 64, 1025, 0, 33):
            x = rnd(rows, 256).bfloat16()
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-2, atol=1e-2)


class Pixels(torch.nn.Module):
    """A convolution by windows of one pixel, what another gives added, an activation."""

    def __init__(self, channels, out, activation, adds):
        super().__init__()
        self.one, self.three = torch.nn.Conv2d(channels, out, 1), torch.nn.Conv2d(channels, out, 3, padding=1)
        self.activation, self.adds = activation, adds

    def forward(self, x):
        y = self.one(x)
        return self.activation(y + self.three(x) if self.adds else y)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("activation", [torch.nn.Identity(), torch.nn.ReLU(), torch.nn.SiLU()])
@pytest.mark.parametrize("channels, out, side, batch", [(64, 64, 7, 1), (32, 72, 14, 2), (128, 256, 5, 3), (64, 104, 40, 1)])
def test_convolutions_of_pixels_in_bfloat16(channels, out, side, batch, activation, adds):
    torch.manual_seed(channels + side)
    model, x = Pixels(channels, out, activation, adds).bfloat16().eval(), rnd(batch, channels, side, side).bfloat16()
    with torch.no_grad():
        got, wanted = thruway.compile(model)(x), model(x)
        wide = model.double()(x.double())
    error, theirs = (got - wide).abs(), (wanted - wide).abs()
    assert got.shape == wanted.shape and error.max() <= 2 * theirs.max() and error.pow(2).mean() <= 1.2 * theirs.pow(2).mean()
