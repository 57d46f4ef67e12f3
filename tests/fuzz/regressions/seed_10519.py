# backend: eager
# differed in: result
def f(t1, l2, i3, se4, d5, d6):
    return list(set([2] + l2))
ARGUMENTS = [lambda: [1, list(range(1)), 1, 1, 'a', 'a']]
