# backend: thruway
# differed in: bug ValueError builder.py

import math
import torch
import torch.nn.functional as F

COUNT = 0
LOG = []


def tensor(seed, *shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 4 - 2


def special(seed, *shape):
    values = torch.tensor([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 2.5, 1e-40, 3e38])
    return values[(tensor(seed, *shape) * 100).long() % 10]


def whole(seed, dtype, *shape):
    return (tensor(seed, *shape) * 60).to(dtype)


def f(a0, a1, a2, a3):
    v0 = a2.nan_to_num()
    a1.cumsum_(0)
    v2 = v0[1:]
    v3 = a2.logsumexp(-1)
    v4 = a2.is_contiguous()
    v0.fill_(v4)
    v6 = v0.gather(-1, a3.argsort(1))
    v7 = -v2
    v8 = v0.unsqueeze(1)
    v9 = torch.div(v6, v6, rounding_mode='trunc')
    return [v0, v9, v8, v7, a0, v4]


ARGUMENTS = [lambda a=whole(0, torch.int64, 1, 3): [a, tensor(0, 1)[0], special(0, 7).double(), (a[1:])], lambda a=whole(1, torch.int64, 2, 3): [a, tensor(1, 1)[0], special(1, 7).double(), (a[1:])], lambda a=whole(2, torch.int64, 3, 3): [a, tensor(2, 1)[0], special(2, 7).double(), (a[1:])]]
