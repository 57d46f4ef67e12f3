# backend: eager
# differed in: exception ('RuntimeError', 'a leaf Variable that requires grad is being used in an in-place operation.') [None, 'RuntimeError'] ('RuntimeError', 'a leaf Variable that requires grad is being used in an in-place operation.') [None, None]
import torch
WEIGHT = torch.arange(6.0)

def tensor(*shape):
    return torch.rand(2)

class Box:
    made = 0

    def __init__(value, size):
        Box.made += 1

def f(t1, v2, dt3):
    try:
        try:
            torch.where(WEIGHT, 2, 1)
        finally:
            dt3['w'] = Box(1)
    except Exception:
        t1.copy_(2)
ARGUMENTS = [lambda: [tensor().requires_grad_(), 1, {}]]
