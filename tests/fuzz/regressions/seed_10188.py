# backend: eager
# differed in: exception ('UnboundLocalError', "cannot access local variable 'i6' where it is not associated with a value") [None, None]
from typing import NamedTuple

class Box:
    made = 0

    def __init__(value, size):
        Box.made += 1

class Pair(NamedTuple):
    number: 1
    tensor: 1 = None

def f(t1, dt2, t3, b4, m5):
    i6, t7 = Pair(1)
    t7 = Box(1)
    del i6

    def fn9():
        g15 = i6
    return i6
ARGUMENTS = [lambda: [1, 'w', 1, 2, 1]]
