# backend: eager
# differed in: bug KeyError mapping.py:104)
import contextlib
import torch

def tensor(*shape):
    return torch.rand(1)

@contextlib.contextmanager
def scoped(name, swallow):
    pass

def f(t1, t2, p3, f4, i5):
    if t1:
        with scoped('q', swallow=True):
            pass
ARGUMENTS = [lambda: [tensor(), 1, 2, 1.5, 2]]
