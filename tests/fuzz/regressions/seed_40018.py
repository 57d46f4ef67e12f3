# backend: eager
# differed in: bug CompilerBug emit.py:235)
def f(t1, z2, dt3, m4):

    def fi5():
        for i7 in fi5:
            pass
    return fi5
ARGUMENTS = [lambda: [1, 1, 'w', 1]]
