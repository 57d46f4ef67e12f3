"""TraceTensor: torch code over metadata, under every mode, and what it must refuse."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F
from thruway.core.errors import Unsupported
from thruway.shapes.meta import TensorMeta
from thruway.shapes.trace_tensor import TraceMode, TraceTensor, from_meta, from_tensor, meta_of


def trace(*shape, dtype="float32", device="cpu", requires_grad=False) -> TraceTensor:
    return from_meta(TensorMeta(shape, torch.empty(shape, device="meta").stride(), dtype, device, requires_grad))


def test_metadata_is_that_of_the_tensor():
    t = torch.ones(3, 4, dtype=torch.bfloat16).t()[1:]
    made = from_tensor(t)
    assert isinstance(made, torch.Tensor) and made.meta == meta_of(t)
    assert (made.shape, made.stride(), made.dtype, made.storage_offset(), made.is_contiguous()) == (t.shape, t.stride(), t.dtype, 1, False)


def test_requires_grad_and_grad_fn():
    w = trace(3, 3, requires_grad=True)
    y = F.linear(trace(2, 3), w).relu()
    assert y.requires_grad and y.grad_fn is not None and y.meta.requires_grad
    with torch.no_grad():
        assert not (w * 2).meta.requires_grad
    with torch.inference_mode():
        assert not F.linear(trace(2, 3), w).requires_grad
    assert y.detach().meta.requires_grad is False


def test_views_share_their_root():
    x = trace(4, 6)
    assert x.view(24).root is x and x.t()[0].root is x and all(part.root is x for part in x.chunk(2))
    assert (x + 1).root is not x and x.reshape(6, 4).root is x and x.t().reshape(24).root is not x


def test_in_place_gives_the_tensor_itself():
    x = trace(4, 6)
    assert x.add_(1) is x and x.view(24).relu_().root is x


def test_metadata_changes_show():
    x = trace(4, 6)
    x.t_()
    assert x.meta.sizes == (6, 4) == tuple(x.shape) and x.meta.strides == (1, 6)
    x.unsqueeze_(0)
    assert x.meta.sizes == (1, 6, 4)
    x.resize_(3, 3)
    assert x.meta.sizes == (3, 3) and (x + 1).meta.sizes == (3, 3)


def test_out_is_resized():
    out = trace(0)
    assert torch.add(trace(2, 3), 1, out=out) is out
    assert out.meta.sizes == (2, 3) == tuple(out.shape)


def test_factories_under_the_mode():
    with TraceMode():
        for made in (torch.zeros(2, 3), torch.arange(6), torch.randn(2), torch.tensor([1.0, 2.0]), torch.full((2,), 3), torch.tensor(2)):
            assert type(made) is TraceTensor
        assert torch.tensor([1, 2]).meta.dtype == "int64"
        assert (trace(2) + torch.tensor([1.0, 2.0])).meta.sizes == (2,)


def test_cuda_without_a_gpu():
    with TraceMode():
        x = torch.zeros(2, 3, device="cuda")
        assert x.meta.device == "cuda:0" and (x + torch.tensor(1.0)).meta.device == "cuda:0"
        assert torch.tensor([1.0], device="cuda").meta.device == "cuda:0"
        assert F.linear(x, trace(4, 3, device="cuda:0")).cpu().meta.device == "cpu"
    assert trace(2, device="cuda:0").relu().device.type == "cuda"


@pytest.mark.parametrize("ask", [lambda x: x.sum().item(), lambda x: bool(x.sum() > 0), lambda x: x.nonzero(), lambda x: x[x > 0],
                                 lambda x: torch.unique(x), lambda x: torch.equal(x, x), lambda x: float(x[0, 0])])
def test_elements_are_refused(ask):
    with pytest.raises(Unsupported) as refusal, TraceMode():
        ask(trace(2, 3))
    assert refusal.value.reason.code == "TW301"


def test_ill_shaped_calls_are_refused():
    for call in (lambda: trace(2) + trace(3), lambda: trace(2, 3) @ trace(2, 3), lambda: trace(2, 3).view(5), lambda: trace(2).sum(3)):
        with pytest.raises((Unsupported, IndexError)):
            call()


def test_modules_and_losses():
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    params = {n: from_tensor(p.detach()) for n, p in model.named_parameters()}
    out = torch.func.functional_call(model, params, (trace(2, 5, 8),))
    assert out.meta.sizes == (2, 5, 8)
    x = trace(4, 10, requires_grad=True)
    assert F.cross_entropy(x, trace(4, dtype="int64")).meta == TensorMeta((), (), "float32", "cpu", True)


def test_an_operator_costs_little():
    x, y = trace(4, 4), trace(4, 4)
    with torch.no_grad(), TraceMode():
        best = float("inf")
        for _ in range(5):
            start = time.process_time()
            for _ in range(200):
                x + y
            best = min(best, (time.process_time() - start) / 200)
    assert best < 60e-6         # 10 µs on a quiet machine; the bound leaves room for a loaded one


PROGRAM = """
import sys, torch
import torch.nn as nn, torch.nn.functional as F
{build}
before = set(sys.modules)
from thruway.graph.retrace import retrace_callable
from thruway.shapes.trace_tensor import meta_of
with torch.no_grad():
    retrace_callable(fn, [meta_of(a) for a in args])
heavy = [m for m in set(sys.modules) - before if m.split(".")[0] == "sympy" or m.startswith(
    ("torch._dynamo", "torch._inductor", "torch._functorch.aot", "torch._refs", "torch._decomp"))]
print(sorted(heavy)[:5])
"""
WORKS = {
    "tiny": "fn = lambda x: x.sin() + x.cos()\nargs = [torch.ones(16)]",
    "encoder": "fn = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).eval()\nargs = [torch.ones(2, 8, 64)]",
    "convolutions": "fn = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), "
                    "nn.Flatten(), nn.Linear(8, 5)).eval()\nargs = [torch.ones(2, 3, 32, 32)]",
    "decoder": '''
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(32, 16); self.qkv = nn.Linear(16, 48); self.register_buffer("k", torch.zeros(2, 1, 2, 8, 8))
    def forward(self, ids, pos):
        x = self.emb(ids); b, t, d = x.shape
        x = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)
        q, k, v = self.qkv(x).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        a1, a2 = q.chunk(2, -1)
        q = torch.cat((-a2, a1), -1) * torch.arange(8).float().cos()
        self.k[0].index_copy_(2, pos, k[:, :, :1])
        s = (q @ self.k[0].transpose(-1, -2)).masked_fill(~torch.ones(t, 8, dtype=torch.bool).tril(), float("-inf"))
        return F.silu(s.float().softmax(-1).to(q.dtype) @ self.k[0]).transpose(1, 2).reshape(b, t, d).cumsum(-1)
fn = Block().eval()
args = [torch.zeros(1, 4, dtype=torch.long), torch.tensor([3])]''',
}


@pytest.mark.parametrize("work", sorted(WORKS))
def test_nothing_heavy_is_imported(work):
    out = subprocess.run([sys.executable, "-c", PROGRAM.format(build=WORKS[work])], capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stdout + out.stderr[-2000:]
