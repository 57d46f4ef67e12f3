# backend: eager
# differed in: exception ('KeyError', "'key'") [None, 'IndexError'] ('KeyError', "'key'") [None, None]
import collections
import contextlib
import torch

def tensor(*shape):
    return torch.rand(2)

@contextlib.contextmanager
def scoped(name):
    yield 1

def spread(*rest, **more):
    pass

def f(t1, c2, i3, fn4, s5, i6):
    with scoped(1) as s7:
        try:
            t1[spread] = 0.5
        except Exception:
            1[dict(collections.Counter('b'))[s5]] = 1
ARGUMENTS = [lambda: [tensor(), 1, 2, 2, 'key', 3]]
