# backend: eager
# differed in: exception ('IndexError', 'index 2 is out of bounds for dimension 0 with size 2') [None, None] ('IndexError', 'select(): index 2 out of range for tensor of size [2, 3] at dimension 0') [None, None]
import contextlib
import torch

def tensor(*shape):
    return torch.rand((2, 3))

def f(t1, c2, i3, f4, b5, f6):
    with contextlib.ExitStack() as stack:
        t1[i3] = 0
ARGUMENTS = [lambda: [1, 1, 0, 0, True, 0.25], lambda: [tensor(), 1, 2, 2, True, 0.25]]
