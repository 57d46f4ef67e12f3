"""How builtin iterators made inside are taken apart and put together again, so that a continuation knows what is left of them; and how one
handles again what its frame was handling."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Collection, Iterator
from typing import Any

import torch

from thruway.bytecode.resume import handle
from thruway.capture.values.base import Constant, HandledValue, SizeValue, TupleValue, Value, ViewValue
from thruway.capture.values.iterate import CountedIterator, DictIterator, EnumerateIterator, ListIterator, RangeIterator, RowIterator

Layout = Any     # True: one value; (function, layouts…): a call of `function` on parts


def iterator_at(sequence: Collection[Any], index: int, size: int | None = None) -> Any:
    """`iter(sequence)` after `index` steps. `size`: how many keys a dict had when its iterator began."""
    if size is not None and len(sequence) != size:
        return resized()
    iterator = iter(sequence)
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(index)
    else:                                    # of a dict
        collections.deque(itertools.islice(iterator, index), maxlen=0)
    return iterator


def resized() -> Iterator[Any]:
    """An iterator of a dict that has changed its size meanwhile."""
    raise RuntimeError("dictionary changed size during iteration")
    yield


def range_iterator(current: int, stop: int, step: int) -> Any:
    return iter(range(current, stop, step))


def number(value: int | torch.SymInt) -> Constant | SizeValue:
    return Constant(value) if type(value) is int else SizeValue(value)


def layout_of(value: Value) -> Layout:
    """True for what is passed as it is, else the function that makes it and the layouts of that function's arguments."""
    match value:
        case DictIterator():
            return iterator_at, True, True, True
        case ListIterator() | CountedIterator():
            return iterator_at, True, True
        case RangeIterator():
            return range_iterator, True, True, True
        case EnumerateIterator():
            return enumerate, layout_of(value.inner), True
        case RowIterator(function=None):
            return zip, *(layout_of(one) for one in value.inner)
        case RowIterator():
            return map, True, *(layout_of(one) for one in value.inner)
        case HandledValue():
            return handle, True
        case _:
            return True


def layout_parts(value: Value) -> list[Value]:
    """The values that fill the layout, in order."""
    match value:
        case ListIterator() if value.step < 0:
            rest = value.over.items[value.index::-1] if value.index >= 0 else ()
            return [TupleValue(tuple(rest)), Constant(0)]
        case ListIterator():
            return [value.over, number(value.index)]
        case DictIterator():
            return [ViewValue(value.mapping, value.kind), number(value.index), Constant(len(value.keys))]
        case CountedIterator():
            return [Constant(value.sequence), number(value.index)]
        case RangeIterator():
            return [value.current, value.stop, value.step]
        case EnumerateIterator():
            return [*layout_parts(value.inner), number(value.index)]
        case RowIterator():
            parts = [part for one in value.inner for part in layout_parts(one)]
            return parts if value.function is None else [value.function, *parts]
        case HandledValue():
            return [value.error]
        case _:
            return [value]
