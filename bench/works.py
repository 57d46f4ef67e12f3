"""The works that thruway is measured on, side by side with torch.compile; kept as they are so that figures stay comparable.

`build(name, device, dtype, batch)` gives (function or module in eval mode, maker of arguments for a batch size).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

WORKS = ("tiny", "mlp", "pointwise", "resnet50", "transformer", "decoder", "decode", "gpt2", "bert", "llama")


def transformer():
    layer = nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=6)


class NaiveBlock(nn.Module):
    """Pre-norm decoder block written the way people write it: rotary, rms norm, masked softmax attention, SwiGLU."""
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d, bias=False); self.o = nn.Linear(d, d, bias=False)
        self.g = nn.Linear(d, 4 * d, bias=False); self.u = nn.Linear(d, 4 * d, bias=False); self.dn = nn.Linear(4 * d, d, bias=False)
        self.n1 = nn.Parameter(torch.ones(d)); self.n2 = nn.Parameter(torch.ones(d))

    def rms(self, x, w):
        v = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(v + 1e-6)).to(x.dtype) * w

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(self.rms(x, self.n1)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)

        def rot(a):
            a1, a2 = a.chunk(2, -1)
            return a * cos + torch.cat((-a2, a1), -1) * sin
        q, k = rot(q), rot(k)
        s = (q @ k.transpose(-1, -2)) / (d // self.h) ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        s = s.masked_fill(~mask, float("-inf"))
        y = (s.float().softmax(-1).to(q.dtype) @ v).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(y)
        z = self.rms(x, self.n2)
        return x + self.dn(F.silu(self.g(z)) * self.u(z))


class Decoder(nn.Module):
    def __init__(self, d=512, h=8, n=12, vocab=4096):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(NaiveBlock(d, h) for _ in range(n))
        self.head = nn.Linear(d, vocab, bias=False)
        self.d, self.h = d, h

    def forward(self, ids):
        b, t = ids.shape
        x = self.emb(ids)
        hd = self.d // self.h
        inv = 1.0 / (10000 ** (torch.arange(0, hd, 2, device=ids.device).float() / hd))
        ang = torch.outer(torch.arange(t, device=ids.device).float(), inv)
        ang = torch.cat((ang, ang), -1)
        cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
        for blk in self.blocks:
            x = blk(x, cos, sin)
        return self.head(x)


class Decode(nn.Module):
    """One token through 12 blocks with a static KV cache written in place, then a temperature sample by inverse CDF."""
    def __init__(self, d=512, h=8, n=12, vocab=4096, length=1024):
        super().__init__()
        self.net = Decoder(d, h, n, vocab)
        self.register_buffer("k", torch.randn(n, 1, h, length, d // h) * 0.1, persistent=False)
        self.register_buffer("v", torch.randn(n, 1, h, length, d // h) * 0.1, persistent=False)

    def forward(self, ids, pos, u):
        net = self.net; x = net.emb(ids); b, t, d = x.shape; h = net.h; hd = d // h
        inv = 1.0 / (10000 ** (torch.arange(0, hd, 2, device=ids.device).float() / hd))
        ang = (pos.float()[:, None] * inv); ang = torch.cat((ang, ang), -1)
        cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
        mask = torch.arange(self.k.shape[3], device=ids.device) <= pos[:, None]
        for i, blk in enumerate(net.blocks):
            q, k, v = blk.qkv(blk.rms(x, blk.n1)).view(b, t, 3, h, hd).permute(2, 0, 3, 1, 4)
            rot = lambda a: a * cos + torch.cat((-a.chunk(2, -1)[1], a.chunk(2, -1)[0]), -1) * sin
            self.k[i].index_copy_(2, pos, rot(k)); self.v[i].index_copy_(2, pos, v)
            s = (rot(q) @ self.k[i].transpose(-1, -2)) / hd ** 0.5
            s = s.masked_fill(~mask, float("-inf")).float().softmax(-1).to(x.dtype)
            x = x + blk.o((s @ self.v[i]).transpose(1, 2).reshape(b, t, d))
            z = blk.rms(x, blk.n2); x = x + blk.dn(F.silu(blk.g(z)) * blk.u(z))
        p = (net.head(x[:, -1]).float() / 0.8).softmax(-1).cumsum(-1)
        return (p < u).sum(-1, keepdim=True), p


def pointwise(x, y):
    z = torch.sigmoid(x) * y + x.tanh()
    return F.gelu(z - z.mean(-1, keepdim=True)) * torch.rsqrt(z.var(-1, keepdim=True) + 1e-5)


def tiny(x):
    return x.sin() + x.cos()


def build(name, dev, dtype, bs):
    if name == "resnet50":
        import torchvision
        return torchvision.models.resnet50().to(dev, dtype).eval(), lambda b: (torch.randn(b, 3, 224, 224, device=dev, dtype=dtype),)
    if name == "transformer":
        return transformer().to(dev, dtype).eval(), lambda b: (torch.randn(b, 128, 512, device=dev, dtype=dtype),)
    if name == "decoder":
        return Decoder().to(dev, dtype).eval(), lambda b: (torch.randint(0, 4096, (b, 256), device=dev),)
    if name == "decode":
        m = Decode().to(dev, dtype).eval()
        return m, lambda b: (torch.full((1, 1), 7, device=dev), torch.tensor([500], device=dev), torch.tensor([[0.37]], device=dev))
    if name == "pointwise":
        n = 4096 if dev == "cuda" else 1024
        return pointwise, lambda b: (torch.randn(b * 64, n, device=dev, dtype=dtype), torch.randn(b * 64, n, device=dev, dtype=dtype))
    if name == "tiny":
        return tiny, lambda b: (torch.ones(16 * b, device=dev),)
    if name == "mlp":
        m = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(dev, dtype).eval()
        return m, lambda b: (torch.randn(b, 64, device=dev, dtype=dtype),)
    if name in ("gpt2", "bert", "llama"):
        import transformers as tf
        if name == "gpt2":
            m = tf.GPT2Model(tf.GPT2Config(n_layer=12))
        elif name == "bert":
            m = tf.BertModel(tf.BertConfig())
        else:
            m = tf.LlamaForCausalLM(tf.LlamaConfig(hidden_size=512, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=8, vocab_size=4096))
        m.config.use_cache = False
        m = m.to(dev, dtype).eval()
        V = m.config.vocab_size
        return m, lambda b: (torch.randint(0, V, (b, 128), device=dev),)
    raise SystemExit(f"unknown work {name}")


def flat(o):
    """Every tensor in an output, in order."""
    if isinstance(o, torch.Tensor):
        return [o]
    if hasattr(o, "to_tuple"):
        o = o.to_tuple()
    if isinstance(o, (list, tuple)):
        return [t for x in o for t in flat(x)]
    return []
