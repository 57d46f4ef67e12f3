"""bfloat16 and float16 to the bit: numbers that eager rounds before it computes, steps that it rounds in between, the next number."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway

pytestmark = pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"}, reason="eager's kernels are others here")
DTYPES = (torch.bfloat16, torch.float16)
NUMBERS = (1.7, 0.1, 3, -0.7)
SPECIAL = (1.7, -1.7, 0.1, 0.3, 0.7, 3.0, 100.0, 0.0, -0.0, 1e-3, float("inf"), float("-inf"), float("nan"))


def values(count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(seed)) * torch.tensor([0.1, 1.0, 30.0]).repeat(count)[:count]
    return torch.cat([torch.tensor(SPECIAL), drawn])[:count].to(dtype) if count > 30 else drawn.to(dtype)


def assert_bits(function, *arguments) -> None:
    expected, found = function(*arguments), thruway.compile(function, fullgraph=True)(*arguments)
    for k, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert one.dtype == other.dtype
        if one.is_floating_point():
            one, other = (x.masked_fill(x.isnan(), torch.nan).view(torch.int16) for x in (one, other))
        assert torch.equal(one, other), f"result {k}: {(one != other).sum()} of {one.numel()} differ"


def with_a_number(x, s):
    zero_dim = torch.tensor(s)
    return (x + s, s - x, x * s, x / s, s / x, x % s, s % x, x // s, s // x, torch.div(x, s, rounding_mode="trunc"), torch.fmod(x, s), x == s, x > s,
            torch.xlogy(x, s), torch.xlogy(s, x), torch.xlogy(x, zero_dim), torch.copysign(x, s), torch.where(x > 0, x, s), x.clamp(-0.1, s),
            x.masked_fill(x > 1, s), F.threshold(x, 0.1, s), F.hardshrink(x, abs(s)), F.softshrink(x, abs(s)), F.leaky_relu(x, s), torch.lerp(x, x * 2, s),
            zero_dim // x, torch.fmod(x, zero_dim), torch.maximum(x, zero_dim), torch.hypot(zero_dim, x), x < zero_dim, x.nan_to_num(s, 0.3, s))


def scaled(x, s):
    return tuple(call for alpha in (0.3, 2, -1.7) for call in (
        torch.add(x, s, alpha=alpha), torch.sub(x, s, alpha=alpha), torch.rsub(x, s, alpha=alpha), torch.add(x, x.flip(0), alpha=alpha),
        torch.add(x, torch.tensor(s), alpha=alpha), torch.sub(torch.tensor(s), x, alpha=alpha), x.clone().add_(s, alpha=alpha)))


def of_two(x, y):
    return (torch.xlogy(x, y), x // y, torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), torch.nextafter(x, y),
            x.clone().nextafter_(y), torch.add(x, y, alpha=0.3), torch.rsub(x, y, alpha=0.3), x // y[:1], torch.div(x, y[:1], rounding_mode="trunc"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("function", (with_a_number, scaled))
def test_numbers(function, number, dtype):
    assert_bits(function, values(256, dtype), number)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", (1, 5, 31, 32, 45, 200))
def test_ends_of_rows(count, dtype):
    assert_bits(scaled, values(count, dtype), 1.7)
    assert_bits(of_two, values(count, dtype), values(count, dtype, seed=1).flip(0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of_x, of_y", (
    (lambda x: x, lambda y: y), (lambda x: x, lambda y: y.view(39, 37).t()), (lambda x: x[:, :30], lambda y: y[:, 5:35]),
    (lambda x: x[:, ::2], lambda y: y[:, ::2]), (lambda x: x, lambda y: y[:1]), (lambda x: x, lambda y: y[:, :1]), (lambda x: x[:, :1], lambda y: y)))
def test_layouts(of_x, of_y, dtype):
    x, y = (values(37 * 39, dtype, seed).view(37, 39) for seed in (0, 1))
    assert_bits(lambda x, y: (torch.add(x, y, alpha=0.3), torch.rsub(y, x, alpha=-1.7), x // y, torch.add(x, 0.7, alpha=0.3)), of_x(x), of_y(y))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_the_next_of_wider_numbers_is_a_loop(dtype):
    x = torch.tensor([1.7, -1.7, 0.0, -0.0, 1e-3, float("inf")], dtype=dtype)
    f = thruway.compile(torch.nextafter, fullgraph=True)
    assert torch.equal(f(x, x + 1), torch.nextafter(x, x + 1)) and torch.equal(f(x, -x), torch.nextafter(x, -x))


MOVES = {
    "looked up": lambda x, i: F.embedding(i, x), "selected": lambda x, i: x.index_select(0, i[0]), "gathered": lambda x, i: x[i], "turned": lambda x, i: x.flip(1),
    "joined": lambda x, i: torch.cat([x, x[:3]]), "padded": lambda x, i: F.pad(x, (3, 5)), "chosen": lambda x, i: torch.where(x[:, :1] > 0, x, x.flip(0)),
    "sliced": lambda x, i: x[1:, 4:20], "rolled": lambda x, i: x.roll(1, 1),
}
ROWS_OF = {
    "normed": lambda y: F.layer_norm(y, y.shape[-1:]), "softmaxed": lambda y: y.softmax(-1), "twice": lambda y: F.layer_norm(F.layer_norm(y, y.shape[-1:]), y.shape[-1:]),
    "centred": lambda y: y - y.mean(-1, keepdim=True), "scaled": lambda y: y / y.abs().amax(-1, keepdim=True), "kept": lambda y: (y, y.softmax(-1), y * 1),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", ROWS_OF)
@pytest.mark.parametrize("move", MOVES)
def test_rows_of_what_is_only_moved(move, rows, dtype):
    x, i = torch.linspace(-3, 4, 7 * 32).reshape(7, 32).sin().to(dtype), torch.tensor([[3, 0, 6], [1, 1, 5]])

    def f(x, i):
        return ROWS_OF[rows](MOVES[move](x, i))

    with torch.no_grad():
        for mine, eagers in zip(torch.utils._pytree.tree_leaves(thruway.compile(f)(x, i)), torch.utils._pytree.tree_leaves(f(x, i)), strict=True):
            torch.testing.assert_close(mine, eagers, rtol=1e-2, atol=1e-2)
