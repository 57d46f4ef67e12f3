# backend: thruway
# differed in: exception ('Fault', 'wrapped') ['IndexError', 'IndexError'] ('Fault', 'wrapped') ['IndexError', None]
import itertools
import torch
LOG = []
TABLE = {'scale': 2, 'shift': 1}
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

class Counted(Box):

    def __init__(self, value, *args, step=1, **kwargs):
        super().__init__(value, *args, **kwargs)
        self.step = step

    def __call__(self, t):
        return super().__call__(t) - self.step

    def __iter__(self):
        for i in range(self.size):
            yield (i * self.step)

    def __getattr__(self, name):
        if name.startswith('tag_'):
            return name[4:]
        raise AttributeError(name)

    def __eq__(self, other):
        return isinstance(other, Counted) and self.step == other.step

    def __hash__(self):
        return hash(self.step)

class Fault(Exception):

    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code

def counting(limit, start=0):
    i = start
    while i < limit:
        sent = (yield i)
        i += 1 if sent is None else sent
    return i

def f(t1, v2, t3, z4, fn5, z6):
    LOG.append(sorted(set() & set(), key=str))
    TABLE.setdefault('a', 2)
    try:
        g7 = counting(2)
        for i8 in g7:
            for t9, i10 in zip([][:1], list(itertools.takewhile(lambda q: q < 3, []))):
                try:
                    Box(t3, size=i8).absent
                except Exception as error:
                    LOG.append(repr(error))
                    if type(Box(t1)) is Box:
                        raise
            if i8 > 1:
                t3 += Counted(t1)(t3)
                t11 = t12 = torch.ones(2, 3)
            continue
        for i13 in iter(Counted(WEIGHT)):
            for s14 in sorted({'a': 1}):
                TABLE.setdefault(s14, sorted([])[0])
        else:
            for i15 in list(list(itertools.accumulate([0, 2]))):

                def fi16(i17):
                    global COUNT
                    COUNT = COUNT + 1
                    print(str({k: v for k, v in TABLE.items() if v > 0}))
                    return collections.Counter([1, 2, 3])[i17]
                t3 += t3.T.T
                t1 = t1
                continue
        t1[torch.isfinite(WEIGHT)] = 0.5 // 1
    except Exception as error:
        raise Fault('wrapped', int(t3.sum())) from error
    i18, t19 = max([(sum([1, 2, 3]), t3)], key=lambda p: p[0])
    t20 = t1.float()
    i18 = Counted(WEIGHT).push('key').history.__len__()
    i18 = i18 + i18
    fi21 = Point
    i18, i22 = (i18, i18)
    x23 = Box(WEIGHT) if False else Box(WEIGHT)
    dt24 = {f'k{i}': t for i, t in enumerate(list({'w': t3, 'u': t1}.values()))} | {'w': t19}
    x25 = x23.push(0)
    v26 = t1.flatten()[::2]
    t20[i22 << 1] = t1.chunk(2)[0].squeeze(0)
    return iter([1, 2])
ARGUMENTS = [lambda: [tensor(0), tensor(0, 3), tensor(0), tensor(0, 1).sum(), lambda t: t + 0, tensor(0, 1).sum()], lambda: [tensor(1), tensor(1, 3), tensor(1), tensor(1, 1).sum(), lambda t: t + 1, tensor(1, 1).sum()], lambda: [tensor(2), tensor(2, 3), tensor(2), tensor(2, 1).sum(), lambda t: t + 2, tensor(2, 1).sum()]]
