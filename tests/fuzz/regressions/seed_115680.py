# backend: eager
# differed in: exception ('RuntimeError', 'a view of a leaf Variable that requires grad is being used in an in-place operation.') [None, None] ('RuntimeError', 'Output 0 of _NonLeaf is a view and is being modified inplace. This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.') [None, None]
import types
import torch

def tensor(*shape):
    return torch.rand(2)

def foreign(function):
    space = __builtins__
    return types.FunctionType(function.__code__, space)

@foreign
def attempt(*values):
    pass

def f(t1, m2, z3):
    try:
        t1[1] += 0.5
    finally:
        attempt()
ARGUMENTS = [lambda: [tensor().requires_grad_(), 1, 1]]
