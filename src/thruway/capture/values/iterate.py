"""Iteration: `iter()`, `next()`, and draining an iterable at once. Iterators made inside are small classes that step over Values."""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import State, UserRaise
from thruway.capture.tensors import call_torch, to_trace
from thruway.capture.values.answers import guard_order
from thruway.capture.values.arrays import array_items
from thruway.capture.values.attribute import class_attribute_source
from thruway.capture.values.base import (
    ArrayValue, Constant, DictValue, GeneratorValue, IteratorValue, ListValue, MethodValue, ObjectValue, SetValue, SizeValue, TensorValue, TextValue,
    TupleValue, Value, ViewValue,
)
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import from_python, specialize
from thruway.capture.values.errors import raise_error
from thruway.capture.values.generators import advance
from thruway.capture.values.mapping import complete
from thruway.capture.values.numbers import compare_elements, is_element, is_truth, tensor_of_truth
from thruway.capture.values.types_ import python_type
from thruway.capture.wrap import wrap
from thruway.frame.guard import MISSING


class Exhausted(Exception):
    """Internal: the iterator has no more items."""


class ListIterator(IteratorValue):
    """Over a list or tuple value, live: sees items appended while it runs. Which item a symbolic `index` means is not known.
    `container`: the set whose members they are, which must keep its size."""

    __slots__ = ("over", "index", "step", "container")

    def __init__(self, over: Any, index: int | torch.SymInt = 0, step: int = 1, container: Any = None):
        super().__init__()
        self.over, self.index, self.step, self.container = over, index, step, container

    def built_from(self) -> list[Value]:
        return [self.over]

    @property
    def python_type(self) -> type:
        return type(iter(())) if isinstance(self.over, TupleValue) else type(iter([]))

    def next(self, state: State) -> Value:
        if type(self.index) is not int:
            raise unsupported(state, "TW105", "a list, from a place in it that changes between calls")
        if self.container is not None and len(self.container.items) != len(self.over.items):
            raise_error(state, RuntimeError, "Set changed size during iteration")
        if not 0 <= self.index < len(self.over.items):
            raise Exhausted
        item = self.over.items[self.index]
        _advance_index(state, self, self.step)
        return item


def _advance_index(state: State, iterator: Any, step: int) -> None:
    old = iterator.index

    def undo() -> None:
        iterator.index = old
    state.effects.remember(undo, iterator.age)
    iterator.index = old + step


class DictIterator(IteratorValue):
    """Over the `kind` of a dict (keys, values or items), live: sees values written while it runs. `keys` are those that it began with."""

    __slots__ = ("mapping", "kind", "keys", "index")

    def __init__(self, mapping: DictValue, kind: str):
        super().__init__()
        self.mapping, self.kind, self.keys, self.index = mapping, kind, tuple(mapping.items), 0

    def built_from(self) -> list[Value]:
        return [self.mapping]

    @property
    def python_type(self) -> type:
        return type(iter(getattr(self.mapping.cls(), self.kind)()))

    def next(self, state: State) -> Value:
        if len(self.mapping.items) != len(self.keys):
            raise_error(state, RuntimeError, "dictionary changed size during iteration")
        if type(self.index) is not int:
            raise unsupported(state, "TW105", "a dict, from a place in it that changes between calls")
        if self.index >= len(self.keys):
            raise Exhausted
        pair = self.mapping.items.get(self.keys[self.index])
        if pair is None:
            raise unsupported(state, "TW105", "a dict whose keys were replaced meanwhile")
        _advance_index(state, self, 1)
        return pair[0] if self.kind == "keys" else pair[1] if self.kind == "values" else TupleValue(pair)


class RangeIterator(IteratorValue):
    """What is left of a range: `current` is the next item. In a loop that breaks it may be a number that changes, and so may `stop`.
    `site`: the call that made it, where a tensor holds an end of it."""

    __slots__ = ("current", "stop", "step", "site")
    python_type = type(iter(range(0)))

    def __init__(self, current: Value, stop: Value, step: Constant, site: Any = None):
        super().__init__()
        self.current, self.stop, self.step, self.site = current, stop, step, site

    def built_from(self) -> list[Value]:
        return []

    def held(self, state: State) -> tuple[TensorValue, Value, RangeIterator] | None:
        """Where the next number or the end is one that a tensor holds: whether there is a next, that number, and the iterator behind it."""
        if not is_element(self.current) and not is_element(self.stop):
            return None
        found = compare_elements(state, operator.lt if self.step.value > 0 else operator.gt, self.current, self.stop)
        if found is None or not is_truth(found):
            return None
        following = RangeIterator(from_python(state, to_trace(self.current) + self.step.value), self.stop, self.step)
        return tensor_of_truth(state, found), self.current, following

    def next(self, state: State) -> Value:
        current, step = self.current, self.step.value
        now, stop = to_trace(current), to_trace(self.stop)
        if not (now < stop if step > 0 else now > stop):
            raise Exhausted

        def undo() -> None:
            self.current = current
        state.effects.remember(undo, self.age)
        self.current = from_python(state, now + step)
        return current


class CountedIterator(IteratorValue):
    """Items are known by their index: str, bytes and the like."""

    __slots__ = ("sequence", "index")
    python_type = type(iter(""))

    def __init__(self, sequence: Any):
        super().__init__()
        self.sequence, self.index = sequence, 0

    def built_from(self) -> list[Value]:
        return []

    def next(self, state: State) -> Value:
        if type(self.index) is not int:
            raise unsupported(state, "TW105", f"a {type(self.sequence).__name__}, from a place in it that changes between calls")
        if self.index >= len(self.sequence):
            raise Exhausted
        item = self.sequence[self.index]
        _advance_index(state, self, 1)
        return Constant(item)


class EnumerateIterator(IteratorValue):
    __slots__ = ("inner", "index")
    python_type = enumerate

    def __init__(self, inner: Value, index: int | torch.SymInt):
        super().__init__()
        self.inner, self.index = inner, index

    def built_from(self) -> list[Value]:
        return [self.inner]

    def next(self, state: State) -> Value:
        item = next_value(state, self.inner)
        index = self.index
        _advance_index(state, self, 1)
        return TupleValue((from_python(state, index), item))


class RowIterator(IteratorValue):
    """zip (no function) or map over inner iterators."""

    __slots__ = ("function", "inner")

    def __init__(self, function: Value | None, inner: tuple[Value, ...]):
        super().__init__()
        self.function, self.inner = function, inner

    def built_from(self) -> list[Value]:
        return [*self.inner, *([self.function] if self.function is not None else [])]

    @property
    def python_type(self) -> type:
        return zip if self.function is None else map

    def next(self, state: State) -> Value:
        if not self.inner:
            raise Exhausted
        row = [next_value(state, one) for one in self.inner]
        return TupleValue(tuple(row)) if self.function is None else state.call(self.function, row)


class CombinedIterator(IteratorValue):
    """filter, chain, islice …: `pull(state)` gives the next item or raises Exhausted; `parts` are what it holds."""

    __slots__ = ("pull", "parts", "python_type")

    def __init__(self, python_type: type, pull: Callable[[State], Value], *parts: Value):
        super().__init__()
        self.python_type, self.pull, self.parts = python_type, pull, parts

    def next(self, state: State) -> Value:
        return self.pull(state)


def iterator_of(state: State, value: Value) -> Value:
    """`iter(value)`."""
    match value:
        case IteratorValue() | GeneratorValue():
            return value
        case ListValue() | TupleValue():
            return ListIterator(value)
        case DictValue():
            complete(state, value)
            return DictIterator(value, "keys")
        case ViewValue():
            complete(state, value.mapping)
            return DictIterator(value.mapping, value.kind)
        case SetValue():
            guard_order(state, value)
            return ListIterator(TupleValue(tuple(items_of(state, value))), container=value)
        case Constant():
            return _constant_iterator(state, value)
        case TensorValue():
            return ListIterator(TupleValue(tuple(tensor_items(state, value))))
        case ArrayValue():
            return ListIterator(TupleValue(tuple(array_items(state, value))))
        case TextValue():
            return CountedIterator(value.value)
        case ObjectValue():
            return _object_iterator(state, value)
        case _:
            raise_error(state, TypeError, f"'{python_type(value).__name__}' object is not iterable")


def _constant_iterator(state: State, value: Constant) -> Value:
    obj = value.value
    if isinstance(obj, range):
        return RangeIterator(Constant(obj.start), Constant(obj.stop), Constant(obj.step))
    if isinstance(obj, str | bytes):
        return CountedIterator(obj)
    if isinstance(obj, torch.Size):
        return CountedIterator(obj)
    if isinstance(obj, type) and hasattr(type(obj), "__members__"):
        return ListIterator(TupleValue(tuple(Constant(member) for member in obj)))
    if isinstance(obj, types.MappingProxyType):
        return CountedIterator(tuple(obj))
    if hasattr(obj, "__next__"):
        raise unsupported(state, "TW115", type(obj).__name__)
    if not hasattr(obj, "__iter__"):
        raise_error(state, TypeError, f"'{type(obj).__name__}' object is not iterable")
    raise unsupported(state, "TW105", type(obj).__name__)


def tensor_items(state: State, value: TensorValue) -> list[Value]:
    """A tensor's slices along its first dimension, as torch's own iteration makes them."""
    if value.trace.dim() == 0:
        raise_error(state, TypeError, "iteration over a 0-d tensor")
    result = call_torch(state, torch.Tensor.unbind, [value, Constant(0)], {})
    return list(result.items)


def _object_iterator(state: State, value: ObjectValue) -> Value:
    found = state.type_lookup(value.cls, "__iter__")
    if isinstance(found, types.FunctionType):
        return run_inline(state, call(state, wrap(state, found, class_attribute_source(value.cls, "__iter__"), True), [value], {}))
    if found is not MISSING and value.storage is not None:
        return iterator_of(state, value.storage)
    getter = state.type_lookup(value.cls, "__getitem__")
    if found is MISSING and isinstance(getter, types.FunctionType):
        function = MethodValue(wrap(state, getter, class_attribute_source(value.cls, "__getitem__"), True), value)
        return _by_index(function)
    if value.real is not None and hasattr(type(value.real), "__next__"):
        raise unsupported(state, "TW115", value.cls.value.__name__)
    if found is MISSING:
        raise_error(state, TypeError, f"'{value.cls.value.__name__}' object is not iterable")
    raise unsupported(state, "TW105", value.cls.value.__name__)


def _by_index(getter: Value) -> CombinedIterator:
    """The old protocol: items 0, 1, 2 … until IndexError."""
    counter = itertools.count()

    def pull(state: State) -> Value:
        try:
            return state.call(getter, [Constant(next(counter))])
        except UserRaise as raised:
            if issubclass(raised.value.cls.value, IndexError):
                raise Exhausted from None
            raise
    return CombinedIterator(type(iter(())), pull, getter)


def next_value(state: State, iterator: Value) -> Value:
    """`next(iterator)`; Exhausted at the end."""
    match iterator:
        case IteratorValue():
            if iterator.age < state.effects.oldest:
                raise unsupported(state, "TW103", "a side of the branch advances an iterator that is older")
            return iterator.next(state)
        case GeneratorValue():
            return _next_of_generator(state, iterator)
        case ObjectValue():
            return _next_of_object(state, iterator)
        case _:
            raise_error(state, TypeError, f"'{python_type(iterator).__name__}' object is not an iterator")


def _next_of_generator(state: State, generator: GeneratorValue) -> Value:
    try:
        return advance(state, generator)
    except UserRaise as raised:
        if raised.value.cls.value is StopIteration:
            raise Exhausted from None
        raise


def _next_of_object(state: State, iterator: ObjectValue) -> Value:
    found = state.type_lookup(iterator.cls, "__next__")
    if not isinstance(found, types.FunctionType):
        raise unsupported(state, "TW105", iterator.cls.value.__name__)
    try:
        return run_inline(state, call(state, wrap(state, found, class_attribute_source(iterator.cls, "__next__"), True), [iterator], {}))
    except UserRaise as raised:
        if issubclass(raised.value.cls.value, StopIteration):
            raise Exhausted from None
        raise


def items_of(state: State, value: Value) -> list[Value]:
    """Every item of an iterable, in order."""
    match value:
        case ListValue() | TupleValue():
            return list(value.items)
        case SetValue():
            guard_order(state, value)
            return list(value.items.values())
        case DictValue():
            complete(state, value)
            return [key for key, _ in value.items.values()]
        case ViewValue():
            return _view_items(state, value)
        case SizeValue():
            return items_of(state, specialize(state, value))
    iterator = iterator_of(state, value)
    items = []
    while True:
        try:
            items.append(next_value(state, iterator))
        except Exhausted:
            return items


def _view_items(state: State, view: ViewValue) -> list[Value]:
    complete(state, view.mapping)
    pairs = view.mapping.items.values()
    match view.kind:
        case "keys":
            return [key for key, _ in pairs]
        case "values":
            return [item for _, item in pairs]
        case _:
            return [TupleValue(pair) for pair in pairs]
