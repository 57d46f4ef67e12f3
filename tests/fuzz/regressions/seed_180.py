# backend: eager
# differed in: exception ('TypeError', "spread() missing 1 required positional argument: 'first'") [None, None] ('TypeError', "spread() missing 1 required positional argument: 'first'") [None, 'ValueError']
import collections
import contextlib
import functools
import math
import torch
COUNT = 0
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

class Box:
    made = 0

    def __init__(self, value, size=2):
        self.value = value
        self.size = size
        self.history = []
        Box.made += 1

    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other), self.size)

class Counted(Box):

    def __init__(self, value, *args, step=1, **kwargs):
        super().__init__(value, *args, **kwargs)
        self.step = step

    def __iter__(self):
        for i in range(self.size):
            yield (i * self.step)

def spread(first, /, second=2, *rest, third=3, **more):
    pass

def f(t1, p2, dt3):
    with contextlib.nullcontext(torch.stack([torch.ones(3), torch.ones(2, 3)[0]])) as t4:
        try:
            *l5, i6 = [q for q in range(1 % 5) if q != 0] * 2
            try:
                Box(WEIGHT)(WEIGHT)[len({*l5}), 7]
            except (KeyError, Fault, ZeroDivisionError) as error:
                LOG.append(error.args)
            t7, t8 = [t4, depth(i6 % 4, t1)]
            torch.addcmul(t1, t4, t4, value=2)[0, 7]
        except ValueError as error:

            def fn9(t10, i11=t4.unsqueeze(0).squeeze(0).size(1)):
                nonlocal t1

                def made(limit):
                    for i12 in range(limit):
                        i13, t14 = tuple([i11, t1])
                        if t10 is t14:
                            break
                        got = (yield i12)
                        LOG.append(got)
                    return limit
                g15 = made(i11 % 3)
                return torch.maximum(torch.zeros(2, 3), torch.ones(2, 3))
            print([1, 2, 3], dict(a=-1 and -1))
            t16 = getattr(Box(WEIGHT) + t1, 'value')
        finally:
            x17 = Counted(WEIGHT)
            print(len(set([1, 2, 3].copy()) & {1, 2}), collections.deque([1, 2, 3], maxlen=2).__len__() / sum((1 for q in Counted(WEIGHT) if q in [1, 2, 3])), sep='|')
        v18 = torch.arange(3.0)
        Box.made += 1
    fn19 = functools.lru_cache(maxsize=None)(lambda t: t * 2)
    l20 = [].copy()
    t1.view(-1)[spread(*l20)] = -1.25 if True else torch.ones(3).tolist()[0]
ARGUMENTS = [lambda: [tensor(0), (0, tensor(0)), {'w': tensor(0), 'u': tensor(9)}], lambda: [tensor(1), (1, tensor(1)), {'w': tensor(1), 'u': tensor(9)}], lambda: [tensor(2), (2, tensor(2)), {'w': tensor(2), 'u': tensor(9)}]]
