"""Small models written the way people write them, and graphs made symbolic in their batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from thruway.core.sizes import symbol
from thruway.shapes.meta import TensorMeta

BATCH = 101                      # a prime that no other size is a multiple of: what it divides is the batch


def pointwise(x, y):
    z = torch.sigmoid(x) * y + x.tanh()
    return F.gelu(z - z.mean(-1, keepdim=True)) * torch.rsqrt(z.var(-1, keepdim=True) + 1e-5)


class Block(nn.Module):
    """Rotary, rms norm, masked softmax attention and SwiGLU; with a cache, one token written in place."""

    def __init__(self, d: int, h: int):
        super().__init__()
        self.h = h
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.g, self.u, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.n1, self.n2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))

    def rms(self, x, w):
        v = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(v + 1e-6)).to(x.dtype) * w

    def rotated(self, a, cos, sin):
        a1, a2 = a.chunk(2, -1)
        return a * cos + torch.cat((-a2, a1), -1) * sin

    def forward(self, x, cos, sin, hidden, cache=None, position=None):
        b, t, d = x.shape
        q, k, v = self.qkv(self.rms(x, self.n1)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        if cache is not None:
            cache[0].index_copy_(2, position, k)
            cache[1].index_copy_(2, position, v)
            k, v = cache[0], cache[1]
        s = ((q @ k.transpose(-1, -2)) / (d // self.h) ** 0.5).masked_fill(hidden, float("-inf"))
        y = (s.float().softmax(-1).to(q.dtype) @ v).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(y)
        z = self.rms(x, self.n2)
        return x + self.down(F.silu(self.g(z)) * self.u(z))


class Decoder(nn.Module):
    def __init__(self, d: int = 32, h: int = 4, blocks: int = 2, vocab: int = 64):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab, bias=False)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(blocks))
        self.half = d // h

    def angles(self, positions, dtype):
        inverse = 1.0 / (10000 ** (torch.arange(0, self.half, 2).float() / self.half))
        angles = positions.float()[:, None] * inverse
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, ids):
        x = self.emb(ids)
        cos, sin = self.angles(torch.arange(ids.shape[1]), x.dtype)
        hidden = ~torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        for block in self.blocks:
            x = block(x, cos, sin, hidden)
        return self.head(x)


class Decode(nn.Module):
    """One token against a cache that is an argument, then a sample by inverse cumulative distribution."""

    def __init__(self):
        super().__init__()
        self.net = Decoder()

    def forward(self, ids, position, u, cache):
        x = self.net.emb(ids)
        cos, sin = self.net.angles(position, x.dtype)
        hidden = ~(torch.arange(cache.shape[4]) <= position[:, None])
        for block, slot in zip(self.net.blocks, cache):
            x = block(x, cos, sin, hidden, slot, position)
        p = (self.net.head(x[:, -1]).float() / 0.8).softmax(-1).cumsum(-1)
        return (p < u).sum(-1, keepdim=True), p


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)), inplace=True)
        x = F.relu_(self.b2(self.c2(x)) + x)
        x = F.max_pool2d(x, 2)
        return self.out(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(32), nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))


def works(dtype: torch.dtype) -> dict:
    """name → (callable, function from a batch to its arguments)."""
    torch.manual_seed(0)

    def ready(module):
        return module.to(dtype).eval()
    return {
        "pointwise": (pointwise, lambda b: (torch.randn(b, 6, 16, dtype=dtype), torch.randn(b, 6, 16, dtype=dtype))),
        "decoder": (ready(Decoder()), lambda b: (torch.randint(0, 64, (b, 9)),)),
        "decode": (ready(Decode()), lambda b: (torch.randint(0, 64, (b, 1)), torch.tensor([5]), torch.rand(b, 1),
                                               torch.randn(2, 2, b, 4, 16, 8, dtype=dtype))),
        "convolutions": (ready(Convolutions()), lambda b: (torch.randn(b, 3, 8, 8, dtype=dtype),)),
        "encoder": (ready(Encoder()), lambda b: (torch.randn(b, 7, 32, dtype=dtype),)),
    }


def symbolic(x):
    """Every integer that BATCH divides as a multiple of the symbol s0."""
    match x:
        case bool():
            return x
        case int():
            return symbol("s0") * (x // BATCH) if x and x % BATCH == 0 else x
        case TensorMeta():
            return TensorMeta(symbolic(x.sizes), symbolic(x.strides), x.dtype, x.device, x.requires_grad, symbolic(x.offset))
        case tuple() | list():
            return type(x)([symbolic(one) for one in x]) if type(x) in (tuple, list) else [symbolic(one) for one in x]
        case _:
            return x


def make_symbolic(graph) -> None:
    """Turns a graph that was traced at BATCH into one for any batch."""
    for node in graph.nodes:
        if "value" in node.meta:
            node.meta["value"] = symbolic(node.meta["value"])
        if node.op == "call_function":
            node.args = tuple(symbolic(a) for a in node.args)
