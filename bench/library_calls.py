"""Times the library calls that a linear layer and attention may become on this CPU: the figures behind `graph/patterns/cpu_*`.

usage: library_calls.py [linear] [attention]     one thread; the least of 30 interleaved rounds, in microseconds
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

ROUNDS = 30
LINEARS = [(1, 64, 64), (8, 64, 64), (64, 64, 64), (1, 512, 1536), (1, 2048, 512), (1, 512, 4096), (4, 512, 1536), (16, 512, 2048),
           (32, 512, 1536), (128, 512, 1536), (256, 512, 4096), (8, 2048, 1000)]
ATTENTIONS = [(1, 8, 1, 1024, 64), (1, 8, 8, 8, 64), (1, 8, 32, 32, 64), (1, 8, 128, 128, 64), (1, 8, 256, 256, 64), (8, 8, 128, 128, 64)]


def interleaved(calls: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Microseconds per call of each, all measured round by round so that noise meets all alike."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / repeat * 1e6)
    return best


def linear_calls(rows: int, width: int, out: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    x, w, b = torch.randn(rows, width).to(dtype), torch.randn(out, width).to(dtype), torch.randn(out).to(dtype)
    result = torch.empty(rows, out, dtype=dtype)
    packed = torch.ops.mkldnn._reorder_linear_weight(w, rows)
    calls = {
        "linear": lambda: F.linear(x, w, b),
        "addmm.out": lambda: torch.addmm(b, x, w.t(), out=result),
        "onednn packed": lambda: torch.ops.mkldnn._linear_pointwise(x, packed, b, "none", [], ""),
    }
    if dtype == torch.float32:
        mkl = torch.ops.mkl._mkl_reorder_linear_weight(w, rows)
        calls["mkl packed"] = lambda: torch.ops.mkl._mkl_linear(x, mkl, w, b, rows)
    return calls


def attention_calls(batch: int, heads: int, queries: int, keys: int, width: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    q, k, v = (torch.randn(batch, heads, n, width).to(dtype) for n in (queries, keys, keys))
    q3, kt, v3 = q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), v.flatten(0, 1)
    return {
        "sdpa": lambda: F.scaled_dot_product_attention(q, k, v),
        "written out": lambda: (q @ k.transpose(-1, -2) / 8).float().softmax(-1).to(dtype) @ v,
        "two bmm alone": lambda: torch.bmm(torch.bmm(q3, kt), v3),
    }


def show(name: object, figures: dict[str, float]) -> None:
    print(f"{name!s:40}", "  ".join(f"{call} {value:.1f}" for call, value in figures.items()), flush=True)


def main(wanted: list[str]) -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            for sizes in LINEARS if "linear" in wanted else []:
                rows, width, out = sizes
                show((dtype, sizes), interleaved(linear_calls(*sizes, dtype), max(1, 20_000_000 // (rows * width * out + 1_000_000))))
            for sizes in ATTENTIONS if "attention" in wanted else []:
                show((dtype, sizes), interleaved(attention_calls(*sizes, dtype), 3))


if __name__ == "__main__":
    main(sys.argv[1:] or ["linear", "attention"])
