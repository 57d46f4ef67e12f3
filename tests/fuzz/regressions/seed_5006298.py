# backend: eager
# differed in: bug RuntimeError
import math
from typing import NamedTuple
import torch
LOG = []
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

class Box:
    made = 0

    def __init__(self, value, size=2):
        pass

    def __getitem__(self, index):
        pass

class Pair(NamedTuple):
    number: int
    tensor: object = None

def counting(limit, start=0):
    i = start
    while i < limit:
        pass

def f(t1, z2, dt3, i4):
    i10, t11 = (0, (-t1).clone())
    while t11.norm() > 0.5 and i10 < 5:
        t11 /= 2
        i10 += 2
        if t11.sum() > 0:
            continue
        t11 -= 0.25
    for i13 in range(3):

        def fi14(i15):
            lt16 = sorted([], key=lambda t: float(t.sum()))
            return Point(i13, right=i4).right
        if t11[0, 1] > math.sqrt(abs(float('1.5'))):
            break
    else:
        TABLE['shift'] = i10
        lt17 = [WEIGHT]
        t18 = t11.t().contiguous().t()
        for i19 in range(int(t18.abs().sum()) % 5):
            t18 = t18 + i19
    try:
        try:
            raise KeyError(3)
        finally:
            pass
    except Exception:
        return Pair(math.floor(z2.item()), tensor=t11)._replace(number=3)[1]
ARGUMENTS = [lambda: [tensor(0), tensor(0, 1).sum(), {'w': tensor(0), 'u': tensor(9)}, 3], lambda: [tensor(0), tensor(0, 1).sum(), {'w': tensor(0), 'u': tensor(9)}, 3], lambda: [tensor(2), tensor(2, 1).sum(), {'w': tensor(2), 'u': tensor(9)}, 3]]
