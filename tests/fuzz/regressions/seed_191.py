# backend: eager
# differed in: exception ('ValueError', 'list.remove(x): x not in list') [None, 'ValueError'] ('ValueError', 'list.index(x): x not in list') [None, None]
def f(t1, lt2, p3, l4, m5, x6):
    try:
        b, = l4
    except ValueError as error:
        l9, l10 = ([sum for p in l4], 1)
        l9.remove(1)
ARGUMENTS = [lambda: [1, 1, 0, [1, 2], 1, 1]]
