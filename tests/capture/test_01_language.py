"""Plain Python around tensors: locals, containers, calls, closures, comprehensions, loops, exceptions, generators, classes."""

import bisect
import collections
import dataclasses
import functools
import heapq
import itertools
import math

import pytest
import torch
from capture.harness import check

X = torch.arange(6.0).reshape(2, 3)
SCALE = 3


def arithmetic(x):
    y = x * 2 + 1
    y -= x
    return -y / SCALE, y ** 2, y // 2, x @ x.T, ~(x > 1)


def unpacking(x):
    a, *b, c = [x, x + 1, x + 2, x + 3]
    (d, e), f = (a, c), b
    return d, e, f, [*f, d], {**{"k": e}, "l": 1}


def calls(x, y=2, *rest, k=3, **more):
    def inner(a, b=1, *, c=2, **kw):
        return a * b + c + kw.get("z", 0)
    return inner(x, y, c=k, z=5), inner(*[x, 4], **{"c": 1}), rest, more


def closures(x):
    total = 0

    def add(v):
        nonlocal total
        total = total + v
        return total
    add(x)
    add(x * 2)
    return total, [f(x) for f in [lambda t, i=i: t + i for i in range(3)]]


def comprehensions(x):
    rows = [r * i for i, r in enumerate(x) if i >= 0]
    table = {k: v for k, v in zip("ab", rows)}
    flags = {i % 2 for i in range(5)}
    return rows, table, flags, tuple(t.sum() for t in rows), sum(r.sum() for r in rows)


def loops(x):
    out = []
    for i in range(10):
        if i == 2:
            continue
        if i > 5:
            break
        x = x + i
        out.append(x)
    else:
        out.append("never")
    n = 3
    while n:
        n -= 1
        x = x * 2
    return out, x, n


def exceptions(x):
    log = []
    for key in ("a", "b"):
        try:
            log.append({"a": x}[key])
        except KeyError as error:
            log.append(error.args)
        else:
            log.append("fine")
        finally:
            log.append("done")
    try:
        raise ValueError("no") from TypeError("why")
    except (TypeError, ValueError) as error:
        log.append(str(error))
    return log


def nested_exceptions(x):
    def fail(v):
        try:
            return [v][3]
        finally:
            log.append("finally")
    log = []
    try:
        fail(x)
    except LookupError:
        log.append("caught")
    return x + len(log), log


def generators(x):
    def steps(n):
        got = 0
        for i in range(n):
            got = yield x * i + (got or 0)
        return "end"

    def outer():
        result = yield from steps(2)
        yield result
    g = steps(3)
    first = next(g)
    second = g.send(10)
    return first, second, list(outer()), list(g), [a for a, in zip(steps(2))]


class Box:
    kind = "box"

    def __init__(self, value):
        self.value = value

    @property
    def double(self):
        return self.value * 2

    @classmethod
    def make(cls, v):
        return cls(v)

    @staticmethod
    def half(v):
        return v / 2

    def __add__(self, other):
        return type(self)(self.value + getattr(other, "value", other))

    def __radd__(self, other):
        return Box(other + self.value)

    def __getitem__(self, key):
        return self.value[key]

    def __len__(self):
        return 2

    def __iter__(self):
        yield self.value
        yield self.double

    def __call__(self, v, *, scale=1):
        return self.value * v * scale

    def __eq__(self, other):
        return isinstance(other, Box)

    def __contains__(self, item):
        return item == 7

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return int(name[5:])
        raise AttributeError(name)


class Child(Box):
    def __init__(self, value):
        super().__init__(value + 1)
        self.extra = [value]

    @property
    def double(self):
        return super().double + 1


def classes(x):
    a, b = Box(x), Child.make(x)
    c = a + b
    d = 1 + a
    first, second = b
    return (c, d.value, b.double, Box.half(x), a[0], len(a), first, second, b(x, scale=3), a == b, 7 in a, a.auto_12, b.kind,
            isinstance(b, Box), hasattr(a, "nope"), getattr(a, "nope", 5), b)


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    tags: list = dataclasses.field(default_factory=list)
    n: int = 0

    def __post_init__(self):
        self.n += 1


Named = collections.namedtuple("Named", "left right")


def records(x):
    p = Point(x * 2, n=4)
    p.tags.append("t")
    q = Named(x, right=p.x + 1)
    left, right = q
    return p, q, q._replace(left=1), q.right, left + right


def containers(x):
    d = collections.OrderedDict(a=x)
    d["b"] = x + 1
    d.move_to_end("a")
    by = collections.defaultdict(list)
    for i in range(4):
        by[i % 2].append(x * i)
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(4)
    items = [3, 1, 2]
    items.sort(key=lambda v: -v)
    items.insert(1, x)
    popped = items.pop()
    s = {1, 2} | {3}
    s.discard(1)
    return d, by, q, items, popped, s, list(d), sorted({"b": 1, "a": 2}), d.get("z", 9), {"k": 1}.items() == {"k": 1}.items()


def iteration(x):
    return (list(itertools.chain([1], [x])), list(itertools.accumulate([x, x, x])), list(map(lambda a, b: a * b, [x, x], [1, 2])),
            list(filter(None, [0, 1, ""])), list(reversed([1, x])), functools.reduce(lambda a, b: a + b, [x, x, x]),
            list(itertools.islice(itertools.count(3), 2)), any(v > 2 for v in [1, 3]), all([]), max([1, 5, 2]), min(3, 2, key=lambda v: -v),
            list(zip(*[(1, x), (2, x)])), list(enumerate("ab", 5)))


def text(x):
    name = "n"
    return f"{name}:{x.shape[0]:03d} {3.14159:.2f} {name!r}", "a,b".split(","), "-".join(str(i) for i in range(3)), "%s %d" % ("x", 3)


def numbers(x):
    return math.sqrt(16) * x, divmod(7, 2), round(2.567, 1), abs(-3), int("4") + float("1.5"), 7 // 2, 2 ** 10, bool([]), x.shape[-1] ** 0.5


def with_blocks(x):
    with torch.no_grad():
        y = x * 2
        inside = torch.is_grad_enabled()
    with Manager([]) as m:
        z = y + 1
        m.log.append("in")
    return y, inside, z, m.log


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind is ValueError)
        return kind is ValueError


def with_swallowed(x):
    with Manager([]) as m:
        raise ValueError("swallowed")
    return x + 1, m.log


def slices(x):
    return x[0], x[:, 1:], x[..., None], x[-1, -1], x[torch.tensor([1, 0])], [1, 2, 3, 4][1:3], (1, 2, 3)[::-1], x[x.shape[0] - 1]


def partials(x):
    f = functools.partial(torch.add, x, alpha=2)
    g = functools.partial(lambda a, b, c=0: a * b + c, x)
    return f(x), g(2), g(3, c=1)


def matching(x):
    out = []
    for value in (1, "s", [x, 2], {"k": x}, None):
        match value:
            case 1:
                out.append("one")
            case str():
                out.append("text")
            case [a, b]:
                out.append(a + b)
            case {"k": v}:
                out.append(v)
            case _:
                out.append("other")
    return out


def walrus_and_ternary(x):
    if (n := x.shape[0]) > 1:
        y = x if n == 2 else -x
    return y, n and 5, n or 6, not n, 1 < n < 3, x is not None


class Tagged(Named):
    def total(self):
        return self.left + self.right


def ordering(x):
    heap = []
    for cost, name in [(3, "a"), (1, "b"), (2, "c")]:
        heapq.heappush(heap, (cost, len(heap), x * cost))
    first = heapq.heappop(heap)
    at = [1, 3, 5]
    bisect.insort(at, 4)
    t = Tagged(x, 1)
    t.note = "n"
    return first, [cost for cost, _, _ in heap], at, bisect.bisect(at, 3), heapq.nlargest(2, [4, 1, 9]), t.total(), t


FUNCTIONS = [ordering, arithmetic, unpacking, closures, comprehensions, loops, exceptions, nested_exceptions, generators, classes, records, containers,
             iteration, text, numbers, with_blocks, with_swallowed, slices, partials, matching, walrus_and_ternary]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_matches_eager(function):
    check(function, X.clone())


def test_arguments_are_bound():
    check(calls, X.clone(), 4, 5, 6, k=7, other=8)
