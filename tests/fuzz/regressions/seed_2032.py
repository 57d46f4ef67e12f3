# backend: eager
# differed in: bug RuntimeError pipeline.py:224)
class Box:
    made = 0

    def __init__(value, size):
        Box.made += 1

def f(t1, z2, l3, m4, dt5, d6):
    l3.append(Box(1))
ARGUMENTS = [lambda: [1, 1, list(), 1, 'w', 'a']]
