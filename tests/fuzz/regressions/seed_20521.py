# backend: eager
# differed in: result
def counting(start):
    i = 1
    sent = (yield i)

def f(t1, p2, lt3, b4, v5):
    g12 = counting(2)
    for i13 in g12:
        pass
    return g12
ARGUMENTS = [lambda: [1, 2, 1, 2, 1]]
