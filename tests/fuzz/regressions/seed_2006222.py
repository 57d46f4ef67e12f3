# backend: eager
# differed in: exception ('TypeError', 'add_() takes 1 positional argument but 2 were given') [None, None]
import torch

def tensor(*shape):
    return torch.rand(2)

def foreign(function):
    return function

@foreign
def each(function, values):
    return [function(value) for value in values]

def f(t1, se2, l3, fn4, s5):

    def fn6(t7):
        try:
            for i8 in s5:
                t7.add_(torch.ones(3).index_select(0, torch.tensor(1)))
        finally:
            t10 = torch.ones(3)
    lt14 = each(fn6, [t1])
ARGUMENTS = [lambda: [tensor(), 1, 1, 1, 'key']]
