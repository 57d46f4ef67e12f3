"""What classes and the standard library do behind the user's back: class-level state, deleters, formats, dispatch, dataclasses, exit stacks."""

import contextlib
import dataclasses
import functools
import itertools
import logging
import re
import textwrap
import types
import warnings

import pytest
import torch
from whole.assert_same import assert_same

import thruway


class Counting:
    made = 0
    rate = 0.5
    names: list[int] = []
    last = None

    def step(self, x):
        Counting.made += 1
        type(self).rate *= 2
        self.names.append(self.made)
        Counting.last = x * 2
        return x * Counting.made * self.rate


class Derived(Counting):
    def step(self, x):
        y = super().step(x)
        Derived.made = Counting.made + 10
        return y + self.made


def class_state():
    return Counting.made, Counting.rate, list(Counting.names), Counting.last, vars(Derived).get("made")


def forget_class_state():
    Counting.made, Counting.rate, Counting.names, Counting.last = 0, 0.5, [], None
    for name in ("made", "rate"):
        if name in vars(Derived):
            delattr(Derived, name)


@pytest.mark.parametrize("cls", [Counting, Derived])
def test_state_of_a_class(cls):
    function = lambda x: cls().step(x)                                          # noqa: E731
    thruway.reset()
    compiled = thruway.compile(function)
    histories = []
    for call in (function, compiled):
        forget_class_state()
        histories.append([repr((call(torch.arange(3.0) + i), class_state())) for i in range(5)])
    assert histories[0] == histories[1]
    counted = thruway.metrics()
    assert counted["graph_breaks"] == 0 and counted["recompiles"] <= 3


class Named:
    def __repr__(self):
        return "A!"

    def __format__(self, spec):
        return "as" + spec

    def __index__(self):
        return 1


class Doubled:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, cls=None):
        return getattr(owner, self.name, 0)

    def __set__(self, owner, value):
        setattr(owner, self.name, value * 2)

    def __delete__(self, owner):
        delattr(owner, self.name)


class Described:
    value = Doubled()

    @property
    def held(self):
        return self.value

    @held.deleter
    def held(self):
        self.value = 7


class Meta(type):
    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.is_made = True
        return made

    def __getitem__(cls, index):
        return cls.__name__, index


class OfMeta(metaclass=Meta):
    def __init__(self, value):
        self.value = value


@functools.singledispatch
def dispatched(value, x):
    return x


@dispatched.register
def _(value: int, x):
    return x + value


@dispatched.register(list)
def _(value, x):
    return [dispatched(one, x) for one in value]


class Methods:
    @functools.singledispatchmethod
    def go(self, value):
        return value

    @go.register
    def _(self, value: int):
        return value + 100


@dataclasses.dataclass(frozen=True, order=True)
class Point:
    a: int
    b: float = 2.0


def formats(x):
    thing = Named()
    return x + 1, f"{thing} {thing:x} {thing!r} {thing!s}", "abc"[thing], [4, 5][thing], x[thing]


def deleters(x):
    thing = Described()
    thing.value = x
    before = thing.value
    del thing.value
    after = thing.value
    del thing.held
    return before, after, thing.value


def metaclasses(x):
    made = OfMeta(x * 2)
    return made.value, made.is_made, OfMeta[3]


def dispatch(x):
    methods = Methods()
    return dispatched(2, x), dispatched("a", x), dispatched([1, "z"], x), methods.go(1), methods.go("q")


def records(x):
    points = sorted([Point(3), Point(1), Point(1, 0.5)])
    return x * points[0].b, repr(points), hash(points[0]) == hash(Point(1, 0.5)), {Point(1).a: 1}


def exit_stacks(x):
    seen = []
    with contextlib.ExitStack() as stack:
        stack.callback(seen.append, "called")
        stack.enter_context(contextlib.suppress(KeyError))
        y = x * 2
    space = types.SimpleNamespace(a=1, b=x)
    space.c = space.a + 1
    return y, seen, space.b + space.c, vars(space), type(space)


def groups(x):
    kept = list(itertools.groupby([1, 1, 2], key=lambda n: n % 2))
    found = [(key, list(group)) for key, group in itertools.groupby("aab")]
    return x * 2, found, [list(group) for _, group in kept], list(itertools.combinations_with_replacement([1, 2], 2))


def chosen(x, n):
    rows = [("b", 2), ("a", n), ("c", 1)]
    return x * 1, min(rows, key=lambda row: row[1]), max(rows, key=lambda row: row[1]), sorted([3, 1, n], key=functools.cmp_to_key(lambda a, b: b - a))


def wrapper_of(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + 1
    return wrapper


@wrapper_of
def wrapped(x):
    """Says what it does."""
    return x * 2


def wrapping(x):
    @wrapper_of
    def inside(y):
        """Inside."""
        return y * 3
    inside.tag = 3
    told = [(one.__name__, one.__doc__, one.__qualname__, one.__module__) for one in (wrapped, inside)]
    return wrapped(x), inside(x), inside.__wrapped__(x), told


class Ordered:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return self.value < other.value

    def __divmod__(self, other):
        return 1, other

    def __rdivmod__(self, other):
        return 2, other

    def __round__(self, digits=None):
        return "rounded", digits


def operators(x):
    one, two = Ordered(1), Ordered(2)
    try:
        one >= two                                                              # noqa: B015
    except TypeError as error:
        text = str(error)
    numbers = divmod(one, 3), divmod(7, two), round(one), round(one, 2)
    return x + 1, max(one, two).value, min(one, two).value, sorted([two, one])[0].value, one > two, text, numbers


@pytest.mark.parametrize("function", [operators, formats, deleters, metaclasses, dispatch, records, exit_stacks, groups, wrapping])
def test_protocols(function):
    assert_same(function, torch.arange(3.0), graphs=1, breaks=0)


def test_a_function_that_is_given_back_says_what_it_is():
    def function(x):
        def made(y):
            return y * 2
        made.__name__, made.tag = "renamed", 3
        return made, x + 1
    made, _ = thruway.compile(function)(torch.ones(2))
    assert (made.__name__, made.tag, vars(made)) == ("renamed", 3, {"tag": 3})


PATTERN = re.compile("a")


def test_methods_of_c_classes_run_behind_a_break():
    def function(x):
        return x * 1, PATTERN.sub("b", "abc"), textwrap.dedent("  a")
    assert repr(thruway.compile(function)(torch.ones(2))) == repr(function(torch.ones(2)))


def test_the_least_by_a_key_that_changes_is_the_item():
    compiled = thruway.compile(chosen)
    for n in range(4):
        assert repr(compiled(torch.ones(2), n)) == repr(chosen(torch.ones(2), n))


def told(x):
    warnings.warn("here")
    return helper(x) * 2


def helper(x):
    warnings.warn("caller", DeprecationWarning, 2)
    warnings.warn("its caller", stacklevel=3)
    logging.getLogger("places").warning("seen %d", 3)
    return x + 1


def test_warnings_and_logs_name_the_users_lines(caplog):
    def heard(call):
        caplog.clear()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call(torch.ones(2))
        places = [(str(one.message), one.category, one.filename, one.lineno) for one in found]
        return places, [(one.filename, one.lineno, one.funcName, one.getMessage()) for one in caplog.records]
    compiled = thruway.compile(told)
    expected = heard(told)
    assert heard(compiled) == heard(compiled) == expected


class Falling:
    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        self.asked.append(name)
        if name.startswith("no_"):
            raise AttributeError("none " + name)
        return len(self.asked)

    @property
    def number(self):
        return self.no_number

    @property
    def no_text(self):
        self.asked.append("text")
        return self.no_number

    @property
    def kept(self):
        return 5

    @property
    def wrong(self):
        return [][1]


def falling(x):
    one, seen = Falling(), []
    for name in ("number", "no_text", "kept", "wrong"):
        try:
            seen.append(getattr(one, name))
        except (AttributeError, IndexError) as error:
            seen.append((type(error), str(error)))
    return x + one.number, seen, one.asked, hasattr(one, "no_text"), getattr(one, "no_text", 7)


def test_a_property_that_lacks_an_attribute_is_asked_of_the_hook():
    thruway.reset()
    compiled, x = thruway.compile(falling, backend="eager", fullgraph=True), torch.ones(2)
    for _ in range(2):
        assert str(compiled(x)) == str(falling(x))
