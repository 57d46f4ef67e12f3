# backend: thruway
# differed in: bug KeyError numbers.py:152)
import torch

def f(t1, i3):
    t1[torch.ones(2, 3).bool()] = i3 / 2
    return t1
ARGUMENTS = [lambda: [torch.zeros(2, 3), 0], lambda: [torch.zeros(2, 3), 1], lambda: [torch.zeros(2, 3), 3], lambda: [torch.zeros(2, 3), 5]]
