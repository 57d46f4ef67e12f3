# backend: eager
# differed in: exception ('UnboundLocalError', "cannot access local variable 'i6' where it is not associated with a value") [None, None]
import collections

def f(t1, m2, m3, i4, fn5, i6):
    l14 = collections.Counter([])

    def fi21():
        return i6
    del i6
    i6
ARGUMENTS = [lambda: [1, 1, 1, 2, 1, 2]]
