# backend: eager
# differed in: exception ('AssertionError', 'a') [None, None] ('Fault', 'wrapped') ['IndexError', 'IndexError']
from dataclasses import dataclass, field
import torch
WEIGHT = torch.arange(6.0).reshape(2, 3)

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

class Box:

    def __init__(self, value, size=2):
        self.value = value
        self.size = size

    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other), self.size)

@dataclass
class Point:
    left: int
    right: int = 3

    def total(self):
        return self.left + self.right

class Fault(Exception):

    def __init__(self, message, code=0):
        super().__init__(message)

def f(t1, dt2, d3, i4, m5, lt6):
    if m5.any():
        assert m5.all().item(), 'a'[:1]
    i7, t8 = (0, getattr(Box(WEIGHT) + Box(WEIGHT), 'value'))
    t10 = t8.softmax(-1)
    d3[f'{t1.sum().item():.3f}'] = abs(i4)
    try:
        t10[Point(i4).total()] = t8.flatten()[::2]
    except Exception as error:
        raise Fault('wrapped', i7) from error
ARGUMENTS = [lambda: [tensor(0), {'w': tensor(0), 'u': tensor(9)}, {'a': 0, 'b': 2}, 2, tensor(0) > 0, [tensor(0), tensor(0 + 7)]], lambda: [tensor(1), {'w': tensor(1), 'u': tensor(9)}, {'a': 1, 'b': 2}, 2, tensor(1) > 0, [tensor(1), tensor(1 + 7)]], lambda: [tensor(2), {'w': tensor(2), 'u': tensor(9)}, {'a': 2, 'b': 2}, 2, tensor(2) > 0, [tensor(2), tensor(2 + 7)]]]
