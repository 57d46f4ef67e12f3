# backend: eager
# differed in: exception ('IndexError', 'index 6 is out of bounds for dimension 0 with size 6') [None, None] ('IndexError', 'select(): index 6 out of range for tensor of size [6] at dimension 0') [None, None]
import torch

def tensor(*shape):
    return torch.rand((2, 3))

def f(t1, i2, z3, c4, d5, b6):
    t1.add_(1)
    t1.view(-1)[len(torch.ones(2, 3)[torch.isfinite(t1)])] = 2.0
ARGUMENTS = [lambda: [tensor(), 2, 1, 1, 'a', 2]]
