"""Reading and writing attributes: Python's own lookup, done over Values (type MRO, descriptors, instance dict, `__getattr__`)."""

from __future__ import annotations

import collections
import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import Inline, Missing, State, UserRaise, Written, immutable
from thruway.capture.values.arrays import array_attribute
from thruway.capture.values.base import (
    FALSE, NONE, RAISED_BARE, TRUE, ArrayValue, CompiledValue, Constant, DictValue, FunctionValue, InstanceDict, ListValue, MethodValue, ObjectValue,
    PartialValue, SetValue, SizeValue, SliceValue, SuperValue, TensorValue, TracebackValue, TupleValue, Value, known_text,
)
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.constants import NotConstant, as_python, from_python
from thruway.capture.values.effect import record
from thruway.capture.values.errors import raise_as_python_does, raise_error, raise_missing
from thruway.capture.values.mapping import delete_key, read_key, write_key
from thruway.capture.values.namespace import module_namespace, write_global
from thruway.capture.values.overriding import is_tensor_object
from thruway.capture.values.tensor_attribute import tensor_attribute
from thruway.capture.values.traceback import read_traceback, traceback_of
from thruway.capture.values.types_ import type_value
from thruway.capture.wrap import function_cells, function_defaults, instance_dict, wrap
from thruway.frame.guard import MISSING
from thruway.frame.source import Attr, Item, MethodFunction, Source
from thruway.frame.tagged import is_taggable

Result = Value | Inline


def get_attribute(state: State, value: Value, name: str) -> Result:
    """`value.name`; AttributeError is raised in the user's code."""
    value = known_text(value)
    reader = READERS.get(type(value), _read_builtin_instance)
    return reader(state, value, name)


def find_attribute(state: State, value: Value, name: str) -> Value | None:
    """`getattr(value, name, None-like)`: None where lookup raises AttributeError. Runs nested."""
    try:
        return run_inline(state, get_attribute(state, value, name))
    except UserRaise as raised:
        if not is_attribute_error(raised):
            raise
    return None


def _missing(state: State, value: Value, name: str) -> Result:
    raise_missing(state, value, name, type_value(state, value).value)


def _read_object(state: State, value: ObjectValue, name: str) -> Result:
    cls = value.cls
    if issubclass(cls.value, threading.local):              # its attributes are the thread's, not those in its dict
        raise unsupported(state, "TW102", name, cls.value.__name__)
    hook = state.type_lookup(cls, "__getattribute__")
    if isinstance(hook, types.FunctionType):
        return call(state, wrap(state, hook, class_attribute_source(cls, "__getattribute__"), True), [value, Constant(name)], {})
    return generic_attribute(state, value, name)


def generic_attribute(state: State, value: ObjectValue, name: str) -> Result:
    """object.__getattribute__ and then `__getattr__`."""
    cls = value.cls
    found = state.type_lookup(cls, name)
    if found is not MISSING and is_data_descriptor(found):
        result = _bound_or_missing(state, found, value, name)
        return result if result is not None else _fall_back(state, value, name)
    attributes = instance_dict(state, value)
    if attributes is not None:
        held = read_key(state, attributes, name)
        if held is not None:
            return held
    if found is not MISSING:
        return _bound_or_missing(state, found, value, name)
    return _fall_back(state, value, name)


@functools.lru_cache(maxsize=4096)
def _has_getter(cls: type) -> bool:
    """Whether reading a class attribute of this kind runs code of the user's."""
    return issubclass(cls, property | functools.cached_property) or isinstance(getattr(cls, "__get__", None), types.FunctionType)


def _bound_or_missing(state: State, found: Any, value: ObjectValue, name: str) -> Result | None:
    """`bind` for an instance: what a getter raises AttributeError for counts as missing."""
    hook = state.type_lookup(value.cls, "__getattr__") if _has_getter(type(found)) else MISSING
    if hook is MISSING:
        return bind(state, found, value, value.cls, name)
    try:
        result = bind(state, found, value, value.cls, name)
    except UserRaise as raised:
        if not is_attribute_error(raised):
            raise
        return _fall_back(state, value, name)
    if isinstance(result, Inline):
        result.frame.missing = Missing(hook, value, name, lambda: run_inline(state, _fall_back(state, value, name)))
    return result


def is_attribute_error(raised: UserRaise) -> bool:
    return isinstance(raised.value, ObjectValue) and issubclass(raised.value.cls.value, AttributeError)


def _fall_back(state: State, value: ObjectValue, name: str) -> Result:
    hook = state.type_lookup(value.cls, "__getattr__")
    if hook is torch.nn.Module.__getattr__:
        return _module_attribute(state, value, name)
    if hook is MISSING:
        return _missing(state, value, name)
    return call(state, wrap(state, hook, class_attribute_source(value.cls, "__getattr__"), True), [value, Constant(name)], {})


def _module_attribute(state: State, value: ObjectValue, name: str) -> Result:
    """nn.Module.__getattr__: parameters, buffers, modules; the same as running its bytecode."""
    attributes = instance_dict(state, value)
    for table in ("_parameters", "_buffers", "_modules"):
        held = read_key(state, attributes, table)
        if isinstance(held, DictValue):
            found = read_key(state, held, name)
            if found is not None:
                return found
    return _missing(state, value, name)


def class_attribute_source(cls: Constant, name: str) -> Source | None:
    return None if cls.source is None else Attr(cls.source, name)


@functools.lru_cache(maxsize=4096)
def _type_is_data_descriptor(cls: type) -> bool:
    return hasattr(cls, "__set__") or hasattr(cls, "__delete__")


def is_data_descriptor(found: Any) -> bool:
    return _type_is_data_descriptor(type(found))


def bind(state: State, found: Any, owner: Value | None, cls: Constant, name: str) -> Result | None:
    """What the class attribute `found` gives for an instance (`owner`) or the class itself (owner None). None: an empty slot."""
    binder = BINDERS.get(type(found)) or _binder_of_base(type(found))
    if binder is not None:
        return binder(state, found, owner, cls, name)
    source = class_attribute_source(cls, name)
    getter = next((base.__dict__["__get__"] for base in type(found).__mro__ if "__get__" in base.__dict__), None)
    if getter is None:
        return plain_class_attribute(state, found, source)
    if isinstance(getter, types.FunctionType):
        value = wrap(state, found, _static_source(cls, name))
        if not isinstance(value, ObjectValue):
            raise unsupported(state, "TW102", name, cls.value.__name__)
        return call(state, MethodValue(wrap(state, getter, Attr(value.cls.source, "__get__"), True), value), [owner or NONE, cls], {})
    raise unsupported(state, "TW102", name, cls.value.__name__)


@functools.lru_cache(maxsize=4096)
def _binder_of_base(cls: type) -> Callable[..., Result | None] | None:
    """For classes derived from property that leave reading as it is."""
    return _bind_property if issubclass(cls, property) and cls.__get__ is property.__get__ else None


def plain_class_attribute(state: State, found: Any, source: Source | None) -> Value:
    if source is None:
        return from_python(state, found)
    return wrap(state, found, source)


def _static_source(cls: Constant, name: str) -> Source:
    """Where a descriptor object itself is found: in the dict of the class along the MRO that holds it."""
    from_base = next(i for i, base in enumerate(cls.value.__mro__) if name in base.__dict__)
    base = cls.source if from_base == 0 else _mro_item(cls.source, from_base)
    return _in_dict(base, name)


def _mro_item(source: Source, index: int) -> Source:
    return Item(Attr(source, "__mro__"), index)


def _in_dict(base: Source, name: str) -> Source:
    return Item(Attr(base, "__dict__"), name)


def _bind_function(state: State, found: types.FunctionType, owner: Value | None, cls: Constant, name: str) -> Value:
    source = class_attribute_source(cls, name)
    function = class_function(state, found, source)
    return function if owner is None else MethodValue(function, owner)


def class_function(state: State, found: types.FunctionType, source: Source | None) -> Value:
    """A function found on a class; its identity is guarded by the type lookup. One that torch.compile may wrap has no place of its own."""
    return Constant(found) if source is None or is_taggable(found) else wrap(state, found, source, True)


def _bind_method_descriptor(state: State, found: Any, owner: Value | None, cls: Constant, name: str) -> Value:
    return Constant(found) if owner is None else MethodValue(Constant(found), owner)


def _bind_property(state: State, found: property, owner: Value | None, cls: Constant, name: str) -> Result:
    source = class_attribute_source(cls, name)
    if owner is None:
        return Constant(found, source) if type(found) is property else plain_class_attribute(state, found, source)
    if found.fget is None:
        raise_error(state, AttributeError, f"property '{name}' of '{cls.value.__name__}' object has no getter")
    getter = wrap(state, found.fget, Attr(source, "fget"), True) if source is not None else Constant(found.fget)
    return call(state, getter, [owner], {})


def _bind_static(state: State, found: staticmethod, owner: Value | None, cls: Constant, name: str) -> Value:
    source = class_attribute_source(cls, name)
    return wrap(state, found.__func__, source, True) if source is not None else Constant(found.__func__)


def _bind_class_method(state: State, found: classmethod, owner: Value | None, cls: Constant, name: str) -> Value:
    source = class_attribute_source(cls, name)
    function = wrap(state, found.__func__, MethodFunction(source), True) if source is not None else Constant(found.__func__)
    return MethodValue(function, cls)


def _bind_builtin_class_method(state: State, found: Any, owner: Value | None, cls: Constant, name: str) -> Value:
    return MethodValue(Constant(found), cls) if found in state.known else Constant(getattr(cls.value, name))


def _bind_slot(state: State, found: types.MemberDescriptorType, owner: Value | None, cls: Constant, name: str) -> Value | None:
    """A `__slots__` member."""
    if owner is None or not isinstance(owner, ObjectValue):
        return Constant(found)
    held = owner.slots.get(name)
    if held is None and owner.real is None and issubclass(owner.cls.value, BaseException):
        return _exception_field(state, found, owner)
    if held is None and owner.real is not None:
        try:
            real = found.__get__(owner.real)
        except AttributeError:
            state.guard("has_not", owner.source, name)
            return None
        held = owner.slots[name] = wrap(state, real, Attr(owner.source, name))
    return held


def _exception_field(state: State, found: types.MemberDescriptorType, owner: ObjectValue) -> Value | None:
    """A field of a builtin exception, as its constructor fills it."""
    if found.__name__ == "__suppress_context__":
        return boolean_constant("__cause__" in owner.slots)
    if found is StopIteration.value or found is SystemExit.code:
        return owner.new_args[0] if len(owner.new_args) == 1 else TupleValue(owner.new_args) if owner.new_args else NONE
    if found.__objclass__ in (AttributeError, NameError):
        raise unsupported(state, "TW102", found.__name__, owner.cls.value.__name__)          # Python fills it where the error passes
    try:
        return from_python(state, found.__get__(found.__objclass__(*(as_python(state, one) for one in owner.new_args))))
    except (NotConstant, TypeError):
        raise unsupported(state, "TW102", found.__name__, owner.cls.value.__name__) from None


def boolean_constant(flag: bool) -> Constant:
    return TRUE if flag else FALSE


def _bind_getset(state: State, found: types.GetSetDescriptorType, owner: Value | None, cls: Constant, name: str) -> Result:
    """Computed attributes of builtin types: rows in GETSETS."""
    if owner is None:
        return Constant(found)
    if name == "__dict__":
        return instance_dict(state, owner)
    if is_tensor_object(owner) and found.__objclass__ in (torch._C.TensorBase, torch.Tensor):
        return call(state, Constant(found.__get__), [owner], {})
    if isinstance(owner, ListValue) and name == "maxlen":
        return owner.options.get("maxlen", NONE)
    row = GETSETS.get(name)
    if row is None or not isinstance(owner, ObjectValue):
        raise unsupported(state, "TW102", name, cls.value.__name__)
    return row(state, owner)


def _bind_cached_property(state: State, found: functools.cached_property, owner: Value | None, cls: Constant, name: str) -> Result:
    source = class_attribute_source(cls, name)
    if owner is None:
        return Constant(found, source)
    getter = wrap(state, found.func, Attr(_static_source(cls, name), "func"), True)
    value = state.call(getter, [owner], {})
    attributes = instance_dict(state, owner)
    write_key(state, attributes, name, Constant(name), value)
    return value


def _bind_cached_function(state: State, found: Any, owner: Value | None, cls: Constant, name: str) -> Value:
    function = plain_class_attribute(state, found, class_attribute_source(cls, name))
    return function if owner is None else MethodValue(function, owner)


def _bind_tuple_field(state: State, found: Any, owner: Value | None, cls: Constant, name: str) -> Value:
    """A named tuple's field, seen through a subclass."""
    if owner is None:
        return Constant(found)
    _, (index, _) = found.__reduce__()
    return owner.storage.items[index] if isinstance(owner, ObjectValue) else owner.items[index]


BINDERS: dict[type, Callable[..., Result | None]] = {
    Written: lambda state, found, owner, cls, name: found.value,
    types.FunctionType: _bind_function,
    types.MethodDescriptorType: _bind_method_descriptor,
    types.WrapperDescriptorType: _bind_method_descriptor,
    property: _bind_property,
    staticmethod: _bind_static,
    classmethod: _bind_class_method,
    types.ClassMethodDescriptorType: _bind_builtin_class_method,
    types.MemberDescriptorType: _bind_slot,
    types.GetSetDescriptorType: _bind_getset,
    functools.cached_property: _bind_cached_property,
    type(collections.namedtuple("_", "x").x): _bind_tuple_field,
    functools._lru_cache_wrapper: _bind_cached_function,
    types.BuiltinFunctionType: lambda state, found, owner, cls, name: Constant(found),
}


def _exception_args(state: State, owner: ObjectValue) -> Value:
    return TupleValue(owner.new_args)


def _linked_error(state: State, owner: ObjectValue, name: str) -> Value:
    if name not in owner.slots and (owner.real is not None or name == "__context__" and RAISED_BARE in owner.slots):
        raise unsupported(state, "TW106", f"{name} of an exception")
    return owner.slots.get(name, NONE)


GETSETS: dict[str, Callable[[State, ObjectValue], Result]] = {
    "args": _exception_args,
    "__context__": lambda state, owner: _linked_error(state, owner, "__context__"),
    "__cause__": lambda state, owner: _linked_error(state, owner, "__cause__"),
    "__traceback__": traceback_of,
    "__class__": lambda state, owner: owner.cls,
}


def _read_constant(state: State, value: Constant, name: str) -> Result:
    obj = value.value
    if isinstance(obj, type):
        return _read_class(state, value, name)
    if isinstance(obj, types.ModuleType):
        return _read_module(state, value, name)
    try:
        found = getattr(obj, name)
    except AttributeError as error:
        raise_error(state, AttributeError, *error.args)
    owner = getattr(found, "__self__", None)
    if owner is obj and isinstance(found, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return MethodValue(Constant(getattr(type(obj), name)), value)
    if isinstance(found, types.MethodType):
        return MethodValue(_function_constant(state, found.__func__, Attr(value.source, name) if value.source else None), value)
    if value.source is None:
        return from_python(state, found)
    return wrap(state, found, Attr(value.source, name), isinstance(obj, LEAVES))


LEAVES = (int, float, complex, str, bytes, torch.dtype, torch.device, torch.finfo, torch.iinfo, types.BuiltinFunctionType)


def _function_constant(state: State, function: types.FunctionType, source: Source | None) -> Value:
    return Constant(function) if source is None else wrap(state, function, MethodFunction(source), True)


def _read_module(state: State, value: Constant, name: str) -> Result:
    """An attribute of a Python module: its globals."""
    space = module_namespace(state, value)
    found = space.values.get(name)
    if found is None:
        try:
            real = getattr(value.value, name)
        except AttributeError as error:
            raise_error(state, AttributeError, *error.args)
        found = space.values[name] = wrap(state, real, space.source_of(name) if name in value.value.__dict__ else Attr(value.source, name))
    return found


def _read_class(state: State, value: Constant, name: str) -> Result:
    """type.__getattribute__: the metaclass's data descriptors, the class's MRO, the metaclass's rest."""
    cls = value.value
    meta = type(cls)
    row = CLASS_ATTRIBUTES.get(name)
    if row is not None:
        return row(state, value)
    found = state.type_lookup(value, name)
    if found is not MISSING:
        return bind(state, found, None, value, name)
    on_meta = next((base.__dict__[name] for base in meta.__mro__ if name in base.__dict__), MISSING)
    if on_meta is MISSING:
        raise_error(state, AttributeError, f"type object '{cls.__name__}' has no attribute '{name}'")
    result = bind(state, on_meta, value, state.class_of(meta, value.source), name)
    return result


CLASS_ATTRIBUTES: dict[str, Callable[[State, Constant], Value]] = {
    "__name__": lambda state, cls: Constant(cls.value.__name__),
    "__qualname__": lambda state, cls: Constant(cls.value.__qualname__),
    "__module__": lambda state, cls: Constant(cls.value.__module__),
    "__mro__": lambda state, cls: TupleValue(tuple(Constant(c) for c in cls.value.__mro__)),
    "__bases__": lambda state, cls: TupleValue(tuple(Constant(c) for c in cls.value.__bases__)),
    "__dict__": lambda state, cls: Constant(cls.value.__dict__, class_attribute_source(cls, "__dict__")),
    "__class__": lambda state, cls: state.class_of(type(cls.value), cls.source),
    "__doc__": lambda state, cls: Constant(cls.value.__doc__),
}


def _read_super(state: State, value: SuperValue, name: str) -> Result:
    owner = value.owner
    is_class = isinstance(owner, Constant) and isinstance(owner.value, type) and value.start in owner.value.__mro__
    cls = owner if is_class else type_value(state, owner)
    mro = cls.value.__mro__
    start = mro.index(value.start)
    for i in range(start + 1, len(mro)):
        if name in mro[i].__dict__:
            base = state.by_id.get(id(mro[i]))
            if base is None:
                base = wrap(state, mro[i], _mro_item(cls.source, i)) if cls.source is not None else Constant(mro[i])
            found = state.type_lookup(base, name)
            if is_class and isinstance(found, staticmethod | types.FunctionType | types.BuiltinFunctionType):
                return bind(state, found, None, base, name)
            result = bind(state, found, None if is_class else owner, base, name)
            if isinstance(found, classmethod) and isinstance(result, MethodValue):
                return MethodValue(result.function, cls)
            return result
    return _missing(state, value, name)


def _read_function(state: State, value: FunctionValue, name: str) -> Result:
    attributes = function_dict(state, value)
    row = FUNCTION_ATTRIBUTES.get(name)
    if row is not None and name not in attributes.items:
        return row(state, value)
    held = read_key(state, attributes, name)
    return held if held is not None else _read_builtin_instance(state, value, name)


def function_dict(state: State, value: FunctionValue) -> DictValue:
    if value.attributes is None:
        value.attributes = DictValue() if value.real is None else InstanceDict(value.source, value.real.__dict__)
        value.attributes.age = value.age
    return value.attributes


FUNCTION_ATTRIBUTES: dict[str, Callable[[State, FunctionValue], Value]] = {
    "__name__": lambda state, f: _told(state, f, "__name__", f.name),
    "__qualname__": lambda state, f: _told(state, f, "__qualname__", f.code.co_qualname),
    "__code__": lambda state, f: Constant(f.code),
    "__module__": lambda state, f: _told(state, f, "__module__", f.namespace.real.get("__name__")),
    "__defaults__": lambda state, f: TupleValue(function_defaults(state, f)) if function_defaults(state, f) else NONE,
    "__closure__": lambda state, f: TupleValue(function_cells(state, f)) if function_cells(state, f) else NONE,
    "__dict__": lambda state, f: function_dict(state, f),
    "__annotations__": lambda state, f: _annotations(state, f),
    "__doc__": lambda state, f: _told(state, f, "__doc__", f.code.co_consts[0] if f.code.co_consts and isinstance(f.code.co_consts[0], str) else None),
}


if hasattr(types.FunctionType, "__type_params__"):                      # 3.12
    FUNCTION_ATTRIBUTES["__type_params__"] = lambda state, f: TupleValue(()) if f.real is None else from_python(state, f.real.__type_params__)


def _told(state: State, value: FunctionValue, name: str, made: Any) -> Value:
    """What a function says of itself, which functools.wraps changes; `made` what one made inside begins with."""
    return Constant(made) if value.real is None else wrap(state, getattr(value.real, name), Attr(value.source, name))


def _annotations(state: State, value: FunctionValue) -> Value:
    if value.real is not None:
        return wrap(state, value.real.__annotations__, Attr(value.source, "__annotations__"))
    if value.annotations is not None:
        raise unsupported(state, "TW102", "__annotations__", "function")
    return DictValue()


def _read_method(state: State, value: MethodValue, name: str) -> Result:
    match name:
        case "__self__":
            return value.owner
        case "__func__":
            return value.function
        case _:
            return get_attribute(state, value.function, name)


def _read_partial(state: State, value: PartialValue, name: str) -> Result:
    match name:
        case "func":
            return value.function
        case "args":
            return TupleValue(value.args)
        case "keywords":
            return DictValue({k: (Constant(k), v) for k, v in value.kwargs.items()})
        case _:
            return _read_builtin_instance(state, value, name)


def _read_slice(state: State, value: SliceValue, name: str) -> Result:
    return getattr(value, name) if name in {"start", "stop", "step"} else _read_builtin_instance(state, value, name)


def _read_tuple(state: State, value: TupleValue, name: str) -> Result:
    fields = getattr(value.cls, "_fields", None)
    if fields and name in fields:
        return value.items[fields.index(name)]
    if value.cls.__module__.startswith("torch.return_types") and isinstance(vars(value.cls).get(name), types.MemberDescriptorType | types.GetSetDescriptorType):
        return value.items[structseq_names(value.cls).index(name)]
    return _read_builtin_instance(state, value, name)


@functools.lru_cache(maxsize=256)
def structseq_names(cls: type) -> tuple[str, ...]:
    """Field names of a structseq by position."""
    probe = cls(range(cls.n_sequence_fields))
    named = {getattr(probe, n): n for n in vars(cls) if isinstance(vars(cls)[n], types.MemberDescriptorType | types.GetSetDescriptorType)}
    return tuple(named[i] for i in range(cls.n_sequence_fields))


def _read_builtin_instance(state: State, value: Value, name: str) -> Result:
    """Methods of a builtin type's instance (list, tuple, dict, generator, …)."""
    cls = type_value(state, value)
    if name == "__class__":
        return cls
    found = state.type_lookup(cls, name)
    if found is not MISSING:
        return bind(state, found, value, cls, name)
    has_own = isinstance(value, DictValue) and value.real is not None and value.cls.__dictoffset__               # an OrderedDict
    held = read_key(state, InstanceDict(value.source, vars(value.real)), name) if has_own else None
    return _missing(state, value, name) if held is None else held


def _read_compiled(state: State, value: CompiledValue, name: str) -> Result:
    return get_attribute(state, value.original, name)


def _read_array(state: State, value: ArrayValue, name: str) -> Result:
    found = array_attribute(state, value, name)
    return _read_builtin_instance(state, value, name) if found is None else found


READERS: dict[type, Callable[[State, Any, str], Result]] = {
    Constant: _read_constant, ArrayValue: _read_array, ObjectValue: _read_object,
    TensorValue: tensor_attribute, SuperValue: _read_super, CompiledValue: _read_compiled,
    FunctionValue: _read_function, MethodValue: _read_method, PartialValue: _read_partial, SliceValue: _read_slice, TupleValue: _read_tuple,
    TracebackValue: read_traceback,
}


PLAIN_SETTERS = (object.__setattr__, types.SimpleNamespace.__setattr__)
PLAIN_DELETERS = (object.__delattr__, types.SimpleNamespace.__delattr__)


def set_attribute(state: State, value: Value, name: str, new: Value) -> Result | None:
    """`value.name = new`. The Value of an Inline result means nothing."""
    match value:
        case CompiledValue():
            return set_attribute(state, value.original, name, new)
        case ObjectValue():
            hook = state.type_lookup(value.cls, "__setattr__")
            if hook in PLAIN_SETTERS or hook is torch.nn.Module.__setattr__ and _is_plain_module_write(state, value, name, new):
                return set_generic(state, value, name, new)
            if isinstance(hook, types.FunctionType) or hook is dict.__setitem__:
                setter = wrap(state, hook, class_attribute_source(value.cls, "__setattr__"), True)
                return call(state, setter, [value, Constant(name), new], {})
            if issubclass(value.cls.value, BaseException):
                return set_generic(state, value, name, new)
        case FunctionValue():
            write_key(state, function_dict(state, value), name, Constant(name), new)
            return None
        case Constant() if isinstance(value.value, types.ModuleType):
            space = module_namespace(state, value)
            return write_global(state, space, name, new)
        case TensorValue():
            return set_tensor_attribute(state, value, name, new)
        case Constant() if isinstance(value.value, type):
            return _set_class_attribute(state, value, name, new)
        case Constant() if type(value.value) in LEAVES or value.value is None:
            raise_as_python_does(state, lambda: setattr(value.value, name, None))
    raise unsupported(state, "TW106", f"attribute {name} of {type_value(state, value).value.__name__}")


def _set_class_attribute(state: State, cls: Constant, name: str, new: Value) -> None:
    """`cls.name = new` of plain data; functions, descriptors and special names change what instances do."""
    meta = type(cls.value)
    hook, on_meta = (next((base.__dict__[one] for base in meta.__mro__ if one in base.__dict__), None) for one in ("__setattr__", name))
    if immutable(cls.value):
        raise_as_python_does(state, lambda: type.__setattr__(cls.value, name, None))
    is_data = isinstance(new, TensorValue | SizeValue | ListValue | DictValue | SetValue | TupleValue) or isinstance(new, Constant) and type(new.value) in PLAIN
    if hook is not type.__setattr__ or is_data_descriptor(on_meta) or name.startswith("__") or not is_data:
        raise unsupported(state, "TW106", f"attribute {name} of class {cls.value.__name__}")
    key, old = (cls.value, name), state.class_writes.get((cls.value, name))
    state.effects.remember(lambda: state.class_writes.pop(key) if old is None else state.class_writes.__setitem__(key, old))
    state.class_writes[key] = Written(new)
    record(state, "class_setattr", cls, Constant(name), new)


PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)


def set_tensor_attribute(state: State, value: TensorValue, name: str, new: Value) -> None:
    raise unsupported(state, "TW106", f"attribute {name} of a tensor")


def _is_plain_module_write(state: State, value: ObjectValue, name: str, new: Value) -> bool:
    """Whether nn.Module.__setattr__ ends in a store into the instance dict."""
    if isinstance(new, ObjectValue) and issubclass(new.cls.value, torch.nn.Module | torch.Tensor):
        return False
    if isinstance(new, TensorValue) and new.real is not None and isinstance(new.real, torch.nn.Parameter | torch.nn.Buffer):
        return False
    attributes = instance_dict(state, value)
    tables = [read_key(state, attributes, table) for table in ("_parameters", "_buffers", "_modules")]
    return all(isinstance(t, DictValue) and read_key(state, t, name) is None for t in tables)


def set_generic(state: State, value: ObjectValue, name: str, new: Value) -> Result | None:
    """object.__setattr__: data descriptors of the type, then the instance dict."""
    found = state.type_lookup(value.cls, name)
    match found:
        case property():
            if found.fset is None:
                raise_error(state, AttributeError, f"property '{name}' of '{value.cls.value.__name__}' object has no setter")
            return call(state, wrap(state, found.fset, Attr(class_attribute_source(value.cls, name), "fset"), True), [value, new], {})
        case types.MemberDescriptorType():
            return set_slot(state, value, name, new)
        case types.GetSetDescriptorType():
            if issubclass(value.cls.value, BaseException) and name in {"__traceback__", "__context__", "__cause__"}:
                return set_slot(state, value, name, new)
            raise unsupported(state, "TW106", f"attribute {name} of {value.cls.value.__name__}")
    if found is not MISSING and is_data_descriptor(found):
        setter = next((base.__dict__["__set__"] for base in type(found).__mro__ if "__set__" in base.__dict__), None)
        if not isinstance(setter, types.FunctionType):
            raise unsupported(state, "TW106", f"attribute {name} of {value.cls.value.__name__}")
        descriptor = wrap(state, found, _static_source(value.cls, name))
        return call(state, wrap(state, setter, Attr(descriptor.cls.source, "__set__"), True), [descriptor, value, new], {})
    attributes = instance_dict(state, value)
    if attributes is None:
        raise_error(state, AttributeError, f"'{value.cls.value.__name__}' object has no attribute '{name}'")
    write_key(state, attributes, name, Constant(name), new)
    return None


def set_slot(state: State, value: ObjectValue, name: str, new: Value) -> None:
    """Writes what a member descriptor of the type holds, or one of an exception's own (`__cause__`, `__context__`)."""
    old = value.slots.get(name)
    state.effects.remember(lambda: value.slots.pop(name) if old is None else value.slots.__setitem__(name, old), value.age)
    value.slots[name] = new
    if value.exposed:
        record(state, "slot_setattr", value, Constant(name), new)


def delete_attribute(state: State, value: Value, name: str) -> Result | None:
    if isinstance(value, ObjectValue):
        hook = state.type_lookup(value.cls, "__delattr__")
        if hook in PLAIN_DELETERS:
            return delete_generic(state, value, name)
        if isinstance(hook, types.FunctionType) or hook is dict.__delitem__:
            return call(state, wrap(state, hook, class_attribute_source(value.cls, "__delattr__"), True), [value, Constant(name)], {})
    raise unsupported(state, "TW106", f"attribute {name}")


def delete_generic(state: State, value: Value, name: str) -> Result | None:
    """object.__delattr__: data descriptors of the type, then the instance dict."""
    if not isinstance(value, ObjectValue):
        raise unsupported(state, "TW106", f"attribute {name}")
    if (found := state.type_lookup(value.cls, name)) is not MISSING and is_data_descriptor(found):
        return _delete_described(state, value, found, name)
    attributes = instance_dict(state, value)
    if attributes is None or read_key(state, attributes, name) is None:
        _missing(state, value, name)
    delete_key(state, attributes, name, Constant(name))
    return None


def _delete_described(state: State, value: ObjectValue, found: Any, name: str) -> Result | None:
    """`del value.name` by the data descriptor `found`."""
    deleter = next((base.__dict__["__delete__"] for base in type(found).__mro__ if "__delete__" in base.__dict__), None)
    if isinstance(found, property) and found.fdel is not None:
        return call(state, wrap(state, found.fdel, Attr(class_attribute_source(value.cls, name), "fdel"), True), [value], {})
    if isinstance(found, property):
        raise_error(state, AttributeError, f"property '{name}' of '{value.cls.value.__name__}' object has no deleter")
    if not isinstance(deleter, types.FunctionType):
        raise unsupported(state, "TW106", f"attribute {name} of {value.cls.value.__name__}")
    descriptor = wrap(state, found, _static_source(value.cls, name))
    return call(state, wrap(state, deleter, Attr(descriptor.cls.source, "__delete__"), True), [descriptor, value], {})
