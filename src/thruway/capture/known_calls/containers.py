"""Methods of list, dict, set, deque and tuple, on values made inside or found outside, and as storage of subclasses."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

from thruway.capture.breaks import unsupported
from thruway.capture.known_calls.builtin_functions import length
from thruway.capture.known_calls.builtin_types import fill_dict
from thruway.capture.state import Inline, State
from thruway.capture.values.base import (
    NONE, VIEW_TYPES, Constant, DictValue, ListValue, ObjectValue, SetValue, TextValue, TupleValue, UnreadList, Value, ViewValue,
)
from thruway.capture.values.binary import binary, set_items
from thruway.capture.values.call import call_pure, run_inline
from thruway.capture.values.compare import boolean, compare, contains, equal
from thruway.capture.values.constants import as_python
from thruway.capture.values.errors import raise_error
from thruway.capture.values.held_text import has_numbers, held_text, is_held, joined_by, plain_fields
from thruway.capture.values.iterate import items_of, iterator_of
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import complete, delete_key, read_key, record_write, remember_items, write_key
from thruway.capture.values.mutate import add_member, append_item, remove_member, replace_items, update_set
from thruway.capture.values.order import sort_values
from thruway.capture.values.subscript import delete_item, get_item, set_item
from thruway.capture.values.text import text_of
from thruway.capture.values.types_ import python_type

Args = list[Value]
Kwargs = dict[str, Value]
Handler = Callable[[State, Args, Kwargs], Any]


def content(value: Value) -> Any:
    """The container itself, or the builtin content of an instance of a subclass."""
    return value.storage if isinstance(value, ObjectValue) else value


def method(function: Callable[..., Any]) -> Handler:
    """A row whose function takes (state, container, *arguments) and may return None."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
        try:
            result = function(state, content(args[0]), *args[1:], **kwargs)
        except TypeError as error:
            if error.__traceback__.tb_next is not None:
                raise
            raise unsupported(state, "TW101", f"a method of {python_type(args[0]).__name__} with arguments that do not fit") from None
        return NONE if result is None else result
    return handler


def list_append(state: State, target: ListValue, value: Value) -> None:
    limit = target.options.get("maxlen")
    if not isinstance(target, UnreadList) and limit is not None and len(target.items) >= limit.value:
        replace_items(state, target, [*target.items[1:], value])
    else:
        append_item(state, target, value)


def list_extend(state: State, target: ListValue, values: Value) -> None:
    for value in items_of(state, values):
        list_append(state, target, value)


def list_insert(state: State, target: ListValue, index: Value, value: Value) -> None:
    items = list(target.items)
    items.insert(as_python(state, index), value)
    replace_items(state, target, items)


def list_pop(state: State, target: ListValue, index: Value = Constant(-1)) -> Value:
    items = list(target.items)
    try:
        popped = items.pop(as_python(state, index))
    except IndexError as error:
        raise_error(state, IndexError, *error.args)
    replace_items(state, target, items)
    return popped


def list_remove(state: State, target: ListValue, value: Value) -> None:
    at = _position(state, target, value, method="remove")
    replace_items(state, target, target.items[:at] + target.items[at + 1:])


def _position(state: State, target: Any, value: Value, start: int = 0, method: str = "index") -> int:
    for i in range(start, len(target.items)):
        if equal(state, target.items[i], value):
            return i
    name = target.cls.__name__
    if target.cls is tuple or method == "remove" and target.cls is list:
        raise_error(state, ValueError, f"{name}.{method}(x): x not in {name}")
    raise_error(state, ValueError, f"{as_python(state, text_of(state, value, '__repr__'))} is not in {name}")


def sequence_index(state: State, target: Any, value: Value, start: Value = Constant(0)) -> Value:
    return Constant(_position(state, target, value, as_python(state, start)))


def sequence_count(state: State, target: Any, value: Value) -> Value:
    return Constant(sum(equal(state, item, value) for item in target.items))


def list_sort(state: State, target: ListValue, key: Value = NONE, reverse: Value = Constant(False)) -> None:
    """While keys and comparisons are asked, the list is empty."""
    items, target.items = target.items, []
    try:
        found = sort_values(state, items, key, reverse)
        if target.items:
            raise unsupported(state, "TW101", "list.sort whose key changes the list")
    finally:
        target.items = items
    replace_items(state, target, found)


def list_copy(state: State, target: ListValue) -> Value:
    return ListValue(list(target.items), cls=target.cls, options=target.options)


def deque_appendleft(state: State, target: ListValue, value: Value) -> None:
    limit = target.options.get("maxlen")
    items = [value, *target.items]
    replace_items(state, target, items if limit is None else items[:limit.value])


def deque_rotate(state: State, target: ListValue, steps: Value = Constant(1)) -> None:
    rotated = collections.deque(target.items)
    rotated.rotate(as_python(state, steps))
    replace_items(state, target, list(rotated))


def dict_get(state: State, target: DictValue, key: Value, default: Value = NONE) -> Value:
    found = read_key(state, target, key_of(state, key))
    return default if found is None else found


def dict_setdefault(state: State, target: DictValue, key: Value, default: Value = NONE) -> Value:
    found = read_key(state, target, key_of(state, key))
    if found is None:
        write_key(state, target, key_of(state, key), key, default)
        return default
    return found


def dict_pop(state: State, target: DictValue, key: Value, default: Value | None = None) -> Value:
    found = read_key(state, target, key_of(state, key))
    if found is None:
        if default is None:
            raise_error(state, KeyError, key)
        return default
    delete_key(state, target, key_of(state, key), key)
    return found


def dict_popitem(state: State, target: DictValue, last: Value = Constant(True)) -> Value:
    complete(state, target)
    if not target.items:
        raise_error(state, KeyError, "popitem(): dictionary is empty")
    key = list(target.items)[-1 if as_python(state, last) else 0]
    pair = target.items[key]
    delete_key(state, target, key, pair[0])
    return TupleValue(pair)


def dict_clear(state: State, target: DictValue) -> None:
    complete(state, target)
    for key, (key_value, _) in list(target.items.items()):
        delete_key(state, target, key, key_value)


def dict_copy(state: State, target: DictValue) -> Value:
    complete(state, target)
    made = DictValue(dict(target.items), cls=target.cls)
    made.factory = target.factory
    return made


def move_to_end(state: State, target: DictValue, key: Value, last: Value = Constant(True)) -> None:
    complete(state, target)
    hashed = key_of(state, key)
    if hashed not in target.items:
        raise_error(state, KeyError, key)
    remember_items(state, target)
    pair = target.items.pop(hashed)
    target.items = {**target.items, hashed: pair} if as_python(state, last) else {hashed: pair, **target.items}
    if target.exposed:
        record_write(state, target, "move_to_end", key, last)


def view(kind: str) -> Callable[[State, DictValue], Value]:
    return lambda state, target: ViewValue(target, kind)


def dict_update(state: State, args: Args, kwargs: Kwargs) -> Value:
    fill_dict(state, content(args[0]), args[1:], kwargs)
    return NONE


def dict_fromkeys(state: State, args: Args, kwargs: Kwargs) -> Value:
    default = args[1] if len(args) > 1 else NONE
    return DictValue({key_of(state, k): (k, default) for k in items_of(state, args[0])})


def _members(state: State, others: tuple[Value, ...]) -> dict[Any, Value]:
    return {key_of(state, item): item for other in others for item in items_of(state, other)}


def set_union(state: State, target: SetValue, *others: Value) -> Value:
    return SetValue(target.items | _members(state, others), cls=target.cls)


def set_intersection(state: State, target: SetValue, *others: Value) -> Value:
    kept = target.items
    for other in others:
        members = _members(state, (other,))
        kept = {key: item for key, item in kept.items() if key in members}
    return SetValue(dict(kept), cls=target.cls)


def set_difference(state: State, target: SetValue, *others: Value) -> Value:
    members = _members(state, others)
    return SetValue({key: item for key, item in target.items.items() if key not in members}, cls=target.cls)


def set_issubset(state: State, target: SetValue, other: Value) -> Value:
    return boolean(target.items.keys() <= _members(state, (other,)).keys())


def set_issuperset(state: State, target: SetValue, other: Value) -> Value:
    return boolean(target.items.keys() >= _members(state, (other,)).keys())


def set_isdisjoint(state: State, target: SetValue, other: Value) -> Value:
    return boolean(target.items.keys().isdisjoint(_members(state, (other,))))


def set_discard(state: State, target: SetValue, value: Value) -> None:
    if key_of(state, value) in target.items:
        remove_member(state, target, value)


def set_remove(state: State, target: SetValue, value: Value) -> None:
    if key_of(state, value) not in target.items:
        raise_error(state, KeyError, value)
    remove_member(state, target, value)


def set_pop(state: State, target: SetValue) -> Value:
    """Which one of several members comes depends on the set's history."""
    if not target.items:
        raise_error(state, KeyError, "pop from an empty set")
    if len(target.items) > 1:
        raise unsupported(state, "TW101", "set.pop")
    (member,) = target.items.values()
    remove_member(state, target, member)
    return member


def set_update(state: State, target: SetValue, *others: Value) -> None:
    for other in others:
        update_set(state, target, items_of(state, other))


def set_clear(state: State, target: SetValue) -> None:
    for value in list(target.items.values()):
        remove_member(state, target, value)


def set_copy(state: State, target: SetValue) -> Value:
    return SetValue(dict(target.items), cls=target.cls)


def view_isdisjoint(state: State, args: Args, kwargs: Kwargs) -> Value:
    return boolean(set_items(state, args[0]).keys().isdisjoint(_members(state, (args[1],))))


def count_elements(state: State, args: Args, kwargs: Kwargs) -> Value:
    """collections._count_elements(mapping, iterable), which Counter.update calls."""
    target = content(args[0])
    for item in items_of(state, args[1]):
        key = key_of(state, item)
        found = read_key(state, target, key)
        write_key(state, target, key, item, Constant(1) if found is None else run_inline(state, binary(state, "+", found, Constant(1))))
    return NONE


def string_join(state: State, args: Args, kwargs: Kwargs) -> Value:
    items = items_of(state, args[1])
    if any(isinstance(one, TextValue) for one in items):
        if not all(python_type(one) is str for one in items):
            raise unsupported(state, "TW101", "str.join")
        return TextValue(joined_by, (args[0], *items), {})
    parts = [as_python(state, item) for item in items]
    try:
        return Constant(as_python(state, args[0]).join(parts))
    except TypeError as error:
        raise_error(state, TypeError, *error.args)


def string_format(state: State, args: Args, kwargs: Kwargs) -> Value:
    """str.format; of what tensors hold, and of numbers that change, after the graph."""
    form, shown = args[0].value if isinstance(args[0], Constant) else None, (*args, *kwargs.values())
    needs_tensors = any(map(is_held, shown))
    if (needs_tensors or any(map(has_numbers, shown))) and form is not None and plain_fields(form):
        made = held_text(state, str.format, args, kwargs)
        if made is not None:
            return made
    if needs_tensors and not all(isinstance(one, TextValue) and one.is_known for one in shown if is_held(one)):
        raise unsupported(state, "TW101", "str.format")
    return call_pure(state, str.format, args, kwargs)


def of_proxy(function: Callable[..., Any]) -> Handler:
    """A row for a types.MappingProxyType: one found outside has its dict inside, that of a class stays a constant."""
    plain = method(function)

    def handler(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
        if not isinstance(content(args[0]), DictValue):
            raise unsupported(state, "TW101", "a method of mappingproxy")
        return plain(state, args, kwargs)
    return handler


def equality(symbol: str) -> Handler:
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
        left, right = content(args[0]), content(args[1])
        if python_type(right) is not python_type(left) and not isinstance(right, type(left)):
            return Constant(NotImplemented)
        return compare(state, symbol, left, right)
    return handler


SEQUENCE = {"index": sequence_index, "count": sequence_count}
LIST = SEQUENCE | {"append": list_append, "extend": list_extend, "insert": list_insert, "pop": list_pop, "remove": list_remove, "copy": list_copy,
                   "reverse": lambda state, target: replace_items(state, target, target.items[::-1]),
                   "clear": lambda state, target: replace_items(state, target, [])}
DEQUE = LIST | {"appendleft": deque_appendleft, "popleft": lambda state, target: list_pop(state, target, Constant(0)), "rotate": deque_rotate,
                "extendleft": lambda state, target, values: [deque_appendleft(state, target, v) for v in items_of(state, values)] and None}
DICT = {"get": dict_get, "setdefault": dict_setdefault, "pop": dict_pop, "popitem": dict_popitem, "clear": dict_clear, "copy": dict_copy,
        "keys": view("keys"), "values": view("values"), "items": view("items")}
FROZENSET = {"union": set_union, "intersection": set_intersection, "difference": set_difference, "issubset": set_issubset,
             "issuperset": set_issuperset, "isdisjoint": set_isdisjoint, "copy": set_copy}
SET = FROZENSET | {"add": add_member, "discard": set_discard, "remove": set_remove, "update": set_update, "pop": set_pop, "clear": set_clear}
SLOTS: dict[str, Callable[..., Any]] = {
    "__getitem__": get_item, "__setitem__": set_item, "__delitem__": delete_item,
    "__contains__": lambda state, target, item: boolean(contains(state, target, item)),
    "__len__": lambda state, target: length(state, [target], {}), "__iter__": iterator_of,
}


def _rows() -> dict[Any, Handler]:
    rows: dict[Any, Handler] = {}
    for cls, table in ((list, LIST), (tuple, SEQUENCE), (collections.deque, DEQUE), (dict, DICT), (collections.OrderedDict, DICT),
                       (set, SET), (frozenset, FROZENSET), (collections.defaultdict, {})):
        for name, function in (table | SLOTS).items():
            found = vars(cls).get(name)
            if found is not None:
                rows[found] = method(function)
        for name, symbol in (("__eq__", "=="), ("__ne__", "!=")):
            if name in vars(cls):
                rows[vars(cls)[name]] = equality(symbol)
    proxy = types.MappingProxyType
    rows |= {vars(proxy)[name]: of_proxy(function) for name, function in (DICT | SLOTS).items() if name in vars(proxy)}
    return rows | _view_rows()


def _view_rows() -> dict[Any, Handler]:
    rows: dict[Any, Handler] = {}
    for view in (view for views in VIEW_TYPES.values() for view in views.values()):
        rows |= {vars(view)[name]: method(SLOTS[name]) for name in ("__len__", "__iter__", "__contains__") if name in vars(view)}
        if "isdisjoint" in vars(view):
            rows[vars(view)["isdisjoint"]] = view_isdisjoint
    return rows


ROWS = _rows() | {
    list.sort: method(list_sort), collections.OrderedDict.move_to_end: method(move_to_end), dict.update: dict_update,
    collections.OrderedDict.update: dict_update, collections._count_elements: count_elements, dict.fromkeys: dict_fromkeys, str.join: string_join,
    str.format: string_format,
}
