# backend: eager
# differed in: bug AttributeError sym_node.py:1981)
def f(t1, i2, dt3, c4, l5):
    t1 *= i2 / 2
ARGUMENTS = [lambda: [1, 0, 'w', 1, 3], lambda: [1, 2, 'w', 1, 3]]
