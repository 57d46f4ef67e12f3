# backend: eager
# differed in: timeout
import collections
import functools
import types
import torch
LOG = []

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

def foreign(function):
    space = {'__name__': 'tqdm.made', '__builtins__': __builtins__}
    return types.FunctionType(function.__code__, space, function.__name__, function.__defaults__)

@foreign
def twice(function, value):
    function(value)
    return function(value)

class Box:
    made = 0

    def __init__(self, value, size=2):
        self.value = value
        self.size = size
        self.history = []
        Box.made += 1

    @property
    def double(self):
        return self.value * 2

    @classmethod
    def fresh(cls, value):
        return cls(value, size=3)

    @staticmethod
    def shift(t, by=1):
        return t + by

    def push(self, item):
        self.history.append(item)
        return self

    def __call__(self, t):
        return t * self.size + self.value

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.value[index]

    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other), self.size)

    def __enter__(self):
        self.size += 1
        return self

    def __exit__(self, kind, error, trace):
        self.size -= 1
        self.history.append(kind.__name__ if kind else None)
        return kind is KeyError

def spread(first, /, second=2, *rest, third=3, **more):
    return first + second + sum(rest) + third + sum(more.values())

def depth(n, t):
    return t if n <= 0 else depth(n - 1, t * 0.5 + n)

def f(t1, x2, m3):
    LOG.append(sorted({q for q in [q if q > 1 else -q for q in [0, 2]] if q > 0}, key=str))
    t1.zero_()
    t4 = twice(functools.partial(depth, 1 % 3), t1)
    if torch.tensor(1.5) > 0:
        i5, t6 = (-1, torch.ones(2, 3))
    LOG.append(','.join(sorted(collections.OrderedDict({**{'a': 1}, 'c': -1}))))
    i7 = 0
    while i7 < 3:
        i7 += 1
        if t4[0, 1] > float(False):
            t4[spread(-1, third=i7, z=i7)] = t4.select(0, 1)
        else:
            i7 = collections.deque(list(filter(None, [k(i7) for k in [lambda z, j=j: z + j for j in range(2)]])), maxlen=2).__len__()
        print(sum([0, 2][::-1]), round(0.5, 1), sep='|')
    x2.push(list(reversed([1, 2, 3])))
    LOG.append(len(list(reversed([]))))
    return (functools.partial(spread, 1, third=i7)((q := i7) + q), torch.ones(2, 3))
ARGUMENTS = [lambda: [tensor(0), Box(tensor(0), 0 % 3 + 1), tensor(0) > 0], lambda: [tensor(1), Box(tensor(1), 1 % 3 + 1), tensor(1) > 0], lambda: [tensor(0), Box(tensor(0), 0 % 3 + 1), tensor(0) > 0]]
