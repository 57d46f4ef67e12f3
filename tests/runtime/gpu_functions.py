"""Functions that tests run on a GPU, the maker of their arguments, and what counts as equal there."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs")


def rows(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


FUNCTIONS: dict[str, tuple[Callable, Callable[[], tuple]]] = {
    "pointwise": (lambda x, y: torch.sigmoid(x) * y + x.tanh(), lambda: (rows(33, 65), rows(33, 65))),
    "broadcast": (lambda x, y: (x[:, None] - y).abs().sqrt() * 3, lambda: (rows(7, 5), rows(5))),
    "softmax": (lambda x: x.softmax(-1) + 1, lambda: (rows(19, 1000),)),
    "long_softmax": (lambda x: x.softmax(-1), lambda: (rows(3, 50257),)),
    "layer_norm": (lambda x, w: F.gelu(F.layer_norm(x, (64,), w)), lambda: (rows(5, 9, 64), rows(64))),
    "column_sum": (lambda x: (x * x).sum(0), lambda: (rows(513, 70),)),
    "all_sum": (lambda x: x.exp().sum(), lambda: (rows(300, 300),)),
    "large_sum": (lambda x: (x * x).sum() / x.numel(), lambda: (rows(1000, 1023),)),
    "long_column_sum": (lambda x: (x.abs().sum(0), x.amax(0)), lambda: (rows(9001, 70),)),
    "large_mean_var": (lambda x: (x.mean(), x.var(), x.argmax()), lambda: (rows(700, 301),)),
    "two_axes": (lambda x: x.sum((0, 2)), lambda: (rows(50, 12, 500),)),
    "alpha": (lambda x, y: torch.add(x, y, alpha=1.7), lambda: (rows(9, 9, dtype=torch.bfloat16), rows(9, 9, dtype=torch.bfloat16))),
    "logcumsumexp": (lambda x: x.logcumsumexp(-1), lambda: (rows(4, 3000),)),
    "mean_var": (lambda x: (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True), lambda: (rows(40, 77),)),
    "argmax": (lambda x: (x.argmax(-1), x.amax(0)), lambda: (rows(40, 77),)),
    "cumsum": (lambda x: x.cumsum(-1) * 2, lambda: (rows(4, 3000),)),
    "transpose_cat": (lambda x, y: torch.cat((x.T, y), 0) * 2, lambda: (rows(6, 10), rows(3, 6))),
    "embedding": (lambda w, i: F.embedding(i, w) + 1, lambda: (rows(50, 12), torch.randint(0, 50, (4, 6), device="cuda"))),
    "gather": (lambda x, i: x.gather(1, i).sum(-1), lambda: (rows(8, 30), torch.randint(0, 30, (8, 5), device="cuda"))),
    "index_add": (lambda x, i: torch.zeros(10, 4, device=x.device).index_add(0, i, x), lambda: (rows(20, 4), torch.arange(20, device="cuda") % 10)),
    "where_mask": (lambda x: torch.where(x > 0, x, 0.1 * x).masked_fill(x > 2, -1.0), lambda: (rows(100, 3),)),
    "integers": (lambda x: (x // 3, x % 5, x << 1, (x * 7).float() / 2), lambda: (torch.arange(-20, 20, device="cuda"),)),
    "low_precision": (lambda x, y: (x * y + x).softmax(-1), lambda: (rows(12, 40, dtype=torch.bfloat16), rows(12, 40, dtype=torch.bfloat16))),
    "matmul_chain": (lambda x, w: F.relu(x @ w) @ w + x, lambda: (rows(16, 16), rows(16, 16))),
    "pad_roll": (lambda x: F.pad(x, (1, 2)).roll(1, -1) * x.size(-1), lambda: (rows(5, 8),)),
    "views": (lambda x: x.view(4, 2, 6).permute(2, 0, 1).reshape(6, 8) + 1, lambda: (rows(8, 6),)),
}


def assert_close(got: object, want: object) -> None:
    if isinstance(want, torch.Tensor):
        assert got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride() and got.device == want.device
        torch.testing.assert_close(got, want, rtol=2e-2 if want.dtype == torch.bfloat16 else 2e-5, atol=1e-2 if want.dtype == torch.bfloat16 else 1e-5,
                                   equal_nan=True)
        return
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert_close(a, b)
