# backend: eager
# differed in: result
def f(t1, f2, d3, i4, x5, d6):
    l10 = []
    return filter(2, l10)
ARGUMENTS = [lambda: [1, 1.5, 'a', 2, 1, 'a']]
