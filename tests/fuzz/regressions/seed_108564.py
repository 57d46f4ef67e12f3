# backend: eager
# differed in: globals
import torch
LOG = []

def tensor(*shape):
    return torch.rand(1)

def f(t1, i2, p3, s4, i5):
    try:
        t1[p3] = 1.0
    except IndexError as error:
        LOG.append(error)
ARGUMENTS = [lambda: [1, 1, (1,), 'ab', 1], lambda: [tensor(), 2, (2,), 'ab', 2]]
