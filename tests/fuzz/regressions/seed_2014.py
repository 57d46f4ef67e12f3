# backend: eager
# differed in: arguments
def f(t1, m2, b3, m4, s5, l6):
    l6 *= 2
ARGUMENTS = [lambda: [1, 1, 2, 1, 'key', list(range(2))]]
