# backend: thruway
# differed in: bug TypeError expressions.py

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


def f(a0, a1, a2):
    v0 = a0.view_as(a0)
    v1 = v0.view(torch.int32)
    v2 = v0.real
    a0.masked_fill_(v0 > 0, a1)
    v0.scatter_(1, v2.argsort(-1) * 0, a2)
    v1[v0 > 0] = a1
    v6 = a0.isnan()
    v7 = v0 * a1
    v8 = v7.flatten()
    v9 = v2[1:]
    return [v1, a0, v7, v8, v2, a1, a2]


ARGUMENTS = [lambda a=special(0, 4, 3): [a, 0 * 0.7 - 1.0, 0 + 1], lambda a=special(1, 4, 3): [a, 1 * 0.7 - 1.0, 1 + 1], lambda a=special(2, 4, 3): [a, 2 * 0.7 - 1.0, 2 + 1]]
