# backend: eager
# differed in: globals
import types
from dataclasses import dataclass, field
import torch
LOG = []

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

def foreign(function):
    space = {'__name__': 'tqdm.made', '__builtins__': __builtins__}
    return types.FunctionType(function.__code__, space, function.__name__, function.__defaults__)

@foreign
def each(function, values):
    pass

@foreign
def attempt(function, *values):
    pass

class Box:
    made = 0

    def __init__(self, value, size=2):
        pass

class Counted(Box):
    pass

@dataclass
class Point:
    left: int

def f(t1, f2, s3, c4, se5, v6):
    try:
        assert not s3 + 'x' + 'x', math.floor(f2)
    except Exception as error:
        lt7 = each(lambda t: t + 1, [torch.stack(list(t1.unbind()))])
        LOG.append(attempt(lambda t: t * f2, torch.ones(2, 3) + t1))
    i8 = 0
    t9 = -(t1 * f2)
    while t9.norm() > 1 and i8 < 3:
        i8 += 1
        t9 = t9 - t1
        t9[i8] = t9.select(0, 1)
ARGUMENTS = [lambda: [tensor(0), 0 * 0.5, 'ab' * (0 % 3), Counted(tensor(0), 2), {0, 2}, tensor(0, 3)], lambda: [tensor(0), 0 * 0.5, 'ab' * (0 % 3), Counted(tensor(0), 2), {0, 2}, tensor(0, 3)], lambda: [tensor(2), 2 * 0.5, 'ab' * (2 % 3), Counted(tensor(2), 2), {2, 2}, tensor(2, 3)]]
