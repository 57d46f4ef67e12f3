# backend: eager
# differed in: exception ('IndexError', 'index 5 is out of bounds for dimension 0 with size 2') [None, None] ('IndexError', 'index 7 is out of bounds for dimension 1 with size 3') [None, None]
import torch
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed))

def spread(first, /, second, *rest, third=3, **more):
    return first + second + sum(rest) + third

def f(t1, p2, b3, dt4, l5, z6):
    i7, f8 = (0, max(2.0, z6.item() % 2))
    while (WEIGHT * f8).norm() > 1:
        f8 = f8 / 2
        i7 += 1
    t9 = {'w': WEIGHT}['w']
    t10 = t9[0:2]
    i13 = 4
    try:
        sum([WEIGHT], start=t10)[spread(1, i7), 7]
    except Exception as error:
        if i13 not in {**dict(a=0), 'c': i7}.values():
            raise
ARGUMENTS = [lambda: [tensor(0), (0, tensor(0)), True, {'w': tensor(0), 'u': tensor(9)}, [3, 1, 2], tensor(0, 1).sum()], lambda: [tensor(1), (1, tensor(1)), True, {'w': tensor(1), 'u': tensor(9)}, [3, 1, 2], tensor(1, 1).sum()], lambda: [tensor(2), (2, tensor(2)), True, {'w': tensor(2), 'u': tensor(9)}, [3, 1, 2], tensor(2, 1).sum()]]
