"""Kinds of classes and of the standard library that code uses by name: one graph each, or a break that is right."""

import bisect
import collections
import contextlib
import copy
import enum
import functools
import heapq
import keyword
import re
import typing

import pytest
import torch

import thruway
from capture.beside_eager import Graphs, alike
from thruway.pipeline import journal

X = torch.linspace(-1, 2, 12).reshape(3, 4)


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Mode(enum.StrEnum):
    SUM = "sum"
    NONE = "none"


class Copied:
    def __init__(self, x, log=()):
        self.x, self.log = x, list(log)

    def __copy__(self):
        return Copied(self.x * 2, [*self.log, "copy"])

    def __deepcopy__(self, memo):
        return Copied(self.x * 3, copy.deepcopy(self.log, memo))


class Methods:
    def two(self, a, b):
        return a - b

    one = functools.partialmethod(two, b=1)

    @functools.singledispatchmethod
    def kind(self, value):
        return "other"

    @kind.register
    def _(self, value: int):
        return value * 2

    @kind.register(torch.Tensor)
    def _(self, value):
        return value + 1


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, value):
        self.value = value


INTS = Box[int]


@typing.runtime_checkable
class Scales(typing.Protocol):
    def scale(self, x): ...


class Scale:
    def scale(self, x):
        return x * 2


class Made(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = "made"
        return made


class OfMeta(metaclass=Made):
    def __init__(self, value):
        self.value = value


class Doubling:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, cls=None):
        return self if owner is None else getattr(owner, self.name, 7)

    def __set__(self, owner, value):
        setattr(owner, self.name, value * 2)

    def __delete__(self, owner):
        delattr(owner, self.name)


class Described:
    field = Doubling()


class Slotted:
    __slots__ = ("a", "b")


class Registered:
    def method(self):
        return 1


ITEM = Registered()
BY_METHOD = {ITEM.method: 5}
BY_FUNCTION = {torch.sin: "sin", bisect.bisect: "bisect", alike: "alike"}


def enum_members(x):
    return x * Flags.B, x + (Flags.A | Flags.B), torch.nn.functional.mse_loss(x, x * 2, reduction=Mode.SUM), Flags.A in Flags.A | Flags.B, Mode("sum") is Mode.SUM


def hooks_of_copy(x):
    c = Copied(x, ["made"])
    d = copy.deepcopy([c, c, {"k": c}])
    return copy.copy(c).x, copy.copy(c).log, d[0].x, d[0].log, d[0] is d[1] is d[2]["k"]


def partial_methods(x):
    m = Methods()
    return m.one(x), m.kind(x), m.kind(3), m.kind("k")


def generic_classes(x):
    box, other = Box[str](4), INTS(x)
    return x * box.value + other.value, isinstance(box, Box), typing.get_origin(INTS) is Box, box.__orig_class__ == Box[str]


def protocols(x):
    return Scale().scale(x) if isinstance(Scale(), Scales) else x


def metaclasses(x):
    made = OfMeta(3)
    return x * made.value, made.tag


def descriptors(x):
    d = Described()
    before = d.field
    d.field = 3
    after = d.field
    del d.field
    return x * before, x * after, d.field


def slots(x):
    s = Slotted()
    s.a = x * 2
    try:
        s.c = 1
    except AttributeError:
        return s.a, hasattr(s, "b"), hasattr(s, "c")


def bisection(x):
    row = [1, 3, 5, 7]
    bisect.insort(row, 4)
    bisect.insort(row, -6, key=abs)
    return bisect.bisect_left(row, 3, 1, 3), bisect.bisect([1, 3], 3, lo=1), bisect.bisect_left(["a", "bb", "cccc"], 3, key=len), row, x + 1


def heaps(x):
    heap = [5, 1, 4]
    heapq.heapify(heap)
    heapq.heappush(heap, 0)
    return heapq.heappop(heap) + x, heapq.nsmallest(2, heap), list(heapq.merge([1, 4], [2, 3])), list(heapq.merge([-1], [-2], key=abs))


def texts(x):
    found = re.match(r"(\w+)=(?P<v>\d+)", "lr=10")
    return (x * int(found.group("v")), found.groups(), found["v"], re.compile("a+").sub("b", "caat"), re.findall(r"\d", "a1b2"), re.split(",", "a,b"),
            "abc".translate(str.maketrans("a", "z")), keyword.iskeyword("for"), keyword.iskeyword("x"))


def functions_as_keys(x):
    return ITEM.method in BY_METHOD, BY_METHOD.get(Registered().method), BY_FUNCTION[torch.sin], torch.cos in BY_FUNCTION, BY_FUNCTION.get(check_later), x + 1


def check_later():
    return None


def deques(x):
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.rotate(1)
    return d.maxlen, collections.deque().maxlen, list(d), x + 1


def subclasses(x):
    return x + len(Copied.__subclasses__()) + len(Parent.__subclasses__())


class Parent:
    pass


class Child(Parent):
    pass


def contexts(x):
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append("enter " + name)
        yield name
        log.append("exit " + name)
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(noted("a"))
        stack.callback(log.append, "callback")
        with contextlib.suppress(KeyError):
            {}["k"]
        x = x + 1
    with contextlib.nullcontext(5) as five:
        x = x * five
    return x, log, name


WHOLE = (enum_members, hooks_of_copy, partial_methods, generic_classes, protocols, metaclasses, descriptors, slots, bisection, heaps, texts, deques, subclasses, contexts)


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(function):
    backend = Graphs()
    for compiled in (thruway.compile(function, backend=backend), thruway.compile(function, fullgraph=True)):
        for _ in range(2):
            alike(function(X), compiled(X))
    assert len(backend.graphs) == 1, [event.reason for event in journal.events if event.reason]


def test_methods_and_functions_as_keys():
    for compiled in (thruway.compile(functions_as_keys), thruway.compile(functions_as_keys, backend=Graphs())):
        for _ in range(2):
            alike(functions_as_keys(X), compiled(X))


def test_a_class_gets_a_subclass_later():
    compiled = thruway.compile(subclasses)
    alike(subclasses(X), compiled(X))

    class Later(Parent):
        pass
    alike(subclasses(X), compiled(X))
    assert Later in Parent.__subclasses__()


def test_a_protocol_that_says_no_is_asked_by_python():
    class WithAttribute:
        def __init__(self):
            self.scale = lambda x: x

    def f(x, one):
        return x + 1 if isinstance(one, Scales) else x - 1
    for one in (WithAttribute(), 3, Scale()):
        alike(f(X, one), thruway.compile(f)(X, one))


def test_a_deep_copy_with_a_memo_that_is_looked_at():
    class Looks:
        def __deepcopy__(self, memo):
            memo[id(self)] = self
            return self

    def f(x):
        looks = Looks()
        return copy.deepcopy([looks])[0] is looks, x + 1
    alike(f(X), thruway.compile(f)(X))
