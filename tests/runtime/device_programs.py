"""Programs over several devices: functions of (`here`, `there`), each giving a function and a maker of its arguments. `there` is another GPU
or the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Program = tuple[Callable, Callable[[], tuple]]


def randn(*sizes: int, device: str) -> torch.Tensor:
    return torch.randn(sizes, device=device)


class Alternating(torch.nn.Module):
    def __init__(self, devices: tuple[str, ...]):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8).to(device) for device in devices])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x.to(layer.weight.device)).relu()
        return x


class Picking(torch.nn.Module):
    """An index among its buffers, on another device than its weights."""

    def __init__(self, here: str, there: str):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8, device=here))
        self.register_buffer("index", torch.tensor([3, 1, 6], device=there if there == "cpu" else here))
        self.register_buffer("scale", torch.randn(8, device=there))

    def forward(self, x):
        return (x @ self.weight)[:, self.index].to(self.scale.device) * self.scale[self.index.to(self.scale.device)]


def write_over(x, y):
    y.copy_(x)
    y.mul_(2)
    return y.sum(), x + 1


def add_sum(x, y):
    y.add_(x.sum().to(y.device))
    return y


def write_row(x, y):
    z = y.clone()
    z[1] = x[0].to(y.device)
    return z, z.sum(0).to(x.device) + x


def fill_rows(x, index, values):
    z = x.clone()
    z[index] = values
    z[:, index] = 0.5
    return z * 2


def into_new(x, y):
    out = torch.empty_like(y)
    out.copy_(x)
    return out * y


def autocast_over_both(x, w, v):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        a = x @ w
        return (a.to(v.device) @ v.to(a.dtype)).float().softmax(-1)


def draws_there(x, y):
    return F.dropout((x * 2).to(y.device), 0.5, True) + y, x.relu()


def programs(here: str, there: str) -> dict[str, Program]:
    """By name."""
    def both() -> tuple:
        return randn(8, 8, device=here), randn(8, 8, device=there)

    index = "cpu" if there == "cpu" else here
    return {
        "there_and_back": (lambda x, y: ((x @ x).to(y.device) @ y).to(x.device).softmax(-1) + x, both),
        "alternating": (Alternating((here, there, here, there)), lambda: (randn(4, 8, device=here),)),
        "buffers": (Picking(here, there), lambda: (randn(4, 8, device=here),)),
        "arange": (lambda x, y: x[torch.arange(3).to(x.device)] + y[torch.arange(3, device=y.device)].to(x.device), both),
        "literal": (lambda x, y: x * torch.tensor([1.0, 2.0]).to(x.device).repeat(4) + 1 + (y + torch.tensor(3.0, device=y.device)).to(x.device), both),
        "dtypes": (lambda x, y: (x.to(y.device, torch.float64).mean(-1) + y.double().mean(-1)).to(x.device, x.dtype) * x, both),
        "cat": (lambda x, y: torch.cat((x.to(y.device), y), -1).relu(), both),
        "stack": (lambda x, y: torch.stack([x.to(y.device)[i] * y[i] for i in range(3)]).sum(0), both),
        "views": (lambda x, y: (x.t().to(y.device)[1:].sum(0), y.t()[2:].to(x.device), x.t()), both),
        "moves_alone": (lambda x, y: (x.to(y.device), y.to(x.device), x), both),
        "reductions": (lambda x, y: (x.sum().to(y.device) * y, x * y.sum().to(x.device), x.max().to(y.device)), both),
        "outer_product": (lambda x, y: (x[:, 0].to(y.device)[:, None] * y[None, 0]).tril(), both),
        "sorted": (lambda x, y: (x.sort(-1)[1].to(y.device) + y.argmax(-1), x.topk(2)[0].to(y.device)), both),
        "embedding": (lambda x, y: F.embedding(torch.arange(4, device=y.device), y).to(x.device) @ x, both),
        "masked": (lambda x, y: x.masked_fill((y > 0).to(x.device), 0.0).softmax(-1), both),
        "write_over": (write_over, both),
        "add_sum": (add_sum, both),
        "write_row": (write_row, both),
        "into_new": (into_new, both),
        "draws_there": (draws_there, both),
        "cpu_scalars": (lambda x, s, t: (x * s + t[0], torch.where(x > 0, x, s), s * 2 + x.sum()),
                        lambda: (randn(8, 8, device=here), torch.tensor(1.5), torch.randn(3))),
        "indices": (lambda x, i, j: (x[i], x[i, j], x[:, j].sum(0), x[i][:, j]),
                    lambda: (randn(8, 8, device=here), *(torch.randint(0, 8, (5,), device=index) for _ in range(2)))),
        "fill_rows": (fill_rows, lambda: (randn(8, 8, device=here), torch.tensor([1, 5], device=index), randn(2, 8, device=here))),
        "autocast": (autocast_over_both, lambda: (randn(8, 8, device=here), randn(8, 8, device=here), randn(8, 8, device=there))),
        "scalar_of_there": (lambda x, y: x * (y[0, 0] if y.device.type == "cpu" else y[0, 0].to(x.device)) + y.sum().to(x.device), both),
    }
