# backend: eager
# differed in: exception ('UnboundLocalError', "cannot access local variable 'i2' where it is not associated with a value") [None, None] ('NameError', "cannot access free variable 'i2' where it is not associated with a value in enclosing scope") [None, None]
def f(t1, i2, z3):
    del i2
    try:
        t1 += i2

        def fi5():
            nonlocal i2
    except IndexError as error:
        pass
ARGUMENTS = [lambda: [1, 2, 1]]
