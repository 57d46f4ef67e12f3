# backend: eager
# differed in: exception ('RuntimeError', 'a view of a leaf Variable that requires grad is being used in an in-place operation.') [None, None] ('RuntimeError', 'a view of a leaf Variable that requires grad is being used in an in-place operation.') [None, 'ValueError']
import torch

def tensor(*shape):
    return torch.rand(3)

def f(t1, i2, v3, f4, s5):
    try:
        torch.cat([])
    except* ValueError as group:
        pass
    t1[0] = 1
ARGUMENTS = [lambda: [tensor().requires_grad_(), 2, 1, 1.5, 'key']]
