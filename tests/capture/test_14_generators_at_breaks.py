"""Generators that are alive at a break, or broken inside, go on in Python where they stood; nothing runs twice."""

import itertools

import pytest
import torch

import thruway

SEEN: list[object] = []


@thruway.disable
def note(value):
    SEEN.append(value)
    return value


def pairs(x):
    for i in range(4):
        got = yield x + i
        note(got)
        if got:
            x = x * 2
    return "done"


def around(x):
    try:
        yield x
        yield x + 1
    except ValueError as error:
        note(str(error))
        yield x - 1
    finally:
        note("closed")


def alive(x):
    rows = (x + i for i in range(5))
    total = next(rows)
    note(1)
    for row in rows:
        total = total + row
    return total


def broken_inside(x):
    def steps():
        y = x
        for i in range(3):
            y = y + 1
            note(i)
            yield y
    return sum(steps())


def loop_over(x):
    total = x
    for row in pairs(x):
        total = total + row
        note("row")
    return total


def sent(x):
    g = pairs(x)
    a = next(g)
    b = g.send(True)
    note("between")
    c = g.send(False)
    return a, b, c, list(g)


def thrown(x):
    g = around(x)
    first = next(g)
    note("before")
    second = g.throw(ValueError("thrown"))
    g.close()
    return first, second


def delegated(x):
    def outer():
        result = yield from pairs(x)
        note(result)
        yield x
    total = x
    for row in outer():
        total = total + row
    return total


def returned(x, *rest, scale=2):
    def rows(first, *others, factor=3):
        yield first * scale
        for one in others:
            yield one * factor
    started = rows(x, *rest)
    next(started)
    return started, rows(x, *rest, factor=5)


def drained(x):
    return [row for row in returned(x, x + 1, x + 2)[0]], list(returned(x, x)[1])


def closes_over(x):
    count = 0

    def rows():
        nonlocal count
        while count < 4:
            count += 1
            yield x * count
    g = rows()
    a = next(g)
    note(count)
    b = next(g)
    return a + b, count, [row.sum() for row in g]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, tuple | list) else a == b


@pytest.mark.parametrize("function", (alive, broken_inside, loop_over, sent, thrown, delegated, drained, closes_over))
def test_goes_on_where_it_stood(function):
    thruway.reset()
    compiled = thruway.compile(function, backend="eager")
    for i in range(3):
        x = torch.randn(3)
        SEEN.clear()
        expected, wanted = function(x), list(SEEN)
        SEEN.clear()
        assert same(compiled(x), expected)
        assert same(SEEN, wanted)
    found = thruway.metrics()
    assert not found["bugs"] and not found["eager"]


def test_generators_that_leave_the_call():
    x = torch.randn(3)
    for got, expected in zip(thruway.compile(returned, backend="eager")(x, x + 1), returned(x, x + 1)):
        assert same(list(got), list(expected))


def itertools_alive(x):
    rows = [x + i for i in range(8)]
    out = []
    for row in itertools.islice(itertools.chain(rows, filter(lambda r: note(bool(r.sum() > 0)), rows)), 1, 12, 2):
        note("row")
        out.append(row)
    for k, (a, b) in zip(itertools.count(3), itertools.pairwise(rows)):
        note(k)
        out.append(a * b)
    out += itertools.accumulate(rows, lambda p, q: note(p + q))
    return out, list(itertools.takewhile(lambda n: note(n) < 3, itertools.cycle(range(5))))


def test_builtin_iterators():
    test_goes_on_where_it_stood(itertools_alive)
