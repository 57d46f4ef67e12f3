# backend: eager
# differed in: exception ('ZeroDivisionError', 'integer modulo by zero') [None, None] ('ZeroDivisionError', "(ZeroDivisionError(ZeroDivisionError('integer modulo by zero'), None), None)") [None, None]
import contextlib
import functools
import operator
import torch
LOG = []

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

class Box:
    made = 0

    def __init__(self, value, size=2):
        self.value = value
        self.size = size
        self.history = []
        Box.made += 1

    def __call__(self, t):
        return t * self.size + self.value

    def __enter__(self):
        self.size += 1
        return self

    def __exit__(self, kind, error, trace):
        self.size -= 1
        self.history.append(kind.__name__ if kind else None)
        return kind is KeyError

@contextlib.contextmanager
def scoped(name, swallow=False):
    yield (name * 2)

def counting(limit, start=0):
    i = start
    sent = (yield i)

def f(t1, lt2, f3, fn4):
    t5 = torch.ones(2, 3)
    with Box(functools.reduce(operator.add, lt2, t1)) as x6, scoped('b'):
        g7 = counting(2)
        for i8 in g7:
            for i9, t10 in enumerate([t1 + i for i in range(2)]):
                lt2.append(x6(t5))
                x6.value = t1
                i11, i12 = (t1 @ t5.t() @ t10).shape
            with scoped('q', swallow=True):
                i13 = i8 % hash(i8)
                fn14 = [lambda t, w=f3 ** 2: t * w for q in range(2)][i8 % 2]
                raise KeyError(int(torch.is_grad_enabled()))
            (x6 if True else x6).push(list(Counted(t1, 3, step=2)))
            break
        for i15 in counting(min([0, 2], default=[].__len__()) % 4):
            match [*[0, 2], i15]:
                case []:
                    i16 = i17 = len(set([0, 2]) & {1, 2})
                    t5 += torch.zeros(2, 3)
                case [i18, *l19]:
                    (i20, t21), l22 = (tuple([i18, t5]), [k((q := i18) + q) for k in [lambda z, j=j: z + j for j in range(2)]])
                    t1[0, 1] = max(f3, f3)
            if bool(x6 + x6 if i15 == i15 else x6):
                break
        else:
            Box.made += 1
            lt2[0] = x6.double
ARGUMENTS = [lambda: [tensor(0), [tensor(k) for k in range(0 % 3)], 0 * 0.5, lambda t: t + 0], lambda: [tensor(1), [tensor(k) for k in range(1 % 3)], 1 * 0.5, lambda t: t + 1], lambda: [tensor(0), [tensor(k) for k in range(0 % 3)], 0 * 0.5, lambda t: t + 0]]
