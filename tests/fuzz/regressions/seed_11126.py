# backend: eager
# differed in: result
def f(t1, l2, s3, p4, l5, f6):
    l5 += set(l2)
    return l5
ARGUMENTS = [lambda: [1, [3, 2], 'key', 2, [], 0.25]]
