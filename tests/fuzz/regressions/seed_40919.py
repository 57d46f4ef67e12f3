# backend: eager
# differed in: printed
import torch

class Box:
    pass

class Counted(Box):

    def __init__(*args, **kwargs):
        pass

def f(t1, i2, fn3):
    t1 = torch.ones(3)
    try:
        z4 = torch.rand(3)
        if z4:
            pass
        else:
            fn6 = 1
    except Exception as error:
        print()
    t1 += 3
    t1 = torch.ones(3).expand(2, 3)
    t1 += 1
ARGUMENTS = [lambda: [1, 2, 1]]
