# backend: eager
# differed in: exception ('KeyError', "''") [None, None] ('KeyError', "''") [None, 'TypeError']
def f(t1, fn2, s3):
    try:
        1()
    except Exception:
        pass
    return {}[s3]
ARGUMENTS = [lambda: [1, 1, 'ab' * 0]]
