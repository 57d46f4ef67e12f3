# backend: eager
# differed in: exception ('ValueError', '__len__() should return >= 0') [None, None] ('RuntimeError', 'a leaf Variable that requires grad is being used in an in-place operation.') [None, None]
import torch

def tensor(*shape):
    return torch.rand(1)

class Box:

    def __init__(self, value, size):
        self.size = size

    def __len__(self):
        return self.size

def f(t1, d2, i3):
    if Box(1, size=i3):
        pass
    t1.clamp_()
ARGUMENTS = [lambda: [tensor().requires_grad_(), 'a', 0 - 1]]
