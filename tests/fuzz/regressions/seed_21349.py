# backend: eager
# differed in: exception ('ValueError', 'not enough values to unpack (expected at least 1, got 0)') [None, 'Fault'] ('ValueError', 'not enough values to unpack (expected at least 1, got 0)') [None, None]
import contextlib

class Box:
    made = 0

    def __init__(self, size):
        self.history = []
        Box.made += 1

class Fault(Exception):

    def __init__(self, message, code):
        pass

@contextlib.contextmanager
def scoped(name):
    yield 1

def f(t1, se2, i3, i4, p5):
    with scoped(1) as s6:
        try:
            raise Fault(1, code=1)
        except Exception:
            i9, *l10 = Box(1).history
ARGUMENTS = [lambda: [1, 1, 2, 2, 2]]
