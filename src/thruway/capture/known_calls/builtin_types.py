"""Constructing builtin types: list, tuple, dict, set, int, float, bool, str, slice, super, type, object, exceptions' __init__."""

from __future__ import annotations

import collections
import functools
import inspect
import types

import numpy
import torch

from thruway.capture.breaks import unsupported
from thruway.capture.known_calls.rounding import part_of_size, trunc_of, whole_part
from thruway.capture.known_calls.torch_tensors import INTEGERS, item
from thruway.capture.opcodes.stack import cell_content
from thruway.capture.state import Inline, State, UserRaise
from thruway.capture.tensors import call_torch
from thruway.capture.values.attribute import bind, find_attribute, set_attribute
from thruway.capture.values.arrays import number_in_array
from thruway.capture.values.base import (
    ArrayValue, NONE, CellValue, Constant, DictValue, ListValue, MethodValue, ObjectValue, PartialValue, SetValue, SizeValue, SliceValue, SuperValue,
    TensorValue, TupleValue, Value, is_named_tuple,
)
from thruway.capture.values.call import call, call_pure, construct_plain
from thruway.capture.values.compare import boolean
from thruway.capture.values.constants import from_python
from thruway.capture.values.numbers import kept_condition, truth_value
from thruway.capture.values.errors import raise_error, raise_real
from thruway.capture.values.iterate import items_of
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import write_key
from thruway.capture.values.mutate import replace_items
from thruway.capture.values.overriding import overrides
from thruway.capture.values.sizes import size_operation
from thruway.capture.values.text import text_of
from thruway.capture.values.truth import truth
from thruway.capture.values.types_ import python_type, type_value
from thruway.capture.values.unpack import mapping_items
from thruway.shapes.known_elements import known_number
from thruway.shapes.symbolic import symint

Args = list[Value]
Kwargs = dict[str, Value]


def new_list(state: State, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(items_of(state, args[0]) if args else [])


def new_tuple(state: State, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(tuple(items_of(state, args[0])) if args else ())


def new_torch_size(state: State, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(tuple(items_of(state, args[0])) if args else (), cls=torch.Size)


def dict_of(cls: type):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        made = DictValue(cls=cls)
        fill_dict(state, made, args, kwargs)
        return made
    return handler


def fill_dict(state: State, target: DictValue, args: Args, kwargs: Kwargs) -> None:
    """dict.update(*args, **kwargs): a mapping or pairs, then keywords."""
    if args:
        for key, value in pairs_of(state, args[0]):
            write_key(state, target, key_of(state, key), key, value)
    for name, value in kwargs.items():
        write_key(state, target, name, Constant(name), value)


def pairs_of(state: State, value: Value) -> list[tuple[Value, Value]]:
    is_mapping = isinstance(value, DictValue) or isinstance(value, ObjectValue) and find_attribute(state, value, "keys") is not None \
        or isinstance(value, Constant) and isinstance(value.value, types.MappingProxyType)
    if is_mapping:
        return mapping_items(state, value)
    return [_pair(state, i, pair) for i, pair in enumerate(items_of(state, value))]


def _pair(state: State, index: int, value: Value) -> tuple[Value, Value]:
    try:
        pair = items_of(state, value)
    except UserRaise as raised:
        if raised.value.cls.value is not TypeError:
            raise
        raise_error(state, TypeError, f"cannot convert dictionary update sequence element #{index} to a sequence")
    if len(pair) != 2:
        raise_error(state, ValueError, f"dictionary update sequence element #{index} has length {len(pair)}; 2 is required")
    return pair[0], pair[1]


def new_default_dict(state: State, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue(cls=collections.defaultdict)
    made.factory = args[0] if args else NONE
    fill_dict(state, made, args[1:], kwargs)
    return made


def new_set(cls: type):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        items = items_of(state, args[0]) if args else []
        return SetValue({key_of(state, item): item for item in items}, cls=cls)
    return handler


def new_deque(state: State, args: Args, kwargs: Kwargs) -> Value:
    items = items_of(state, args[0]) if args else []
    bound = args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)
    if bound is not NONE:
        items = items[max(0, len(items) - bound.value):]
    return ListValue(items, cls=collections.deque, options={"maxlen": bound} if bound is not NONE else None)


def number(cls: type, slot: str):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
        if not args:
            return Constant(cls())
        value = args[0]
        match value:
            case TensorValue() if (found := known_number(value.trace)) is not None:
                return Constant(cls(found))
            case TensorValue() if cls is (float if value.trace.is_floating_point() else int):
                return item(state, [value], {})
            case TensorValue() if cls is float and value.trace.dtype in INTEGERS:
                return item(state, [call_torch(state, torch.Tensor.to, [value, Constant(torch.float64)], {})], {})
            case TensorValue() if cls is int and value.trace.is_floating_point():
                return call_pure(state, int, [item(state, [value], {})], {})
            case TensorValue():
                raise unsupported(state, "TW103", f"{cls.__name__}() of a tensor")
            case ArrayValue() if issubclass(value.cls, numpy.floating if cls is float else numpy.integer) and cls is not complex:
                return number_in_array(state, value, cls.__name__)
            case SizeValue() if len(args) == 1 and not kwargs:
                part = part_of_size(state, value) if cls is int else None
                if cls is int and part is None and (whole := whole_part(state, int, value)) is not None:
                    return whole
                return size_operation(state, NUMBERS[cls], value) if part is None else from_python(state, symint(trunc_of(*part), state.facts))
            case ObjectValue():
                found = state.type_lookup(value.cls, slot)
                if isinstance(found, types.FunctionType):
                    return call(state, bind(state, found, value, value.cls, slot), [], {})
        return call_pure(state, cls, args, kwargs)
    return handler


NUMBERS = {int: torch.sym_int, float: torch.sym_float, complex: complex}


def new_bool(state: State, args: Args, kwargs: Kwargs) -> Value:
    held = kept_condition(state, args[0]) if args else None
    if held is not None:
        return truth_value(state, held)
    return boolean(truth(state, args[0])) if args else Constant(False)


def new_str(state: State, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and not kwargs:
        return text_of(state, args[0], "__str__")
    return call_pure(state, str, args, kwargs)


def representation(state: State, args: Args, kwargs: Kwargs) -> Value:
    return text_of(state, args[0], "__repr__")


def new_slice(state: State, args: Args, kwargs: Kwargs) -> Value:
    parts = {1: [NONE, *args, NONE], 2: [*args, NONE], 3: args}[len(args)]
    return SliceValue(*parts)


def type_of(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    if len(args) == 1:
        return type_value(state, args[0])
    raise unsupported(state, "TW101", "type() with three arguments")


def new_object(state: State, args: Args, kwargs: Kwargs) -> Value:
    """object.__new__(cls). A real one says what abstract classes and arguments that nobody takes raise."""
    real = args[0].value
    if len(args) > 1 or kwargs or inspect.isabstract(real):
        try:
            object.__new__(real, *args[1:], **kwargs)
        except TypeError as error:
            raise_real(state, error)
    state.overrides |= overrides(real)
    return ObjectValue(args[0])


def plain_object(state: State, args: Args, kwargs: Kwargs) -> Value:
    return ObjectValue(state.class_of(object, None))


def property_new(state: State, args: Args, kwargs: Kwargs) -> Value:
    """property.__new__ for a subclass."""
    return ObjectValue(args[0])


def property_init(state: State, args: Args, kwargs: Kwargs) -> Value:
    """property.__init__ of one that was made inside, by its functions alone: it then has their first one's text."""
    made, *functions = args
    if not isinstance(made, ObjectValue) or made.real is not None or kwargs or not 1 <= len(functions) <= 3:
        raise unsupported(state, "TW101", "property.__init__")
    made.new_args = tuple(functions)
    made.slots.update(zip(("fget", "fset", "fdel"), (*functions, NONE, NONE)))
    text = find_attribute(state, functions[0], "__doc__")
    if text is not None and text is not NONE:
        set_attribute(state, made, "__doc__", text)
    return NONE


def new_super(state: State, args: Args, kwargs: Kwargs) -> Value:
    """super() takes `__class__` and the first argument from the running frame."""
    if args:
        if len(args) < 2 or args[1] is NONE:
            raise unsupported(state, "TW101", "super() without an object")
        _check_super(state, *args)
        return SuperValue(args[0].value, args[1])
    frame = state.frames[-1]
    cls = cell_content(state, frame.cells["__class__"], "__class__")
    name = frame.code.co_varnames[0]
    owner = frame.locals.get(name) or frame.cells.get(name)
    return SuperValue(cls.value, owner.content if isinstance(owner, CellValue) else owner)


def _check_super(state: State, cls: Value, owner: Value) -> None:
    found = owner.value if isinstance(owner, Constant) and isinstance(owner.value, type) else python_type(owner)
    if not issubclass(found, cls.value) and not issubclass(python_type(owner), cls.value):
        raise_error(state, TypeError, "super(type, obj): obj must be an instance or subtype of type")


def new_partial(state: State, args: Args, kwargs: Kwargs) -> Value:
    function, *rest = args
    if isinstance(function, PartialValue):
        return PartialValue(function.function, (*function.args, *rest), function.kwargs | kwargs)
    return PartialValue(function, tuple(rest), dict(kwargs))


def new_method(state: State, args: Args, kwargs: Kwargs) -> Value:
    return MethodValue(*args)


def type_call(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    """type.__call__(cls, ...), as a metaclass's super().__call__ reaches it."""
    return construct_plain(state, args[0], args[1:], kwargs)


def no_effect(state: State, args: Args, kwargs: Kwargs) -> Value:
    return NONE


def object_init(state: State, args: Args, kwargs: Kwargs) -> Value:
    """object.__init__(self), which refuses arguments where a class has an `__init__` of its own."""
    real = python_type(args[0])
    if (len(args) > 1 or kwargs) and real.__init__ is not object.__init__:
        raise_error(state, TypeError, "object.__init__() takes exactly one argument (the instance to initialize)")
    return NONE


def exception_init(state: State, args: Args, kwargs: Kwargs) -> Value:
    args[0].new_args = tuple(args[1:])
    args[0].slots.update(kwargs)                 # name, obj, path
    return NONE


def dict_init(state: State, args: Args, kwargs: Kwargs) -> Value:
    target = args[0]
    fill_dict(state, target.storage if isinstance(target, ObjectValue) else target, args[1:], kwargs)
    return NONE


def list_init(state: State, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1:
        target = args[0].storage if isinstance(args[0], ObjectValue) else args[0]
        replace_items(state, target, items_of(state, args[1]))
    return NONE


def tuple_new(state: State, args: Args, kwargs: Kwargs) -> Value:
    """tuple.__new__(cls, items): named tuples are TupleValues, other subclasses objects with a tuple inside."""
    cls, items = args[0], tuple(items_of(state, args[1])) if len(args) > 1 else ()
    real = cls.value
    if real is tuple or is_named_tuple(real):
        return TupleValue(items, cls=real)
    made = ObjectValue(cls)
    made.storage = TupleValue(items)
    return made


def scalar_new(base: type):
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        made = ObjectValue(args[0])
        made.storage = call_pure(state, base, args[1:], kwargs)
        return made
    return handler


def container_new(state: State, args: Args, kwargs: Kwargs) -> Value:
    """dict.__new__ or list.__new__ for a subclass: empty content of the builtin base."""
    made = ObjectValue(args[0])
    base = next(b for b in args[0].value.__mro__ if b in CONTAINERS)
    made.storage = DictValue(cls=base) if issubclass(base, dict) else ListValue([])
    return made


CONTAINERS = (dict, list, collections.OrderedDict, collections.defaultdict, collections.Counter)
ROWS = {
    list: new_list, tuple: new_tuple, torch.Size: new_torch_size, dict: dict_of(dict), collections.OrderedDict: dict_of(collections.OrderedDict),
    collections.defaultdict: new_default_dict, set: new_set(set), frozenset: new_set(frozenset), collections.deque: new_deque,
    int: number(int, "__int__"), float: number(float, "__float__"), complex: number(complex, "__complex__"), bool: new_bool, str: new_str,
    repr: representation, slice: new_slice, type: type_of, object: plain_object, super: new_super, functools.partial: new_partial,
    types.MethodType: new_method, type.__call__: type_call,
    object.__new__: new_object, object.__init__: object_init, BaseException.__init__: exception_init,
    **{cls.__init__: exception_init for cls in BaseException.__subclasses__() + Exception.__subclasses__() if cls.__module__ == "builtins"},
    dict.__init__: dict_init, collections.OrderedDict.__init__: dict_init, list.__init__: list_init, tuple.__new__: tuple_new,
    property.__new__: property_new, property.__init__: property_init, dict.__new__: container_new, list.__new__: container_new,
    int.__new__: scalar_new(int), float.__new__: scalar_new(float), str.__new__: scalar_new(str),
    object.__init_subclass__: no_effect,
}
