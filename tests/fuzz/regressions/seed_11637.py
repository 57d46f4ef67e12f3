# backend: eager
# differed in: bug RuntimeError __init__.py:2118)
import torch

def tensor(seed, *shape):
    return torch.rand((2, 3), generator=torch.manual_seed(seed)) - 2

def f(t1, d2, l3, t4, lt5):
    match d2:
        case {'a': i6, **d7}:
            1[1] = t1[1].tolist()[0] ** 2
        case _:
            pass
ARGUMENTS = [lambda: [tensor(1), {'a': 1}, 1, 1, 1], lambda: [tensor(2), {'a': 2}, 1, 1, 1]]
