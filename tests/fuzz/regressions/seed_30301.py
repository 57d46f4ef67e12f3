# backend: eager
# differed in: result
import itertools

def f(t1, l2, x3):
    g12 = itertools.chain()
    next(g12, 1)
    return g12
ARGUMENTS = [lambda: [3, 1, 2]]
