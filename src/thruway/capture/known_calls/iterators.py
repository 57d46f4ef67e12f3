"""iter, next, range, zip, enumerate, map, filter, reversed and itertools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from thruway.capture.known_calls.plain_iterators import ITERATED, PLAIN, called_until
from thruway.capture.state import Frame, Inline, State, UserRaise
from thruway.capture.tensors import call_torch
from thruway.capture.values.attribute import bind
from thruway.capture.values.base import (
    FALSE, NONE, Constant, GeneratorValue, ListValue, ObjectValue, SizeValue, TensorValue, TupleValue, Value,
)
from thruway.capture.values.call import call, call_pure, run_inline
from thruway.capture.values.constants import as_python, specialize
from thruway.capture.values.errors import raise_as_python_does, raise_error
from thruway.capture.values.generators import advance, made_inside, throw
from thruway.capture.values.iterate import EnumerateIterator, Exhausted, ListIterator, RangeIterator, RowIterator, items_of, iterator_of, next_value
from thruway.capture.values.iterators import iterator_at, range_iterator
from thruway.capture.values.numbers import is_element, kind_of_any
from thruway.capture.values.truth import truth
from thruway.frame.guard import MISSING

Args = list[Value]
Kwargs = dict[str, Value]


def new_iterator(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    if len(args) == 2:
        return call(state, state.wrap(state, called_until, state.made(called_until), True), args, {})
    return iterator_of(state, args[0])


def next_item(state: State, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], GeneratorValue) and len(args) == 1:
        return advance(state, args[0])              # its StopIteration has what it returned
    try:
        return next_value(state, args[0])
    except Exhausted:
        if len(args) > 1:
            return args[1]
        raise_error(state, StopIteration)


def new_range(state: State, args: Args, kwargs: Kwargs) -> Value:
    """A range. One whose end a tensor holds exists as the iterator that is made of it next."""
    frame = state.frames[-1]
    site = frame.code, frame.pc - 1
    if any(map(is_element, args)) and site not in state.caution and _is_iterated(frame) and all(kind_of_any(one) is int for one in args):
        start, stop = (Constant(0), args[0]) if len(args) == 1 else args[:2]
        step = args[2] if len(args) > 2 else Constant(1)
        if isinstance(step, Constant) and step.value:
            return RangeIterator(start, stop, step, site)
    return call_pure(state, range, [specialize(state, a) if isinstance(a, SizeValue) else a for a in args], {})


def _is_iterated(frame: Frame) -> bool:
    """Whether the result of the call that runs is iterated over, and nothing else."""
    return frame.program[frame.pc][1].op == "GET_ITER" and frame.program[frame.pc - 1][1].op == "CALL"


def each(state: State, iterable: Value) -> Iterator[Value]:
    iterator = iterator_of(state, iterable)
    while True:
        try:
            item = next_value(state, iterator)
        except Exhausted:
            return
        yield item


def zipped(state: State, args: Args, kwargs: Kwargs) -> Value:
    inner = tuple(iterator_of(state, one) for one in args)
    if not truth(state, kwargs.get("strict", FALSE)):
        return RowIterator(None, inner)
    rows = [list(each(state, one)) for one in inner]
    if len({len(row) for row in rows}) > 1:
        raise_as_python_does(state, lambda: list(zip(*map(range, map(len, rows)), strict=True)))
    return ListIterator(TupleValue(tuple(TupleValue(row) for row in zip(*rows))))


def enumerated(state: State, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", Constant(0))
    return EnumerateIterator(iterator_of(state, args[0]), start.size if isinstance(start, SizeValue) else as_python(state, start))


def mapped(state: State, args: Args, kwargs: Kwargs) -> Value:
    return RowIterator(args[0], tuple(iterator_of(state, one) for one in args[1:]))


def reverse(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    value = args[0]
    match value:
        case ListValue() | TupleValue():
            return ListIterator(value, len(value.items) - 1, -1)
        case TensorValue():                             # a tensor, not an iterator
            return call_torch(state, torch.Tensor.flip, [value, Constant(0)], {}) if value.trace.dim() else value
        case ObjectValue():
            found = state.type_lookup(value.cls, "__reversed__")
            if hasattr(found, "__code__"):
                return call(state, bind(state, found, value, value.cls, "__reversed__"), [], {})
            if found is MISSING and value.storage is None:
                size = run_inline(state, call(state, bind(state, state.type_lookup(value.cls, "__len__"), value, value.cls, "__len__"), [], {}))
                getter = bind(state, state.type_lookup(value.cls, "__getitem__"), value, value.cls, "__getitem__")
                return iterator_of(state, TupleValue(tuple(state.call(getter, [Constant(i)]) for i in reversed(range(size.value)))))
    return iterator_of(state, TupleValue(tuple(reversed(items_of(state, value.storage if isinstance(value, ObjectValue) else value)))))


def longest(state: State, args: Args, kwargs: Kwargs) -> Value:
    """zip_longest, over the drained iterables."""
    rows = itertools.zip_longest(*(items_of(state, one) for one in args), fillvalue=kwargs.get("fillvalue", NONE))
    return ListIterator(TupleValue(tuple(TupleValue(row) for row in rows)))


def inlined(builtin: Any, function: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """A row that calls a generator function of ours in place of the builtin, which asks for its iterators at once."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        args = [iterator_of(state, arg) if i in ITERATED.get(builtin, (0,)) else arg for i, arg in enumerate(args)]
        made = call(state, state.wrap(state, function, state.made(function), True), args, kwargs)
        made.plays = (builtin, args, kwargs)
        return made
    return handler


def combined(function: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """product, permutations, combinations: over drained iterables."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        plain = [as_python(state, a) if isinstance(a, Constant) and isinstance(a.value, int) else items_of(state, a) for a in args]
        rows = function(*plain, **{k: as_python(state, v) for k, v in kwargs.items()})
        return ListIterator(TupleValue(tuple(TupleValue(row) for row in rows)))
    return handler


def copies(state: State, args: Args, kwargs: Kwargs) -> Value:
    """itertools.tee: over the drained rest."""
    items = TupleValue(tuple(items_of(state, args[0])))
    return TupleValue(tuple(ListIterator(items) for _ in range(as_python(state, args[1]) if len(args) > 1 else 2)))


def send(state: State, args: Args, kwargs: Kwargs) -> Value:
    return advance(state, *args)


def throw_in(state: State, args: Args, kwargs: Kwargs) -> Value:
    generator, kind, *rest = args
    value = rest[0] if rest else NONE
    if isinstance(kind, ObjectValue):
        error = kind
    elif isinstance(value, ObjectValue) and issubclass(value.cls.value, BaseException):
        error = value
    else:
        error = state.call(kind, [] if value is NONE else [value])
    return throw(state, generator, error)


def close(state: State, args: Args, kwargs: Kwargs) -> Value:
    generator = made_inside(state, args[0])
    if generator.started and not generator.finished:
        try:
            throw(state, generator, state.call(state.class_of(GeneratorExit, None), []))
        except UserRaise as raised:
            if raised.value.cls.value not in (GeneratorExit, StopIteration):
                raise
    generator.finished = True
    return NONE


def iterator_again(state: State, args: Args, kwargs: Kwargs) -> Value:
    """A continuation puts together an iterator that its frame held."""
    iterator = iterator_of(state, args[0])
    iterator.index = args[1].size if isinstance(args[1], SizeValue) else as_python(state, args[1])
    if len(args) > 2 and as_python(state, args[2]) != len(iterator.keys):
        iterator.keys = (None,) * as_python(state, args[2])              # the dict has changed its size: the next step says so
    return iterator


def range_again(state: State, args: Args, kwargs: Kwargs) -> Value:
    current, stop, step = args
    return RangeIterator(current, stop, specialize(state, step) if isinstance(step, SizeValue) else step)


_GENERATOR = type(_ for _ in ())
ROWS = {
    iter: new_iterator, iterator_at: iterator_again, range_iterator: range_again, next: next_item, range: new_range,
    zip: zipped, enumerate: enumerated, map: mapped,
    **{builtin: inlined(builtin, function) for builtin, function in PLAIN.items()}, reversed: reverse, itertools.zip_longest: longest,
    itertools.product: combined(itertools.product), itertools.permutations: combined(itertools.permutations),
    itertools.combinations: combined(itertools.combinations),
    itertools.combinations_with_replacement: combined(itertools.combinations_with_replacement), itertools.tee: copies,
    _GENERATOR.send: send, _GENERATOR.throw: throw_in, _GENERATOR.close: close, _GENERATOR.__next__: next_item,
    _GENERATOR.__iter__: new_iterator,
    **{vars(cls)["__next__"]: next_item for cls in (zip, map, enumerate, *map(type, (iter([]), iter(()), iter(range(0)), iter(""), iter({}), iter({}.values()),
                                                                                     iter({}.items()))))},
}
