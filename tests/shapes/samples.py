"""Random calls of the operators that have rules: (operator, args, kwargs) on small real CPU tensors, right ones and wrong ones."""

from __future__ import annotations

import random

import torch

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16]
ANY = [*FLOATS, torch.int64, torch.int32, torch.bool, torch.uint8, torch.complex64]


def overload(name: str) -> torch._ops.OpOverload:
    space, _, rest = name.partition("::")
    base, _, over = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base), over or "default")


class Sampler:
    def __init__(self, rng: random.Random):
        self.rng = rng

    def size(self) -> int:
        return self.rng.choice([0, 1, 1, 2, 3, 4, 5])

    def shape(self, low: int = 0, high: int = 4) -> list[int]:
        return [self.size() for _ in range(self.rng.randint(low, high))]

    def tensor(self, shape=None, dtypes=ANY, layout: bool = True) -> torch.Tensor:
        shape = self.shape() if shape is None else list(shape)
        dtype = self.rng.choice(dtypes)
        t = self._laid_out(shape, layout)
        return t.to(dtype) if dtype is not torch.bool else t > 0

    def _laid_out(self, shape, layout: bool) -> torch.Tensor:
        kind = self.rng.choice(["plain", "plain", "permuted", "sliced", "expanded", "channels_last", "stepped"]) if layout else "plain"
        rank = len(shape)
        if kind == "permuted" and rank:
            order = list(range(rank))
            self.rng.shuffle(order)
            base = torch.ones([shape[d] for d in order])
            return base.permute([order.index(d) for d in range(rank)])
        if kind == "sliced" and rank:
            return torch.ones([s + 1 for s in shape])[tuple(slice(0, s) for s in shape)]
        if kind == "stepped" and rank:
            return torch.ones([s * 2 for s in shape])[tuple(slice(0, None, 2) for _ in shape)]
        if kind == "expanded" and rank:
            d = self.rng.randrange(rank)
            return torch.ones([1 if i == d else s for i, s in enumerate(shape)]).expand(shape)
        if kind == "channels_last" and rank == 4:
            return torch.ones(shape).contiguous(memory_format=torch.channels_last)
        return torch.ones(shape)

    def partner(self, shape, wrong: float = 0.05) -> list[int]:
        """A shape that broadcasts with `shape`, mostly."""
        cut = self.rng.randint(0, len(shape)) if shape and self.rng.random() < 0.3 else 0
        made = [1 if self.rng.random() < 0.25 else s for s in list(shape)[cut:]]
        if made and self.rng.random() < wrong:
            made[self.rng.randrange(len(made))] += 1
        if self.rng.random() < 0.1:
            made = [self.rng.choice([1, 2]), *made]
        return made

    def dim(self, rank: int, wrong: float = 0.05) -> int:
        if self.rng.random() < wrong:
            return rank + 1
        return self.rng.randint(-max(rank, 1), max(rank, 1) - 1)

    def dims(self, rank: int) -> list[int]:
        dims = list(range(rank))
        self.rng.shuffle(dims)
        chosen = dims[:self.rng.randint(0, rank)]
        if self.rng.random() < 0.05:
            chosen.append(rank)
        return [d - rank if rank and self.rng.random() < 0.5 else d for d in chosen]

    def number(self):
        return self.rng.choice([2, 1, 0, -1, 1.5, 0.5, True, 2.0])

    def index(self, shape, high: int, dtypes=(torch.int64,)) -> torch.Tensor:
        made = torch.zeros(shape, dtype=self.rng.choice(list(dtypes)))
        return made + (self.rng.randrange(high) if high > 0 else 0)

    def alike(self, x: torch.Tensor, shape, wrong: float = 0.04) -> torch.Tensor:
        """Another tensor of x's dtype, mostly."""
        return self.tensor(shape, [x.dtype] if self.rng.random() > wrong else FLOATS)
