"""The grammar of the fuzzer, as data: templates of expressions by type, and of statements.

Types: T a float tensor of shape (2, 3), V one of (3,), Z a scalar tensor, M a bool tensor (2, 3), I int, F float, B bool, S str, L a list of
ints, LT a list of tensors T, D a dict str → int, DT a dict str → T, P a pair (I, T), G an iterable of ints, FN a function T → T, FI one
I → I, X an instance of Box, C a Counted. In templates `<T>` is an expression, `<T!>` an own variable that may be written, `<T=a>` a new
variable, `<T@a>` that variable again, `<block>` statements one level deeper, `<global>`/`<nonlocal>` a declaration.
"""

from __future__ import annotations

PRELUDE = '''
import collections
import contextlib
import functools
import itertools
import math
import operator
import re
import types
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

COUNT = 0
LOG = []
TABLE = {"scale": 2, "shift": 1}
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8


def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2


def foreign(function):
    space = {"__name__": "tqdm.made", "__builtins__": __builtins__}
    return types.FunctionType(function.__code__, space, function.__name__, function.__defaults__)


@foreign
def each(function, values):
    return [function(value) for value in values]


@foreign
def fold(function, values, first):
    for value in values:
        first = function(first, value)
    return first


@foreign
def twice(function, value):
    function(value)
    return function(value)


@foreign
def attempt(function, *values):
    try:
        return function(*values)
    except Exception as error:
        return str(error)


@foreign
def drain(generator):
    return [item for item in generator]
'''

# Plain Python that calls back: C functions, and functions of a module that is never captured.
CALLBACKS: tuple[tuple[int, str], ...] = (
    (2, "<LT=a> = each(<FN>, <LT>)"), (2, "<LT=a> = each(lambda t, by=<F>: t * by + <T>, <LT>)"), (1, "LOG.extend(each(<FI>, <L>))"), (2, "<T=a> = twice(<FN>, <T>)"),
    (2, "<T=a> = fold(lambda a, b: a + b * <F>, <LT>, <T>)"), (1, "<I=a> = fold(lambda a, t: a + int(t.sum().item() > <F>), <LT>, <I>)"), (1, "<LT=a> = each(<X>, <LT>)"),
    (1, "<LT!>.sort(key=lambda t: t.sum().item())"), (1, "<L!>.sort(key=lambda q: (<T>.sum() * q).item())"), (1, "<L!>.sort(key=<FI>)"),
    (1, "<LT=a> = list(map(<FN>, <LT>))"), (1, "<LT=a> = drain(map(<FN>, <LT>))"), (1, "<LT=a> = drain(filter(lambda t: (t * <F>).sum() > 0, <LT>))"),
    (1, "<S=a> = re.sub('[a-z]', lambda m: str(len(LOG)) + str(<T>.shape[0]), <S>)"), (1, "<T=a> = functools.reduce(lambda a, b: (a - b).abs(), <LT>, <T>)"),
    (2, "def <FN=a>(<T=p>, <I=q>=<I>):\n    <function>\n    return <T>\n<LT=b> = each(<FN@a>, <LT>)\n<T=c> = twice(<FN@a>, <T>)"),
    (2, "def <FN=a>(<T=p>):\n    <function>\n    print(<S>)\n    <block>\n    return <T>\n<LT=b> = each(<FN@a>, <LT>)"),
    (1, "for <I=a> in range(2):\n    <FN=b> = lambda t: t * <I@a> + <T>\n    <LT=c> = each(<FN@b>, <LT>)\n    <block>"),
    (1, "LOG.append(attempt(<FN>, <V>))"), (1, "LOG.append(attempt(<FN>, <T>))"), (1, "LOG.append(attempt(lambda: <T>[<I>, 7] + 1))"),
    (1, "def made(<T=p>):\n    <function>\n    yield <T>\n    <block>\n    yield <T>\n<LT=a> = drain(made(<T>))"), (1, "LOG.append(max(each(lambda t: t.sum().item(), <LT>), default=0.0))"),
    (1, "try:\n    <raise>\nexcept Exception as error:\n    <LT=a> = each(<FN>, <LT>)\n    LOG.append(attempt(<FN>, <T>))"),
)

CLASSES = {
    "Box": '''
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
''',
    "Counted": '''
class Counted(Box):
    def __init__(self, value, *args, step=1, **kwargs):
        super().__init__(value, *args, **kwargs)
        self.step = step

    def __call__(self, t):
        return super().__call__(t) - self.step

    def __iter__(self):
        for i in range(self.size):
            yield i * self.step

    def __getattr__(self, name):
        if name.startswith("tag_"):
            return name[4:]
        raise AttributeError(name)

    def __eq__(self, other):
        return isinstance(other, Counted) and self.step == other.step

    def __hash__(self):
        return hash(self.step)
''',
    "Point": '''
@dataclass
class Point:
    left: int
    right: int = 3
    tags: list = field(default_factory=list)

    def total(self):
        return self.left + self.right


class Pair(NamedTuple):
    number: int
    tensor: object = None


class Fault(Exception):
    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code
''',
    "scoped": '''
@contextlib.contextmanager
def scoped(name, swallow=False):
    LOG.append("in " + name)
    try:
        yield name * 2
    except ValueError:
        LOG.append("caught " + name)
        if not swallow:
            raise
    finally:
        LOG.append("out " + name)


def counting(limit, start=0):
    i = start
    while i < limit:
        sent = yield i
        i += 1 if sent is None else sent
    return i


def chained(limit):
    last = yield from counting(limit)
    yield last * 10


def spread(first, /, second=2, *rest, third=3, **more):
    return first + second + sum(rest) + third + sum(more.values())


def depth(n, t):
    return t if n <= 0 else depth(n - 1, t * 0.5 + n)
''',
}

# Makers of an argument of each type, by seed; `{i}` differs between calls.
ARGUMENTS = {
    "T": ("tensor({i})",), "V": ("tensor({i}, 3)",), "Z": ("tensor({i}, 1).sum()",), "M": ("tensor({i}) > 0",),
    "I": ("{i} % 4", "2", "{i} - 1", "3"), "F": ("{i} * 0.5", "1.5", "-0.25"), "B": ("{i} % 2 == 0", "True"), "S": ("'ab' * ({i} % 3)", "'key'"),
    "L": ("list(range({i} % 4 + 1))", "[3, 1, 2]"), "LT": ("[tensor({i}), tensor({i} + 7)]", "[tensor(k) for k in range({i} % 3)]"),
    "D": ("{{'a': {i}, 'b': 2}}", "{{'a': 1}}"), "DT": ("{{'w': tensor({i}), 'u': tensor(9)}}",), "X": ("Box(tensor({i}))", "Box(tensor({i}), {i} % 3 + 1)"),
    "SE": ("{{{i}, 2}}", "set()", "{{1, 2, 3}}"),
    "C": ("Counted(tensor({i}), step={i} % 3)", "Counted(tensor({i}), 2)"), "P": ("({i}, tensor({i}))",), "FN": ("torch.relu", "(lambda t: t + {i})", "Box.shift"),
}

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "T": (
        "<T> + <T>", "<T> * <T>", "<T> - <V>", "<T> * <F>", "<T> + <I>", "<I> - <T>", "<T> / (<T>.abs() + 1)", "<T>.relu()", "torch.sin(<T>)", "<T>.clone()",
        "torch.where(<M>, <T>, <T>)", "<T>.clamp(min=<F>)", "<T>.t().contiguous().t()", "<T>.reshape(3, 2).reshape(2, 3)", "<T>.view(6).view(2, 3)",
        "torch.stack([<V>, <V>])", "torch.cat([<T>[:1], <T>[1:]])", "<T> if <B> else <T>", "<FN>(<T>)", "<X>.value", "<X>.double", "<X>(<T>)", "<C>(<T>)",
        "<LT>[<I>]", "<DT>['w']", "<DT>.get('w', <T>)", "<P>[1]", "torch.zeros(2, 3)", "torch.ones_like(<T>) * <I>", "<T>.flip(0)", "WEIGHT * <T>", "<T>.detach()",
        "<T>.masked_fill(<M>, <F>)", "sum(<LT>, start=<T>)", "functools.reduce(operator.add, <LT>, <T>)", "torch.maximum(<T>, <T>)", "<T>.T.T", "(<T> @ <T>.t()) @ <T>",
        "depth(<I> % 4, <T>)", "Box.shift(<T>, by=<I>)", "<X>.shift(<T>)", "functools.partial(torch.add, <T>)(<T>)", "(lambda q: q * 2 + <T>)(<T>)", "<T>.expand(2, 3)",
        "<V>.expand(2, 3)", "<T>.softmax(-1)", "<T>.cumsum(1)", "torch.nn.functional.gelu(<T>)", "-<T>", "<T> ** 2", "<T>.index_select(0, torch.tensor([1, 0]))",
        "next(iter(<LT>), <T>)", "<T>[[1, 0]]", "<T>.unsqueeze(0).squeeze(0)", "torch.full((2, 3), <F>)", "<T>.float()", "<T>.double().float()", "max(<LT>, key=lambda t: t.dim(), default=<T>)",
        "getattr(<X>, 'value')", "(<X> + <T>).value", "<T>.where(<M>, <T>)", "(<I> and <T>) + 1", "<T>.add(<T>, alpha=<I>)", "torch.addcmul(<T>, <T>, <T>, value=2)",
        "Pair(<I>, <T>).tensor", "Pair(<I>, tensor=<T>)._replace(number=3)[1]", "<T>.roll(1, 0)", "torch.nn.functional.linear(<T>, torch.eye(3))", "<T>.sub(1).mul_(2)",
        "torch.rand(2, 3)", "torch.dropout(<T>, 0.5, True)", "operator.mul(<T>, <T>)", "[*<LT>, <T>][-1]", "{**<DT>, 'z': <T>}['z']", "torch.empty_like(<T>).fill_(<F>)", "<T>.sort(1).values",
    ),
    "V": ("<T>[<I>]", "<T>[0]", "<T>.sum(0)", "<T>.mean(dim=0)", "<V> + <V>", "<V> * <F>", "<T>.max(0).values", "torch.arange(3.0)", "<T>[:, :3][1]", "<T>.unbind()[0]", "<X>[0]",
          "torch.tensor([1.0, 2.0, 3.0])", "<T>.flatten()[::2]", "<T>.chunk(2)[0].squeeze(0)", "[row for row in <T>][-1]", "<V>.neg()", "<T>[<M>].new_ones(3)", "torch.stack([<Z>, <Z>, <Z>])",
          "<T>.diagonal().sum() * <V>", "torch.tensor([<F>, <F>, <F>])", "<T>.view(-1)[:3]", "<T>.select(0, 1)", "<T>.amin(0)"),
    "Z": ("<T>.sum()", "<V>.mean()", "<T>[0, 1]", "<Z> + <Z>", "<T>.max()", "torch.tensor(<F>)", "<V>[<I>]", "<V> @ <V>", "<Z>.abs()", "<T>.norm()", "<Z> * <I>", "<T>.std()", "<T>.min().neg()"),
    "M": ("<T> > <T>", "<T> <= <F>", "<M> & <M>", "~<M>", "<M> | <M>", "<T> == <T>", "torch.isfinite(<T>)", "<T>.bool()", "<T>.ge(0)", "<M>.clone()"),
    "I": (
        "<I> + <I>", "<I> - <I>", "<I> * 2", "<I> // 2", "<I> % 3", "len(<L>)", "len(<LT>)", "<T>.shape[0]", "<T>.size(1)", "<T>.dim()", "<T>.numel()", "<L>[<I>]", "<D>['a']",
        "<D>.get('b', <I>)", "sum(<L>)", "max(<I>, <I>)", "min(<L>, default=<I>)", "abs(<I>)", "int(<F>)", "len(<S>)", "<I> if <B> else <I>", "<FI>(<I>)", "<P>[0]", "COUNT", "TABLE['scale']", "len(<X>)",
        "<X>.size", "int(<Z>)", "int(<Z>.item() * 2)", "round(<Z>.item())", "math.floor(<Z>.item())", "int(<Z>) ** 2", "abs(int(<Z>))", "(<Z> > 0).item() + <I>", "<T>.argmax().item()", "sum(q * q for q in <L>)", "spread(<I>, <I>)", "spread(<I>, third=<I>, z=<I>)", "spread(*<L>)", "spread(1, **<D>)", "-<I>", "~<I>", "<I> << 1",
        "divmod(<I>, 3)[1]", "sorted(<L>)[0]", "<L>.count(<I>)", "hash(<I>)", "next(<G>, <I>)", "Point(<I>).total()", "Point(<I>, right=<I>).right", "<I> or <I>", "<I> and <I>", "bool(<I>) + 1",
        "math.floor(<F>)", "operator.itemgetter(0)(<L>)", "collections.Counter(<L>)[<I>]", "len({*<L>})", "len(set(<L>) & {1, 2})", "next(iter(<L>), -1)", "round(<F>)", "<I> ^ <I>", "<X>.history.__len__()",
        "functools.reduce(lambda a, b: a * 2 + b, <L>, <I>)", "len(list(itertools.chain(<L>, <L>)))", "max(<L>, key=lambda q: -q, default=<I>)", "ord((<S> + 'z')[0])", "(q := <I>) + q", "<C>.step", "Box.made * 0",
        "<I> // <I>", "<I> % <I>", "<L>.index(<I>)", "<D>[<S>]", "sum(list(<C>))", "int(<M>.sum())", "len(<T>[<M>])", "[].__len__()", "int(<S> or '7', 36) % 11", "len(<DT>)", "sum(map(<FI>, <L>))",
        "collections.deque(<L>, maxlen=2).__len__()", "<T>.stride(0)", "len(<T>)", "int(torch.is_grad_enabled())", "len(f'{<I>:>4}')", "isinstance(<X>, Counted) + 0", "sum(1 for q in <C> if q in <L>)",
    ),
    "F": ("<F> + <F>", "<F> * 2", "math.sqrt(abs(<Z>.item()))", "<Z>.item() ** 2", "round(<Z>.item(), 2)", "<Z>.item() % 2", "float(<I>)", "<I> / 2", "<Z>.item()", "math.sqrt(abs(<F>))", "float(<Z>)", "max(<F>, <F>)", "<F> if <B> else <F>", "<F> - <I>", "<V>.tolist()[0]", "round(<F>, 1)", "math.pi",
          "abs(<F>)", "float(<B>)", "<F> ** 2", "<I> / <I>", "math.sin(<F>)", "sum(<V>.tolist())", "float('1.5')", "min(<F>, <I>)", "<F> // 1", "<F> % 2"),
    "B": ("<I> > <I>", "<I> == <I>", "not <B>", "<B> and <B>", "<B> or <B>", "<F> < <F>", "<I> in <L>", "'a' in <D>", "<S> == <S>", "isinstance(<X>, Box)", "bool(<L>)", "0 < <I> <= 3", "any(q > 1 for q in <L>)",
          "all(<L>)", "<Z> > 0", "bool(<Z> < 1)", "<T>.sum() > <T>.sum()", "<T>.requires_grad", "<T> is <T>", "<I> is not None", "hasattr(<X>, 'value')", "callable(<FN>)", "<S>.startswith('a')", "<I> not in <D>.values()",
          "<M>.any()", "any([<Z> > 0, <M>.all()])", "all([<B>, <Z> > 0])", "torch.allclose(<T>, <T>)", "torch.equal(<T>, <T>)", "<T>.is_contiguous()", "torch.is_tensor(<T>)", "<L> == <L>", "<D> == <D>", "<X> is <X>", "<T>.dtype == torch.float32", "<T>.shape == (2, 3)", "type(<X>) is Box",
          "hasattr(<C>, 'tag_x')", "<C> == <C>", "<L> < <L>", "issubclass(Counted, Box)", "bool(<X>)", "math.isnan(<F>)", "<C> in [<C>]", "<I> in <SE>", "<SE> <= <SE>", "<SE> == <SE>", "bool(<SE>)", "<SE>.isdisjoint(<L>)", "<M>.all().item()", "<S> in <D>", "len(<L>) > 1 and <L>[1] > <I>"),
    "S": ("f'{<I>}-{<S>}'", "<S> + 'x'", "<S>.upper()", "str(<I>)", "'%d' % <I>", "f'{<F>:.2f}'", "f'{<S>!r:>6}'", "'-'.join(map(str, <L>))", "<S> * 2", "<S>[:1]", "'{} {}'.format(<I>, <S>)", "f'{<T>.shape}'", "repr(<L>)",
          "<S>.replace('a', 'b')", "type(<X>).__name__", "'a' if <B> else 'b'", "f'{<L>}'", "','.join(sorted(<D>))", "<S>.split('a')[0]", "str(<T>.dtype)", "f'{<I>:03d}{<B>}'", "<C>.tag_name", "<S>.strip('x')",
          "str(<D>)", "repr(Point(<I>))", "f'{<I>=}'", "chr(97 + <I> % 5)", "<S>.rjust(4, '.')", "f'{tuple(<L>)}'", "str(<T>.tolist()[0][0] > 0)", "f'{Pair(<I>)}'", "<S>.partition('-')[2]", "f'{<Z>.item():.3f}'"),
    "L": ("[q + 1 for q in <L>]", "[q for q in range(<I> % 5) if q != <I>]", "<L> + <L>", "sorted(<L>, reverse=True)", "list(range(<I> % 5))", "[<I>, <I>]", "[*<L>, <I>]", "<L>[1:]", "<L>[::-1]", "list(map(<FI>, <L>))",
          "list(<D>.values())", "[q * r for q in <L> for r in (1, 2)]", "list(filter(None, <L>))", "list(reversed(<L>))", "list(<G>)", "[int(q) for q in str(abs(<I>))]", "list(set(<L>))", "[a + b for a, b in zip(<L>, <L>)]",
          "[i * q for i, q in enumerate(<L>)]", "<L> * 2", "list(itertools.accumulate(<L>))", "list(itertools.islice(<G>, 2))", "<X>.history", "list(<C>)", "<L>.copy()", "[sum(p) for p in itertools.product(<L>, (1, 2))]",
          "list(collections.Counter(<L>).elements())", "[k(<I>) for k in [lambda z, j=j: z + j for j in range(2)]]", "list(<T>.shape)", "<M>.nonzero().flatten().tolist()", "list(chained(<I> % 4))", "list(dict.fromkeys(<L>))",
          "[q if q > 1 else -q for q in <L>]", "[[a, b] for a, b in zip(<L>, <L>)][0]", "list(itertools.takewhile(lambda q: q < 3, <L>))", "list(collections.deque(<L>, maxlen=2))", "Point(<I>, tags=<L>).tags", "[(q := q + z) for z in <L> for q in [<I>]]"),
    "LT": ("[<T>, <T>]", "[t * 2 for t in <LT>]", "<LT> + [<T>]", "list(<DT>.values())", "[t for t in <LT> if t.sum() > 0]", "[*<LT>]", "<LT>[:1]", "[<FN>(t) for t in <LT>]", "[<T> + i for i in range(2)]", "list(map(<FN>, <LT>))", "[]",
           "[t + u for t, u in zip(<LT>, <LT>)]", "sorted(<LT>, key=lambda t: float(t.sum()))", "list(reversed(<LT>))", "[torch.stack(list(<T>.unbind()))]", "[b(<T>) for b in [<X>, <C>]]", "[t for i, t in enumerate(<LT>) if i in <L>]"),
    "D": ("{'a': <I>, 'b': <I>}", "{**<D>, 'c': <I>}", "dict(a=<I>)", "{k: v + 1 for k, v in <D>.items()}", "dict(zip('ab', <L>))", "<D> | {'a': <I>}", "dict(sorted(<D>.items()))", "TABLE", "vars(Point(<I>, 1)) | {'a': 1}",
          "{str(q): q for q in <L>}", "<D>.copy()", "dict(<D>, b=<I>)", "collections.OrderedDict(<D>)", "collections.defaultdict(int, <D>)", "dict(collections.Counter(<S>))", "{k: v for k, v in <D>.items() if v > 0}"),
    "DT": ("{'w': <T>, 'u': <T>}", "{**<DT>, 'w': <T>}", "{k: v * 2 for k, v in <DT>.items()}", "dict(w=<T>)", "<DT> | {'u': <T>}", "{f'k{i}': t for i, t in enumerate(<LT>)} | {'w': <T>}"),
    "P": ("(<I>, <T>)", "(<I>, <T>)[:2]", "Pair(<I>, <T>)", "max([(<I>, <T>)], key=lambda p: p[0])", "tuple([<I>, <T>])"),
    "G": ("iter(<L>)", "(q * 2 for q in <L>)", "counting(<I> % 4)", "chained(<I> % 3)", "map(<FI>, <L>)", "filter(lambda q: q % 2, <L>)", "itertools.chain(<L>, <L>)", "reversed(<L>)", "iter(<C>)", "iter(range(<I> % 5))",
          "(a for a, b in zip(<L>, <L>))", "(i for i, q in enumerate(<L>) if q)", "iter(<D>.values())"),
    "FN": ("(lambda t: t * <F>)", "(lambda t, by=<I>: t + by)", "torch.relu", "functools.partial(torch.mul, <T>)", "<X>", "Box.shift", "(lambda t: t + <T>)", "<C>", "torch.nn.functional.relu", "<X>.__call__", "functools.partial(depth, <I> % 3)",
           "(lambda *args, **kw: args[0] - 1)", "<T>.add", "operator.neg", "(<FN> if <B> else <FN>)"),
    "FI": ("(lambda q: q + <I>)", "(lambda q, r=2: q * r)", "abs", "functools.partial(operator.add, <I>)", "(lambda q: -q if q > 1 else q)", "spread", "functools.partial(spread, 1, third=<I>)", "(lambda q: [q, 1][q > 2])", "Point", "<L>.count"),
    "SE": ("{<I>, <I>}", "set(<L>)", "<SE> | <SE>", "<SE> & <SE>", "{q for q in <L> if q > 0}", "<SE> - {<I>}", "<SE> ^ <SE>", "frozenset(<L>)", "<SE>.union(<L>)", "<SE>.copy()", "set(<D>)"),
    "X": ("Box(<T>)", "Box(<T>, size=<I>)", "Box.fresh(<T>)", "<X>.push(<I>)", "<C>", "<X> + <T>", "<X> + <X>", "(<X> if <B> else <X>)"),
    "C": ("Counted(<T>)", "Counted(<T>, step=<I>)", "Counted.fresh(<T>)", "<C>.push(<S>)", "Counted(<T>, 3, step=2)"),
}
LITERALS = {
    "T": ("WEIGHT", "torch.ones(2, 3)"), "V": ("torch.ones(3)",), "Z": ("torch.tensor(1.5)",), "M": ("torch.ones(2, 3).bool()",), "I": ("0", "1", "2", "3", "-1"), "F": ("0.5", "-1.25", "2.0", "0.0"),
    "B": ("True", "False"), "S": ("'a'", "'key'", "''", "'b'"), "L": ("[1, 2, 3]", "[]", "[0, 2]"), "LT": ("[WEIGHT]", "[]"), "D": ("{'a': 1}", "TABLE"), "DT": ("{'w': WEIGHT}",), "P": ("(1, WEIGHT)",),
    "G": ("iter([1, 2])", "iter(range(3))"), "FN": ("torch.neg", "(lambda t: t + 1)"), "FI": ("abs", "(lambda q: q + 1)"), "X": ("Box(WEIGHT)",), "SE": ("{1, 2}", "set()"), "C": ("Counted(WEIGHT)",),
}
TYPES = tuple(EXPRESSIONS)

# Loops and branches on what tensors hold: some stay in the graph, some do not.
ON_TENSORS: tuple[tuple[int, str], ...] = (
    (2, "<I=a> = 0\n<T=b> = <T>\nwhile <T@b>.abs().sum() > <F> and <I@a> < 4:\n    <I@a> += 1\n    <T@b> = <T@b> * 0.5"),
    (1, "<I=a> = 0\n<T=b> = <T>\nwhile <T@b>.norm() > 1 and <I@a> < 3:\n    <I@a> += 1\n    <T@b> = <T@b> - <T>\n    <loop>"),
    (2, "<T=b> = <T>\nfor <I=a> in range(4):\n    <T@b> = <T@b> * <F>\n    if <T@b>.sum() > <F>:\n        break"),
    (1, "for <I=a> in range(3):\n    <loop>\n    if <Z> > <F>:\n        break\nelse:\n    <block>"),
    (1, "<I=a>, <T=b> = 0, <T>\nwhile True:\n    <I@a> += 1\n    if <T@b>.max() < <F> or <I@a> > 3:\n        break\n    <T@b> = <T@b> / 2 - 0.1"),
    (1, "<I=a>, <T=b> = 0, <T>.clone()\nwhile <T@b>.norm() > 0.5 and <I@a> < 5:\n    <T@b> /= 2\n    <I@a> += 2\n    if <T@b>.sum() > 0:\n        continue\n    <T@b> -= 0.25"),
    (1, "<Z=a>, <T=b> = torch.tensor(0), <T>\nwhile <T@b>.norm() > 1 and <Z@a> < 4:\n    <T@b> = <T@b> * 0.5\n    <Z@a> += 1"),
    (1, "<I=a>, <F=b> = 0, <F>\nwhile (<T> * <F@b>).norm() > 1 and <I@a> < 3:\n    <F@b> = <F@b> / 2\n    <I@a> += 1"),
    (1, "for <I=a> in range(<M>.sum().item() % 4):\n    <loop>"), (1, "<T=b> = <T>\nfor <I=a> in range(int(<T@b>.abs().sum()) % 5):\n    <T@b> = <T@b> + <I@a>"),
    (1, "<T=b> = <T>\nfor <I=a> in range(6):\n    <T@b> = <T@b> * 0.5\n    if <T@b>.norm() < 1:\n        return <T@b>, <I@a>"),
    (2, "if <Z> > <F>:\n    print(<S>)\n    LOG.append(<I>)"), (2, "if <Z> > 0:\n    <X!>.size += 1\nelse:\n    <X!>.push(<I>)"), (1, "if <M>.any():\n    LOG.append(<T>)\n    <block>"),
    (1, "if <Z> > <F>:\n    <L!>.append(<I>)\n    <D!>['a'] = <I>"), (1, "if <Z> < 0:\n    print(<Z>.item() > -1)\n    return <T>"), (1, "if <T>.isnan().any():\n    LOG.append('nan')\nelse:\n    TABLE['shift'] = <I>"),
    (1, "global COUNT\nif <Z> > 0:\n    COUNT += 1"), (1, "if <Z> > 0:\n    <X!>.value = <T>\n    print(<T>.shape)\n<X!>.history.append(<I>)"), (1, "assert <Z> < 50, <S>"),
)

# (weight, template)
STATEMENTS: tuple[tuple[int, str], ...] = (
    *((9 if kind == "T" else 4 if kind in ("I", "L", "X") else 2, f"<{kind}={kind.lower()}> = <{kind}>") for kind in TYPES),
    *CALLBACKS, *ON_TENSORS,
    (6, "<T!> = <T>"), (4, "<I!> = <I>"), (3, "<I!> += <I>"), (3, "<T!> += <T>"), (2, "<T!> *= <F>"), (2, "<T!>.add_(<T>)"), (2, "<T!>[<I>] = <V>"), (1, "<T!>[0, 1] = <F>"), (1, "<T!>[:, 1] += <F>"),
    (1, "<T!>[<M>] = <F>"), (1, "<T!>.mul_(<F>)"), (1, "<T!>.copy_(<T>)"), (1, "<T!>.zero_()"), (1, "<T!>.view(-1)[<I>] = <F>"), (1, "<T!>.t().add_(<F>)"), (1, "<V!> -= <F>"), (1, "<V!>[0] = <Z>"), (1, "<T!>.clamp_(min=0)"),
    (2, "<L!>.append(<I>)"), (1, "<L!>.extend(<L>)"), (1, "<L!>.insert(0, <I>)"), (1, "<L!>.pop()"), (1, "<L!>.sort()"), (1, "<L!>.reverse()"), (1, "<L!>[<I>] = <I>"), (1, "<L!>[1:] = <L>"), (1, "del <L!>[0]"), (1, "<L!> += <L>"),
    (1, "<L!>.remove(<I>)"), (1, "<L!> *= 2"), (1, "<L!>.clear()"), (2, "<LT!>.append(<T>)"), (1, "<LT!>[0] = <T>"), (1, "<LT!>[-1] += <F>"), (1, "<LT!> += [<T>]"),
    (2, "<D!>['a'] = <I>"), (1, "<D!>[<S>] = <I>"), (1, "<D!>['a'] += <I>"), (1, "<D!>.update(<D>)"), (1, "<D!>.pop('a', None)"), (1, "<D!>.setdefault('n', <I>)"), (1, "del <D!>['a']"), (1, "<D!> |= <D>"), (1, "<D!>.popitem()"),
    (1, "<SE!>.add(<I>)"), (1, "<SE!>.discard(<I>)"), (1, "<SE!> |= <SE>"), (1, "<SE!> &= <SE>"), (1, "<SE!>.update(<L>)"), (1, "<SE!>.remove(<I>)"), (1, "LOG.append(sorted(<SE>, key=str))"),
    (1, "for <I=a> in sorted(<SE>, key=str):\n    <loop>"), (1, "<DT!>['w'] = <T>"), (1, "<DT!>['w'] += <T>"), (1, "<DT!>['n'] = <T>"),
    (2, "<X!>.value = <T>"), (2, "<X!>.size += 1"), (1, "<X!>.push(<I>).push(<S>)"), (1, "setattr(<X!>, 'extra', <I>)"), (1, "<X!>.value += <T>"), (1, "<X!>.value.add_(<F>)"), (1, "<X!>.history.append(<T>)"), (1, "Box.made += 1"), (1, "<X!>.value[0] = <V>"),
    (3, "LOG.append(<S>)"), (2, "LOG.append(<I>)"), (1, "LOG.append(<T>)"), (1, "TABLE['shift'] = <I>"), (1, "TABLE.setdefault(<S>, <I>)"),
    (4, "print(<S>)"), (2, "print(<I>, <F>, sep='|')"), (2, "print(<L>, <D>)"), (1, "print(f'{<T>.shape} {<I>}', end=';')"), (1, "print(<B>, <P>[0])"), (1, "print(<T>.sum().item() > 0)"),
    (2, "<I=a>, <T=b> = <P>"), (2, "<I=a>, *<L=b> = <L>"), (1, "<I=a>, <I=b> = <I>, <I>"), (1, "<T=a>, <T=b> = <LT>"), (1, "(<I=a>, <T=b>), <L=c> = <P>, <L>"), (1, "<V=a>, <V=b> = <T>"), (1, "<I!>, <I=b> = <I>, <I!>"), (1, "*<L=a>, <I=b> = <L>"),
    (1, "<I=a>, <I=b> = <T>.shape"), (1, "<I=a> = <I=b> = <I>"), (1, "<T=a> = <T=b> = <T>"), (1, "<L=a>, <L=b> = <L>[:1], <L>[1:]"),
    (6, "if <B>:\n    <block>"), (5, "if <B>:\n    <block>\nelse:\n    <block>"), (2, "if <B>:\n    <block>\nelif <B>:\n    <block>\nelse:\n    <block>"), (2, "if <Z> > <F>:\n    <block>\nelse:\n    <block>"),
    (2, "if <B>:\n    <T=a> = <T>\nelse:\n    <T@a> = <T>"), (1, "if <L>:\n    <block>"), (1, "if not <LT>:\n    <block>"), (1, "if (q := <I>) > 1:\n    LOG.append(q)"),
    (5, "for <I=a> in range(<I> % 4):\n    <loop>"), (3, "for <I=a> in <L>:\n    <loop>"), (2, "for <I=a>, <T=b> in enumerate(<LT>):\n    <loop>"), (2, "for <S=a>, <I=b> in <D>.items():\n    <loop>"), (2, "for <T=a>, <I=b> in zip(<LT>, <L>):\n    <loop>"),
    (2, "for <T=a> in <LT>:\n    <loop>"), (1, "for <V=a> in <T>:\n    <loop>"), (2, "for <I=a> in <G>:\n    <loop>\nelse:\n    <block>"), (1, "for <S=a> in sorted(<D>):\n    <loop>"), (1, "for <I=a> in <C>:\n    <loop>"), (1, "for <I=a> in list(<L>):\n    <loop>"),
    (1, "for <S=a>, <T=b> in <DT>.items():\n    <loop>"), (1, "for <I=a>, (<I=b>, <S=c>) in enumerate(zip(<L>, 'abc')):\n    <loop>"), (1, "for <I=a>, <I=b> in itertools.product(range(2), <L>):\n    <loop>"),
    (2, "<I=a> = 0\nwhile <I@a> < 3:\n    <I@a> += 1\n    <loop>"), (1, "<I=a> = 4\nwhile <I@a>:\n    <I@a> -= 1\n    <loop>\nelse:\n    <block>"), (1, "<I=a> = 0\nwhile True:\n    <I@a> += 1\n    if <I@a> > 2 or <B>:\n        break\n    <loop>"),
    (1, "<G=a> = <G>\nwhile (q := next(<G@a>, None)) is not None:\n    LOG.append(q)\n    if q > 4:\n        break"),
    (3, "try:\n    <block>\nexcept (IndexError, KeyError) as error:\n    LOG.append(str(error))\n    <block>"), (3, "try:\n    <block>\nfinally:\n    <block>"), (2, "try:\n    <block>\nexcept Exception as error:\n    print(type(error).__name__)\nelse:\n    <block>"),
    (2, "try:\n    <block>\n    <raise>\nexcept ValueError as error:\n    <block>\nfinally:\n    <block>"), (2, "try:\n    <raise>\nexcept (KeyError, Fault, ZeroDivisionError) as error:\n    LOG.append(error.args)"), (1, "try:\n    <block>\nexcept ZeroDivisionError:\n    <raise>"),
    (1, "try:\n    <raise>\nexcept* ValueError as group:\n    LOG.append(len(group.exceptions))"),
    (1, "try:\n    <block>\nexcept Exception as error:\n    raise Fault('wrapped', <I>) from error"), (1, "try:\n    <raise>\nexcept Exception as error:\n    LOG.append(repr(error))\n    if <B>:\n        raise"), (1, "try:\n    try:\n        <raise>\n    finally:\n        <block>\nexcept Exception:\n    <block>"),
    (2, "with <X> as <X=a>:\n    <block>"), (2, "with scoped(<S>) as <S=a>:\n    <block>"), (1, "with scoped('q', swallow=True):\n    <block>\n    <raise>"), (1, "with contextlib.suppress(Exception):\n    <block>\n    <raise>"), (2, "with torch.no_grad():\n    <block>"),
    (1, "with Box(<T>) as <X=a>, scoped(<S>):\n    <block>"), (1, "with contextlib.nullcontext(<T>) as <T=a>:\n    <block>"), (1, "with contextlib.ExitStack() as stack:\n    stack.enter_context(scoped('s'))\n    <block>"), (1, "with torch.enable_grad():\n    <block>"),
    (3, "def <FN=a>(<T=p>, <I=q>=<I>):\n    <function>\n    return <T>"), (2, "def <FN=a>(<T=p>, *<L=r>, **<D=k>):\n    <function>\n    return <T>"), (2, "def <FI=a>(<I=p>):\n    <function>\n    return <I>"), (1, "def <FN=a>(<T=p>, *, <T=q>=<T>):\n    <function>\n    return <T>"),
    (1, "def made():\n    <function>\n    yield <I>\n    <block>\n    yield <I>\n<G=a> = made()"), (1, "def made(limit):\n    for <I=a> in range(limit):\n        <loop>\n        got = yield <I@a>\n        LOG.append(got)\n    return limit\n<G=g> = made(<I> % 3)"),
    (1, "def outer():\n    <function>\n    def inner(<T=p>):\n        <function>\n        return <T>\n    return inner\n<FN=a> = outer()"), (1, "<FN=a> = functools.lru_cache(maxsize=None)(lambda t: t * 2)"), (1, "@functools.wraps(depth)\ndef <FN=a>(<T=p>):\n    return <T>"),
    (1, "class Local(Box):\n    extra = <I>\n    def __call__(self, <T=p>):\n        return super().__call__(<T>) + self.extra\n<X=a> = Local(<T>)"), (1, "<FN=a> = [lambda t, w=<F>: t * w for q in range(2)][<I> % 2]"),
    (1, "match <I> % 4:\n    case 0:\n        <block>\n    case 1 | 2:\n        <block>\n    case _:\n        <block>"), (1, "match <P>:\n    case (0, <T=a>):\n        <block>\n    case (<I=b>, _):\n        <block>"), (1, "match <D>:\n    case {'a': <I=a>, **<D=b>}:\n        <block>\n    case _:\n        <block>"),
    (1, "match Point(<I>):\n    case Point(left=1):\n        <block>\n    case Point(left=<I=a>, right=3) if <I@a> > 0:\n        <block>"), (1, "match <L>:\n    case []:\n        <block>\n    case [<I=a>, *<L=b>]:\n        <block>"),
    (1, "<raise>"), (1, "assert <B>, <S>"), (1, "pass"), (1, "<T>"), (1, "<I>"), (1, "<FN>(<T>)"), (1, "return <T>"), (1, "if <B>:\n    return <T>, <I>"), (1, "del <I!>"), (1, "<X>.push(<L>)"), (1, "next(<G>)"), (1, "<T=a> = <T>\n<T=b> = <T@a>[0:2]\n<T@a>.add_(1)"),
    (1, "global COUNT\nCOUNT += 1"), (1, "<I=a> = sum([spread(q, *<L>) for q in <L>])"), (1, "<G=a> = counting(5)\nnext(<G@a>)\nLOG.append(<G@a>.send(2))\n<G@a>.close()"), (1, "<G=a> = counting(2)\nfor <I=b> in <G@a>:\n    <loop>"),
    (1, "<G=a> = counting(3)\nnext(<G@a>)\ntry:\n    <G@a>.throw(ValueError('thrown'))\nexcept ValueError as error:\n    LOG.append(str(error))"),
)
RAISES = ("raise ValueError(<S>)", "raise KeyError(<I>)", "raise Fault(<S>, code=<I>)", "<L>[99]", "<D>['absent']", "1 // (<I> * 0)", "raise IndexError", "if <B>:\n    raise ValueError('maybe')", "<X>.absent", "<T>.view(5)", "<T> + torch.ones(4)",
          "raise Fault('f') from KeyError(<I>)", "int('x')", "next(iter([]))", "None + 1", "undefined_name", "<I>.absent()", "<T> @ <T>", "spread()", "a, b = <L>", "torch.cat([])", "raise RuntimeError(<T>.shape)", "<T>[<I>, 7]", "assert not <S> + 'x', <I>")
LOOP_ENDS = ("break", "continue", "if <B>:\n    break", "if <B>:\n    continue", "if <B>:\n    return <T>")
RESULTS = ("<T>", "<T>, <I>", "[<T>, <L>]", "{'t': <T>, 'i': <I>, 's': <S>}", "<X>", "<LT>", "<T>, <X>, <D>", "<T> if <B> else <L>", "Pair(<I>, <T>)", "<FI>(<I>), <T>", "<SE>, <T>", "<P>", "<Z>", "<G>", "<FN>", "Point(<I>, tags=<L>)", "<C>, <V>", "<F>")
