# backend: eager
# differed in: exception ('RuntimeError', "shape '[5]' is invalid for input of size 6") [None, None] ('RuntimeError', "shape '[5]' is invalid for input of size 6") [None, 'ValueError']
import types
import torch

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

def foreign(function):
    space = {'__name__': 'tqdm.made', '__builtins__': __builtins__}
    return types.FunctionType(function.__code__, space, function.__name__, function.__defaults__)

@foreign
def each(function, values):
    pass

class Box:

    def __init__(self, value, size=2):
        self.size = size

    @staticmethod
    def shift(t, by=1):
        pass

class Counted(Box):

    def __init__(self, value, *args, step=1, **kwargs):
        super().__init__(value, *args, **kwargs)
        self.step = step

def f(t1, s2, z3, c4, i5, b6):
    try:
        try:
            raise ValueError('maybe')
        except Exception:
            lt10 = each(Box.shift, [])
        t1.float().view(5)
    except ValueError as error:
        pass
    finally:
        t1.view(-1)[max([0, 2], key=lambda q: -q, default=sum((q * q for q in torch.ones(2, 3).bool().nonzero().flatten().tolist())))] = torch.tensor(1.5).item() ** 2
ARGUMENTS = [lambda: [tensor(0), 'key', tensor(0, 1).sum(), Counted(tensor(0), step=0 % 3), 2, True], lambda: [tensor(1), 'key', tensor(1, 1).sum(), Counted(tensor(1), step=1 % 3), 2, True], lambda: [tensor(0), 'key', tensor(2, 1).sum(), Counted(tensor(0), step=0 % 3), 2, True]]
