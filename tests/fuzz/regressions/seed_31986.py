# backend: eager
# differed in: bug AttributeError sizes.py:21)
import functools
from dataclasses import dataclass, field
import torch
TABLE = {'scale': 2, 'shift': 1}
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

class Box:
    made = 0

    def __init__(self, value, size=2):
        self.value = value
        self.size = size
        self.history = []
        Box.made += 1

    @classmethod
    def fresh(cls, value):
        return cls(value, size=3)

    @staticmethod
    def shift(t, by=1):
        return t + by

    def push(self, item):
        self.history.append(item)
        return self

class Counted(Box):

    def __init__(self, value, *args, step=1, **kwargs):
        super().__init__(value, *args, **kwargs)
        self.step = step

    def __call__(self, t):
        return super().__call__(t) - self.step

    def __iter__(self):
        for i in range(self.size):
            yield (i * self.step)

    def __getattr__(self, name):
        if name.startswith('tag_'):
            return name[4:]
        raise AttributeError(name)

    def __eq__(self, other):
        return isinstance(other, Counted) and self.step == other.step

    def __hash__(self):
        return hash(self.step)

@dataclass
class Point:
    left: int
    right: int = 3
    tags: list = field(default_factory=list)

    def total(self):
        return self.left + self.right

def spread(first, /, second=2, *rest, third=3, **more):
    return first + second + sum(rest) + third + sum(more.values())

def f(t1, x2, i3, z4):
    f5 = i3 / 2
    for i6 in Counted.fresh(t1):
        for i7 in Counted(WEIGHT).push('key'):
            fn8 = functools.lru_cache(maxsize=None)(lambda t: t * 2)
            se9 = {-1, i7}.union(list(reversed([])))
        print('key')
    t10 = t11 = t1.detach()
    TABLE.setdefault('key'.replace('a', 'b'), len(WEIGHT))
    return Box(t11, size=spread(1, **vars(Point(i3, 1)) | {'a': 1}))
ARGUMENTS = [lambda: [tensor(0), Box(tensor(0)), 0 % 4, tensor(0, 1).sum()], lambda: [tensor(0), Box(tensor(0)), 1 % 4, tensor(0, 1).sum()], lambda: [tensor(2), Box(tensor(2)), 2 % 4, tensor(2, 1).sum()]]
