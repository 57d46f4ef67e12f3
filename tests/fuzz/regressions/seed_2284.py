# backend: eager
# differed in: bug AttributeError emit.py:129)
import collections

def f(t1, l2, m3, i4, fn5):
    1(collections.defaultdict() | {})
ARGUMENTS = [lambda: [1, 1, 1, 2, 1]]
