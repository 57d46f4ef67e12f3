"""What itertools and filter do, as generators that are inlined: a break while one is alive, or in a function that it calls, resumes it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def filtered(function: Callable[..., Any] | None, iterable: Iterable) -> Iterator:
    for item in iterable:
        if item if function is None else function(item):
            yield item


def filtered_false(function: Callable[..., Any] | None, iterable: Iterable) -> Iterator:
    for item in iterable:
        if not (item if function is None else function(item)):
            yield item


def chained(*iterables: Iterable) -> Iterator:
    for one in iterables:
        yield from one


def chained_from(iterables: Iterable) -> Iterator:
    for one in iterables:
        yield from one


def sliced(iterable: Iterable, *bounds: int | None) -> Iterator:
    """islice: takes no item beyond the last one that it gives, but skips up to `stop`."""
    wanted = slice(*bounds)
    start, stop, step = wanted.start or 0, wanted.stop, wanted.step or 1
    iterator, at = iter(iterable), 0
    while stop is None or at < stop:
        try:
            item = next(iterator)
        except StopIteration:
            return
        if at >= start and (at - start) % step == 0:
            yield item
        at += 1


def counted(start: Any = 0, step: Any = 1) -> Iterator:
    while True:
        yield start
        start = start + step


def repeated(item: Any, times: int | None = None) -> Iterator:
    left = times
    while left is None or left > 0:
        yield item
        if left is not None:
            left -= 1


def called_until(function: Callable[[], Any], sentinel: Any) -> Iterator:
    """iter(function, sentinel)."""
    while True:
        item = function()
        if item is sentinel or item == sentinel:
            return
        yield item


def cycled(iterable: Iterable) -> Iterator:
    seen = []
    for item in iterable:
        yield item
        seen.append(item)
    while seen:
        yield from seen


def accumulated(iterable: Iterable, func: Callable[..., Any] | None = None, *, initial: Any = None) -> Iterator:
    function = operator.add if func is None else func
    iterator = iter(iterable)
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for item in iterator:
        total = function(total, item)
        yield total


def pairs(iterable: Iterable) -> Iterator:
    iterator = iter(iterable)
    try:
        before = next(iterator)
    except StopIteration:
        return
    for item in iterator:
        yield before, item
        before = item


def starmapped(function: Callable[..., Any], iterable: Iterable) -> Iterator:
    for row in iterable:
        yield function(*row)


def taken_while(predicate: Callable[..., Any], iterable: Iterable) -> Iterator:
    for item in iterable:
        if not predicate(item):
            return
        yield item


def dropped_while(predicate: Callable[..., Any], iterable: Iterable) -> Iterator:
    dropping = True
    for item in iterable:
        dropping = dropping and bool(predicate(item))
        if not dropping:
            yield item


def compressed(data: Iterable, selectors: Iterable) -> Iterator:
    for item, wanted in zip(data, selectors):
        if wanted:
            yield item


def grouped(iterable: Iterable, key: Callable[..., Any] | None = None) -> Iterator:
    """A group gives nothing more once the next one was asked for."""
    iterator = iter(iterable)
    present = target = value = object()
    turn = 0

    def group(wanted: Any, mine: int) -> Iterator:
        nonlocal present, value
        while turn == mine and present == wanted:
            yield value
            try:
                value = next(iterator)
            except StopIteration:
                return
            present = value if key is None else key(value)

    while True:
        turn += 1
        while present == target:
            try:
                value = next(iterator)
            except StopIteration:
                return
            present = value if key is None else key(value)
        target = present
        yield present, group(target, turn)


PLAIN: dict[Any, Callable[..., Iterator]] = {
    filter: filtered, itertools.filterfalse: filtered_false, itertools.chain: chained, itertools.chain.from_iterable: chained_from,
    itertools.islice: sliced, itertools.count: counted, itertools.repeat: repeated, itertools.cycle: cycled, itertools.accumulate: accumulated,
    itertools.pairwise: pairs, itertools.starmap: starmapped, itertools.takewhile: taken_while, itertools.dropwhile: dropped_while,
    itertools.compress: compressed, itertools.groupby: grouped,
}

# positions of the arguments that the builtin iterates: the first, but for these
ITERATED: dict[Any, tuple[int, ...]] = {
    filter: (1,), itertools.filterfalse: (1,), itertools.starmap: (1,), itertools.takewhile: (1,), itertools.dropwhile: (1,), itertools.compress: (0, 1),
    itertools.chain: (), itertools.count: (), itertools.repeat: (),
}
