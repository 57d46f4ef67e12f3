"""Matrix products as kernels of ours on a GPU: their numbers in every form, and that autotuning's choice is kept."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway
from thruway import gpu_compiler
from thruway.codegen.triton_dot import MANY, ProductPrinter
from thruway.pipeline import journal

pytestmark = pytest.mark.gpu


def residual(x, w, b, r):
    return F.silu(F.linear(x, w, b)) + r


def gated(x, w, v, d):
    return F.linear(F.silu(F.linear(x, w)) * F.linear(x, v), d)


def prologue(x, s, w):
    return torch.mm((x.float() * s + 1).to(x.dtype), w)


def normed(x, scale, w, r):
    return F.linear(F.rms_norm(x, (x.shape[-1],), scale), w) + r


def made(*dims, dtype=torch.bfloat16):
    return torch.randn(*dims, device="cuda").to(dtype)


CASES = {
    "residual": (residual, lambda m, n, k: (made(m, k), made(n, k), made(n), made(m, n))),
    "gated": (gated, lambda m, n, k: (made(m, k), made(n, k), made(n, k), made(k, n))),
    "prologue": (prologue, lambda m, n, k: (made(m, k), torch.randn(k, device="cuda"), made(k, n))),
    "normed": (normed, lambda m, n, k: (made(m, k), made(k), made(n, k), made(m, n))),
    "batches": (lambda a, b: torch.bmm(a, b) * 0.5, lambda m, n, k: (made(3, m, k), made(3, k, n))),
}


def wide(args):
    return [a.double() for a in args]


def assert_as_near_as_eager(function, args, got):
    truth, eager = function(*wide(args)), function(*args)
    ours, theirs = ((x.double() - truth).pow(2).mean().sqrt() for x in (got, eager))
    assert ours <= 1.35 * theirs + 1e-6, (ours.item(), theirs.item())
    assert (got.double() - truth).abs().max() <= 1.5 * (eager.double() - truth).abs().max() + 1e-6


@torch.no_grad()
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("shape", [(1, 512, 512), (16, 96, 256), (33, 70, 130), (128, 512, 2048), (300, 264, 64)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_form_in_every_shape(monkeypatch, name, shape, parts):
    function, make = CASES[name]
    args = make(*shape)
    monkeypatch.setattr(gpu_compiler, "parts_of", lambda product: parts if product.inner % parts == 0 else 1)
    compiled = thruway.compile(function)
    for _ in range(3):
        assert_as_near_as_eager(function, args, compiled(*args))


@torch.no_grad()
def test_half_precision_and_every_tile(monkeypatch):
    args = made(70, 256, dtype=torch.float16), made(136, 256, dtype=torch.float16), made(136, dtype=torch.float16), made(70, 136, dtype=torch.float16)
    monkeypatch.setattr(gpu_compiler, "parts_of", lambda product: 1)
    for config in MANY:
        monkeypatch.setattr(ProductPrinter, "guesses", lambda self, config=config: (config,))
        thruway.reset()
        assert_as_near_as_eager(residual, args, thruway.compile(residual)(*args))


@torch.no_grad()
def test_autotuning_measures_products_once():
    args = made(64, 512), made(512, 512), made(512), made(64, 512)
    for again in (False, True):
        thruway.reset()
        compiled = thruway.compile(residual, mode="max-autotune")
        assert_as_near_as_eager(residual, args, compiled(*args))
        noted = [event for event in journal.events if event.kind == "measured" and "Product" in event.detail]
        assert bool(noted) != again


@torch.no_grad()
def test_moments_of_everything_in_one_pass():
    x = torch.randn(1024, 4096, device="cuda") + 100
    compiled = thruway.compile(lambda x: (x.var(), x.mean(), x.std(0)))
    for got, want in zip(compiled(x), (x.double().var(), x.double().mean(), x.double().std(0)), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
