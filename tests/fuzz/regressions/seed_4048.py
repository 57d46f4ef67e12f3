# backend: eager
# differed in: exception ('UnboundLocalError', "cannot access local variable 'i4' where it is not associated with a value") [None, None] ('KeyError', "'a'") [None, None]
import itertools
from typing import NamedTuple
import torch
COUNT = 0
LOG = []
TABLE = {'scale': 2, 'shift': 1}

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

class Box:
    made = 0

    def __init__(self, value, size=2):
        self.value = value
        self.size = size
        self.history = []
        Box.made += 1

class Counted(Box):

    def __init__(self, value, *args, step=1, **kwargs):
        super().__init__(value, *args, **kwargs)
        self.step = step

    def __iter__(self):
        for i in range(self.size):
            yield (i * self.step)

class Pair(NamedTuple):
    tensor: object = None

def counting(limit, start=0):
    i = start
    sent = (yield i)

def f(t1, c2, d3):
    i4 = abs(0)
    d5 = TABLE
    try:
        match [k(i4) for k in [lambda z, j=j: z + j for j in range(2)]]:
            case []:
                try:
                    for i6, i7 in itertools.product(range(2), list({k: v for k, v in d3.items() if v > 0}.values())):
                        LOG.append('b'.partition('-')[2])
                    g8 = iter(d5.values())

                    def made():
                        c9 = Counted.fresh(t1)
                        se10 = {q for q in list(g8) if q > 0}
                        yield i4
                        i11 = i4
                        fn12 = [lambda t, w=round(0.0, 1): t * w for q in range(2)][t1.numel() % 2]
                        yield i4
                    g13 = made()
                except ZeroDivisionError:
                    (Box(WEIGHT) if False else Box(WEIGHT)).absent
                t1 = torch.where(t1 > t1, t1, t1)
                with contextlib.nullcontext(t1.reshape(3, 2).reshape(2, 3)) as t14:

                    def fi15(i16):
                        LOG.append(''[:1])
                        l17 = list(reversed(list(filter(None, [1, 2, 3]))))[1:]
                        return Point(i16, right=i4).right
                    return Box(WEIGHT).shift(WEIGHT)
            case [i18, *l19]:
                c20 = Counted(t1)
                if (q := sum((1 for q in c20 if q in l19))) > 1:
                    LOG.append(q)
    finally:
        g21 = counting(3)
        next(g21)
        try:
            g21.throw(ValueError('thrown'))
        except ValueError as error:
            LOG.append(str(error))
        t1.copy_(t1)
    del i4
    i4, i23 = (len(list(itertools.chain([], []))), i4)
    d5['a'] += t22.numel() or i23
ARGUMENTS = [lambda: [tensor(0), Counted(tensor(0), step=0 % 3), {'a': 1}], lambda: [tensor(1), Counted(tensor(1), step=1 % 3), {'a': 1}], lambda: [tensor(2), Counted(tensor(2), step=2 % 3), {'a': 1}]]
