# backend: eager
# differed in: exception ('KeyError', "''") [None, None] ('KeyError', "''") [None, 'ValueError']
import torch

def f(t1, l2, i3, fn4, b5):
    try:
        torch.cat([])
    except ValueError as error:
        pass
    fn15 = {}['']
ARGUMENTS = [lambda: [1, 1, 3, 2, True]]
