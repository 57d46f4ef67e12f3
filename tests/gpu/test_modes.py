"""Autocast, default devices, custom autograd functions and transforms on a GPU, inside and around compiled code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thruway
from thruway.pipeline import journal

pytestmark = pytest.mark.gpu


class Product(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad @ b.t(), a.t() @ grad


def mixed(a, b):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        m = Product.apply(a, b)
        s = torch.softmax(m, -1)
        n = F.layer_norm(a @ b, (8,)) + F.cosine_similarity(a, b)[:, None]
        with torch.autocast("cuda", enabled=False):
            k = n.float() @ b
    return m, s, n, k, torch.einsum("ij,jk->ik", a, b)


def made(x):
    return x + torch.tensor([1.0, -1.0]) + torch.arange(2) * torch.ones(2), torch.get_default_device().type, torch.zeros(1, device="cpu")


def seeded(x):
    torch.manual_seed(5)
    torch.cuda.manual_seed(5)
    return x + torch.rand(2, device=x.device)


def per_sample(w, x):
    return torch.vmap(torch.func.grad(lambda w, x: (x @ w).tanh().sum()), in_dims=(None, 0))(w, x)


def alike(expected, found):
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, torch.Tensor):
            assert (one.dtype, one.device, one.shape, one.requires_grad) == (other.dtype, other.device, other.shape, other.requires_grad)
            torch.testing.assert_close(other.float(), one.float(), rtol=3e-2, atol=3e-2)
        else:
            assert one == other


def count_graphs(function, *args):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward
    thruway.compile(function, backend=backend)(*args)
    return len(graphs)


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    assert not journal.of_kind("bug"), journal.of_kind("bug")


@pytest.mark.parametrize("grad", [False, True])
def test_autocast_with_a_custom_function(grad):
    a = torch.linspace(-1, 1, 64, device="cuda").reshape(8, 8)
    b = a.flip(0).clone()
    a.requires_grad_(grad), b.requires_grad_(grad)
    compiled = thruway.compile(mixed)
    assert count_graphs(mixed, a, b) == 1
    for _ in range(4):
        wanted, got = mixed(a, b), compiled(a, b)
        alike(wanted, got)
        if grad:
            alike(torch.autograd.grad(sum(one.float().sum() for one in wanted), (a, b)), torch.autograd.grad(sum(one.float().sum() for one in got), (a, b)))
    assert not torch.is_autocast_enabled("cuda")


@torch.no_grad()
def test_under_autocast_around():
    layer, x = torch.nn.Linear(8, 8, device="cuda"), torch.randn(4, 8, device="cuda")
    compiled = thruway.compile(lambda x: layer(x).softmax(-1) + layer(x).sum())
    for _ in range(4):
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cuda", dtype):
                alike([layer(x).softmax(-1) + layer(x).sum()], [compiled(x)])


def test_default_devices():
    x = torch.ones(2, device="cuda")
    compiled = thruway.compile(made)
    try:
        torch.set_default_device("cuda")
        assert count_graphs(made, x) == 1
        for _ in range(4):
            alike(made(x), compiled(x))
    finally:
        torch.set_default_device(None)
    with torch.device("cuda"):
        alike(made(x), compiled(x))
    alike(made(x.cpu()), compiled(x.cpu()))


def test_seeds_set_inside_take_effect():
    x = torch.ones(2, device="cuda")
    compiled = thruway.compile(seeded)
    first = compiled(x)
    torch.rand(3, device="cuda")
    assert torch.equal(first, compiled(x)) and torch.equal(first, seeded(x))


@torch.no_grad()
def test_transforms():
    w, x = torch.randn(8, 3, device="cuda"), torch.randn(5, 8, device="cuda")
    compiled = thruway.compile(per_sample)
    assert count_graphs(per_sample, w, x) == 1
    for _ in range(4):
        alike([per_sample(w, x)], [compiled(w, x)])
