# backend: eager
# differed in: globals
import contextlib
import functools
import itertools
import types
import torch
COUNT = 0
LOG = []
TABLE = {'scale': 2, 'shift': 1}
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

def foreign(function):
    space = {'__name__': 'tqdm.made', '__builtins__': __builtins__}
    return types.FunctionType(function.__code__, space, function.__name__, function.__defaults__)

@foreign
def each(function, values):
    return [function(value) for value in values]

@foreign
def attempt(function, *values):
    try:
        return function(*values)
    except Exception as error:
        return str(error)

@foreign
def drain(generator):
    return [item for item in generator]

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

def spread(first, /, second=2, *rest, third=3, **more):
    return first + second + sum(rest) + third + sum(more.values())

def depth(n, t):
    return t if n <= 0 else depth(n - 1, t * 0.5 + n)

def f(t1, b2, lt3):
    for v4 in max([WEIGHT], key=lambda t: t.dim(), default=torch.rand(2, 3)):

        def fn5(t6, *l7, **d8):

            @functools.wraps(depth)
            def fn9(t10):
                return t10
            if torch.ones(3) @ v4 > -1.25 % 2:
                l7.append(t6.stride(0))
                d8['a'] = WEIGHT.masked_fill(torch.ones(2, 3).bool(), float('1.5')).shape[0]
            return t1.sort(1).values

        def made(limit):
            for i11 in range(limit):
                t12 = t1
                i13 = 0
                while i13 < 3:
                    i13 += 1
                    for v14 in t12:
                        d15 = {k: v for k, v in {k: v for k, v in dict(a=i11).items() if v > 0}.items() if v > 0}
                    t16 = t12 @ t1.t() @ t12
                    t17 = t16.sort(1).values
                    break
                if b2:
                    break
                got = (yield i11)
                LOG.append(got)
            return limit
        g18 = made(spread(sum([][1:]), third=1, z=3) % 3)
        print(t1.sum().item() > 0)
    with torch.enable_grad():
        with contextlib.suppress(Exception):
            fn19 = [lambda t, w=min(float(t1.norm()), abs(int(torch.tensor(1.5)))): t * w for q in range(2)][functools.reduce(lambda a, b: a * 2 + b, [], {k: v + 1 for k, v in {'a': 1}.items()}.get('b', 3)) % 2]
            z20, t21 = (torch.tensor(0), (t1 * t1).add(t1, alpha=2))
            while t21.norm() > 1 and z20 < 4:
                t21 = t21 * 0.5
                z20 += 1
            try:
                try:
                    raise IndexError
                except Exception as error:
                    lt22 = each(functools.partial(depth, 2 % 3), [t for i, t in enumerate(lt3) if i in [0, 2]])
                    LOG.append(attempt(lambda t, by=[].__len__(): t + by, t1))
            except Exception as error:
                print(type(error).__name__)
            else:
                if b2:
                    t1 = t1
                    d23 = TABLE
            1 // (3 * 0)
        i24, t25 = (1, WEIGHT)

    def made(t26):
        nonlocal t1
        i27 = i28 = {k: v + 1 for k, v in {'a': 1}.items()}.copy()['a']
        yield torch.ones(2, 3)
        TABLE['shift'] = sum(list((q * 2 for q in [1, 2, 3])))
        x29 = Box(WEIGHT).push(COUNT)
        s30 = f'{tuple([*list(map(lambda q: q + 1, [1, 2, 3])), abs(int(torch.tensor(1.5)))])}'
        yield (t1 - torch.tensor([-1.25, 0.0 if b2 else 0.0, torch.tensor(1.5).item() ** 2]))
    lt31 = drain(made(t1))
    i32, i33 = (list(t1.shape).count(round(t1[0, 1].item())), spread(3, hash(sum([]))))
    t1 = [*[b(WEIGHT) for b in [Box(WEIGHT), Counted.fresh(t1)]], t1][-1]
    lt34 = each(functools.partial(depth, i32 % 3), list(map(lambda t: t + t1, lt31)))
    i35 = Box.made * 0
    f36 = (torch.tensor(1.5) * i33).item() % 2 if b2 else max(math.pi, 2.0)
    i37 = i32
    z38 = t1.std().abs()
    lt39 = list(reversed(lt3))[:1]
    t1 += t1
    s40 = 'b'
    LOG.append(attempt(functools.partial(torch.mul, t1), t1))
    t41 = t42 = t1
    LOG.append(sorted(({i37, i32} | {1, 2}).union([]), key=str))
    i43 = sum([1, 2, 3])
    next(itertools.chain([0, 2], list(iter(range(3)))))
    i32 = -i32
    LOG.append(attempt(Box.shift, t41.where(t1.ge(0), t42)))
    fn44 = torch.nn.functional.relu
    t42.add_(t42 if b2 else WEIGHT)
    c45 = Counted.fresh(t41)
    t1.view(-1)[int(torch.isfinite(t42).sum())] = f36 + 0.0
    return lambda t: t + 1
ARGUMENTS = [lambda: [tensor(0), True, [tensor(0), tensor(0 + 7)]], lambda: [tensor(1), True, [tensor(1), tensor(1 + 7)]], lambda: [tensor(0), True, [tensor(0), tensor(0 + 7)]]]
