# backend: eager
# differed in: globals
import torch
LOG = []

def tensor(*shape):
    return torch.rand(3)

def f(t1, x2, c3, m4, s5, i6):
    t7 = t1[[1, 0]]
    m4.tolist()
    try:
        t7[1] = 1.0
    except Exception as error:
        pass
    LOG.append(t7)
ARGUMENTS = [lambda: [tensor().requires_grad_(), 1, 1, tensor() > 0, 'key', 2]]
