# backend: eager
# differed in: exception ('ValueError', 'list.remove(x): x not in list') [None, None] ('ValueError', 'list.remove(x): x not in list') [None, 'IndexError']
import torch
WEIGHT = torch.arange(6.0)

def tensor(*shape):
    return torch.rand(2)

def f(t1, i2, lt3, s4):
    l5, l6 = (1, [])
    try:
        l6[99]
    except Exception as error:
        if torch.equal(WEIGHT, t1):
            pass
    l6.remove(1)
ARGUMENTS = [lambda: [tensor(), 3, 1, 'ab']]
