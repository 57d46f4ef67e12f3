# backend: eager
# differed in: exception ('ZeroDivisionError', 'division by zero') [None, None] ('RuntimeError', 'a leaf Variable that requires grad is being used in an in-place operation.') [None, None]
import itertools
import torch

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed))

class Box:
    made = 0

    def __init__(self, value, size=2):
        Box.made += 1

    def __call__(self, t):
        pass

class Counted(Box):

    def __init__(self, value, *args, step=1, **kwargs):
        super().__init__(value, *args, **kwargs)

def spread(first, /, second, *rest, third=3, **more):
    return 1

def f(t1, i2, se3, z4, t5, x6):

    def fn7(t8, *l9, **d10):
        return t1 + i2
    if Counted(torch.ones(2, 3), step=i2):
        pass
    try:
        del i2
        print(fn7(t5).sum().item() > 0)
    except Exception as error:
        pass
    else:
        t1.clamp_(min=0)
    i35, *l36 = [0, 2]
    i39 = 1
    t5[torch.ones(2, 3).bool() & torch.ones(2, 3).bool()] = i39 / i35
ARGUMENTS = [lambda: [tensor(0).requires_grad_(), 2, {0, 2}, tensor(0, 1).sum(), tensor(0), Box(tensor(0), 0 % 3 + 1)], lambda: [tensor(1).requires_grad_(), 2, {1, 2}, tensor(1, 1).sum(), tensor(1), Box(tensor(1), 1 % 3 + 1)], lambda: [tensor(2).requires_grad_(), 2, {2, 2}, tensor(2, 1).sum(), tensor(2), Box(tensor(2), 2 % 3 + 1)]]
