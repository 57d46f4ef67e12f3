"""Single kernels against eager torch (and torch.compile when asked), one thread, interleaved in one process.

usage: kernels.py [--torch] [NAME …]     prints microseconds (least of the rounds) and the ratio to eager
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import thruway

ROUNDS, SECONDS = 12, 0.02


def rand(*dims: int) -> torch.Tensor:
    return torch.randn(*dims)


def bf16(*dims: int) -> torch.Tensor:
    return torch.randn(*dims).bfloat16()


def masked_softmax(x, mask):
    return F.softmax((x * 0.125).masked_fill(~mask, float("-inf")), -1)


def gelu_of_norm(x, w, b):
    return F.gelu(F.layer_norm(x, x.shape[-1:], w, b))


def add_rms(x, r, w):
    h = x + r
    return h, (h.float() * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(h.dtype) * w


CASES: dict[str, tuple[Callable, Callable]] = {
    "sin+cos 1k": (lambda x: x.sin() + x.cos(), lambda: (rand(1000),)),
    "sin+cos 1M": (lambda x: x.sin() + x.cos(), lambda: (rand(1 << 20),)),
    "gelu(layer norm) 512x1024": (gelu_of_norm, lambda: (rand(512, 1024), rand(1024), rand(1024))),
    "masked softmax 8x128x128": (masked_softmax, lambda: (rand(8, 128, 128), torch.ones(128, 128, dtype=torch.bool).tril())),
    "masked softmax 16x512x512": (masked_softmax, lambda: (rand(16, 512, 512), torch.ones(512, 512, dtype=torch.bool).tril())),
    "sum dim 1 512x1024": (lambda x: x.sum(1), lambda: (rand(512, 1024),)),
    "sum dim 0 512x1024": (lambda x: x.sum(0), lambda: (rand(512, 1024),)),
    "sum dim 0 4096x1024": (lambda x: x.sum(0), lambda: (rand(4096, 1024),)),
    "sum all 512x1024": (lambda x: x.sum(), lambda: (rand(512, 1024),)),
    "sum dim 1 1000x37": (lambda x: x.sum(1), lambda: (rand(1000, 37),)),
    "bf16 silu(a)*b 16k": (lambda a, b: F.silu(a) * b, lambda: (bf16(16384), bf16(16384))),
    "bf16 silu(a)*b 1M": (lambda a, b: F.silu(a) * b, lambda: (bf16(1 << 20), bf16(1 << 20))),
    "bf16 add+rms norm 256x512": (add_rms, lambda: (bf16(256, 512), bf16(256, 512), bf16(512))),
    "cat+T+add 256": (lambda x, y, z: torch.cat((x, y), 1).t() + z, lambda: (rand(256, 128), rand(256, 128), rand(256, 256))),
    "cat+T+add 1024": (lambda x, y, z: torch.cat((x, y), 1).t() + z, lambda: (rand(1024, 512), rand(1024, 512), rand(1024, 1024))),
    "gather rows 256x512": (lambda e, i, y: e[i] + y, lambda: (rand(1000, 512), torch.randint(0, 1000, (256,)), rand(256, 512))),
    "gather columns 256x512": (lambda x, i, y: x[:, i] + y, lambda: (rand(256, 512), torch.randint(0, 512, (512,)), rand(256, 512))),
}


def least(run: Callable[[], object]) -> float:
    """Seconds of one call, averaged over a slice of time."""
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        run()
        calls += 1
    return (time.perf_counter() - start) / calls


def measure(name: str, compilers: dict[str, Callable]) -> None:
    function, make = CASES[name]
    inputs = make()
    runs = {"eager": function, **{k: compiler(function) for k, compiler in compilers.items()}}
    wanted = function(*inputs)
    for key, run in runs.items():
        torch.testing.assert_close(run(*inputs), wanted, rtol=2e-2 if "bf16" in name else 1e-4, atol=1e-2 if "bf16" in name else 1e-3, msg=key)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for key, run in runs.items():
            best[key] = min(best[key], least(lambda run=run: run(*inputs)))
    figures = "  ".join(f"{k} {v * 1e6:9.1f}" + ("" if k == "eager" else f" ({v / best['eager']:.2f})") for k, v in best.items())
    print(f"{name:28s} {figures}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    words = sys.argv[1:]
    compilers = {"thruway": thruway.compile}
    if "--torch" in words:
        compilers["torch"] = torch.compile
    for name in [w for w in words if w != "--torch"] or CASES:
        torch.manual_seed(0)
        measure(name, compilers)


if __name__ == "__main__":
    main()
