"""isinstance, getattr, hasattr, setattr, callable, vars and what inspects types and frames."""

from __future__ import annotations

import builtins
import functools
import inspect
import types
import typing

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import Inline, State, UserRaise
from thruway.capture.values.attribute import (
    delete_attribute, delete_generic, find_attribute, function_dict, generic_attribute, get_attribute, set_attribute, set_generic,
)
from thruway.capture.values.base import (
    FALSE, NONE, TRUE, CompiledValue, Constant, DictValue, FunctionValue, ListValue, MethodValue, ObjectValue, PartialValue, TupleValue,
    Value,
)
from thruway.capture.values.answers import SameSubclasses
from thruway.capture.values.call import call, run_inline
from thruway.capture.values.compare import boolean
from thruway.capture.values.constants import NotConstant, as_python
from thruway.capture.values.errors import raise_error, raise_real
from thruway.capture.values.instance import is_instance
from thruway.capture.values.truth import truth
from thruway.capture.values.types_ import answering_code, is_subclass, python_type
from thruway.capture.values.unpack import mapping_items
from thruway.capture.wrap import instance_dict
from thruway.frame.guard import MISSING

Args = list[Value]
Kwargs = dict[str, Value]


def instance_check(state: State, args: Args, kwargs: Kwargs) -> Value:
    value, wanted = args
    if isinstance(value, CompiledValue):
        value = value.original                       # its __class__
    if (hook := answering_code(state, wanted)) is not None:
        return boolean(python_type(value) is wanted.value or truth(state, state.call(hook, [wanted, value])))
    try:
        return boolean(is_instance(state, value, as_python(state, wanted)))
    except TypeError as error:
        raise_real(state, error)


def subclass_check(state: State, args: Args, kwargs: Kwargs) -> Value:
    try:
        return boolean(is_subclass(state, as_python(state, args[0]), as_python(state, args[1])))
    except (TypeError, NotConstant) as error:
        raise_real(state, TypeError(*error.args))


def read_attribute(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    owner, name = args[0], as_python(state, args[1])
    if len(args) == 2:
        return get_attribute(state, owner, name)
    found = find_attribute(state, owner, name)
    return args[2] if found is None else found


def has_attribute(state: State, args: Args, kwargs: Kwargs) -> Value:
    return boolean(find_attribute(state, args[0], as_python(state, args[1])) is not None)


def write_attribute(state: State, args: Args, kwargs: Kwargs) -> Value:
    result = set_attribute(state, args[0], as_python(state, args[1]), args[2])
    if isinstance(result, Inline):
        state.finish_inline(result)
    return NONE


def remove_attribute(state: State, args: Args, kwargs: Kwargs) -> Value:
    result = delete_attribute(state, args[0], as_python(state, args[1]))
    if isinstance(result, Inline):
        state.finish_inline(result)
    return NONE


def generic_write(state: State, args: Args, kwargs: Kwargs) -> Value:
    """object.__setattr__(owner, name, value)."""
    result = set_generic(state, args[0], as_python(state, args[1]), args[2])
    if isinstance(result, Inline):
        state.finish_inline(result)
    return NONE


def generic_delete(state: State, args: Args, kwargs: Kwargs) -> Value:
    """object.__delattr__(owner, name)."""
    result = delete_generic(state, args[0], as_python(state, args[1]))
    if isinstance(result, Inline):
        state.finish_inline(result)
    return NONE


def generic_read(state: State, args: Args, kwargs: Kwargs) -> Value | Inline:
    """object.__getattribute__(owner, name): `__getattr__` does not run."""
    try:
        return run_inline(state, generic_attribute(state, args[0], as_python(state, args[1])))
    except UserRaise:
        raise_error(state, AttributeError, f"'{python_type(args[0]).__name__}' object has no attribute '{as_python(state, args[1])}'")


def is_callable(state: State, args: Args, kwargs: Kwargs) -> Value:
    (value,) = args
    match value:
        case Constant():
            return boolean(callable(value.value))
        case ObjectValue():
            return boolean(state.type_lookup(value.cls, "__call__") is not MISSING)
        case FunctionValue() | MethodValue() | PartialValue():
            return TRUE
        case _:
            return FALSE


def attributes_of(state: State, args: Args, kwargs: Kwargs) -> Value:
    """vars(value)."""
    if not args:
        raise unsupported(state, "TW101", "vars() without argument")
    match args[0]:
        case FunctionValue():
            return function_dict(state, args[0])
        case ObjectValue():
            found = instance_dict(state, args[0])
            if found is not None:
                return found
    return run_inline(state, get_attribute(state, args[0], "__dict__"))


def local_names(state: State, args: Args, kwargs: Kwargs) -> Value:
    """locals(), as a snapshot."""
    frame = state.frames[-1]
    found = {name: (Constant(name), value) for name, value in frame.locals.items() if not name.startswith(".")}
    found |= {name: (Constant(name), cell.content) for name, cell in frame.cells.items() if cell.content is not None}
    return DictValue(found)


def cast(state: State, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


def names_of(state: State, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, Constant):
        return ListValue([Constant(name) for name in dir(value.value)])
    raise unsupported(state, "TW101", "dir")


def signature(state: State, args: Args, kwargs: Kwargs) -> Value:
    function = args[0]
    if isinstance(function, MethodValue) and isinstance(function.function, FunctionValue) and function.function.real is not None:
        return Constant(inspect.signature(types.MethodType(function.function.real, object())))
    if isinstance(function, FunctionValue) and function.real is not None:
        return Constant(inspect.signature(function.real))
    raise unsupported(state, "TW101", "inspect.signature")


def subclasses(state: State, args: Args, kwargs: Kwargs) -> Value:
    """`cls.__subclasses__()`."""
    cls = as_python(state, args[0])
    found = tuple(type.__subclasses__(cls))
    state.guard("answer", state.made(cls), SameSubclasses(found))
    return ListValue([state.class_of(one, None) for one in found])


def call_generic_alias(state: State, args: Args, kwargs: Kwargs) -> Value:
    """`Class[parameters](...)` of typing: the class, whose instance notes the alias."""
    alias, *given = args
    real = alias.value if isinstance(alias, Constant) else alias.real
    made = run_inline(state, get_attribute(state, alias, "__origin__")) if isinstance(alias, ObjectValue) else state.class_of(real.__origin__, None)
    result = run_inline(state, call(state, made, given, kwargs))
    if not isinstance(result, ObjectValue) or instance_dict(state, result) is None or isinstance(alias, ObjectValue) and alias.source is None:
        raise unsupported(state, "TW101", repr(real))
    if isinstance(alias, ObjectValue):
        state.guard("identity", alias.source, real)
    set_generic(state, result, "__orig_class__", alias)
    return result


def bind_partial_method(state: State, args: Args, kwargs: Kwargs) -> Value:
    """functools.partialmethod.__get__: a partial of the bound method."""
    made, owner = args[:2]
    function = run_inline(state, get_attribute(state, made, "func"))
    given = run_inline(state, get_attribute(state, made, "args"))
    named = run_inline(state, get_attribute(state, made, "keywords"))
    if owner is NONE or not isinstance(function, FunctionValue) or not isinstance(given, TupleValue) or not isinstance(named, DictValue):
        raise unsupported(state, "TW101", "partialmethod of something else than a function")
    return PartialValue(MethodValue(function, owner), given.items, {key.value: one for key, one in mapping_items(state, named)})


def define_class(state: State, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise unsupported(state, "TW100", "class definition")


ROWS = {
    type.__subclasses__: subclasses, typing._BaseGenericAlias.__call__: call_generic_alias, functools.partialmethod.__get__: bind_partial_method,
    isinstance: instance_check, issubclass: subclass_check, getattr: read_attribute, hasattr: has_attribute, setattr: write_attribute,
    builtins.__build_class__: define_class, delattr: remove_attribute, object.__setattr__: generic_write, object.__delattr__: generic_delete,
    object.__getattribute__: generic_read, callable: is_callable,
    vars: attributes_of, locals: local_names, typing.cast: cast, dir: names_of, inspect.signature: signature,
    torch.is_tensor: lambda state, args, kwargs: boolean(issubclass(python_type(args[0]), torch.Tensor)),
}
