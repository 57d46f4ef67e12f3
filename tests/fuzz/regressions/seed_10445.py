# backend: eager
# differed in: result
def f(t1, x2, i3, d4):
    return float(i3)
ARGUMENTS = [lambda: [1, 1, 0, 'a'], lambda: [1, 1, 2, 'a']]
