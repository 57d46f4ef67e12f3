"""Attention in bfloat16 that a kernel of ours may make: sizes that fit no tile or block, shared heads, views, NaN, numbers that change, threads."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

import thruway


def rnd(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes) + seed)).bfloat16()


def operands(batch, heads, shared, queries, keys, width):
    """As linear layers leave them: heads beside each other in a row."""
    sizes = ((heads, queries, 0), (shared, keys, 1), (shared, keys, 2))
    return tuple(rnd(batch, rows, count * width, seed=seed).view(batch, rows, count, width).transpose(1, 2) for count, rows, seed in sizes)


def assert_close(function, *inputs):
    with torch.no_grad():
        got, wanted, wide = thruway.compile(function)(*inputs), function(*inputs), function(*(t.double() for t in inputs))
    error, theirs = (got - wide).abs(), (wanted - wide).abs()
    assert got.dtype == torch.bfloat16 and got.shape == wanted.shape and got.stride() == wanted.stride()
    assert error.max() <= 2 * theirs.max() and error.pow(2).mean() <= 1.2 * theirs.pow(2).mean()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [
    (1, 2, 2, 256, 256, 64), (2, 4, 2, 100, 100, 32), (1, 3, 3, 197, 197, 64), (1, 2, 2, 77, 301, 80), (1, 2, 1, 300, 50, 8), (1, 1, 1, 17, 600, 128),
])
def test_shapes(sizes, causal):
    shares = sizes[1] != sizes[2]
    assert_close(lambda q, k, v: attention(q, k, v, is_causal=causal, enable_gqa=shares), *operands(*sizes))
    assert_close(lambda q, k, v: attention(q * 3, k.contiguous(), v.flip(2), is_causal=causal, scale=0.3, enable_gqa=shares) * 2, *operands(*sizes))


@pytest.mark.parametrize("causal", [False, True])
def test_written_out(causal):
    def written(q, k, v):
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
        return (scores.float().softmax(-1).to(q.dtype) @ v).transpose(1, 2)
    assert_close(written, *operands(2, 3, 3, 96, 96, 64))


def test_other_masks_stay():
    keep = torch.ones(64, 64, dtype=torch.bool).triu(-9).tril(3)
    assert_close(lambda q, k, v: attention(q, k, v, attn_mask=keep), *operands(1, 2, 2, 64, 64, 32))
    assert_close(lambda q, k, v: (q @ k.mT).masked_fill(~keep, -math.inf).softmax(-1) @ v, *operands(1, 2, 2, 64, 64, 32))


def test_large_and_equal_scores():
    q, k, v = operands(1, 2, 2, 64, 512, 64)
    assert_close(attention, q * 100, k, v)
    assert_close(attention, q * 0, k, v)


def test_nan_stays_in_its_row():
    q, k, v = operands(1, 2, 2, 64, 64, 32)
    q = q.clone()
    q[0, 1, 7, 3] = math.nan
    with torch.no_grad():
        assert torch.equal(thruway.compile(attention)(q, k, v).isnan(), attention(q, k, v).isnan())


def test_numbers_that_change():
    compiled = thruway.compile(lambda q, k, v: attention(q, k, v, is_causal=True))
    with torch.no_grad():
        for batch, queries in ((1, 64), (3, 64), (2, 33), (1, 1), (1, 130), (2, 7)):
            q, k, v = operands(batch, 2, 2, queries, 64, 32)
            torch.testing.assert_close(compiled(q, k, v), attention(q, k, v, is_causal=True), rtol=2e-2, atol=2e-2)


def test_two_threads_give_the_bits_of_one():
    inputs, before = operands(2, 4, 4, 200, 200, 64), torch.get_num_threads()
    compiled = thruway.compile(attention)
    try:
        torch.set_num_threads(1)
        one = compiled(*inputs)
        torch.set_num_threads(2)
        assert torch.equal(compiled(*inputs), one)
    finally:
        torch.set_num_threads(before)
