"""Calling a Value. Order: a row of the known-calls table, the kind of callable, `__call__` of its type."""

from __future__ import annotations

import collections
import functools
import logging
import re
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from thruway.capture.breaks import hint_of_call, unsupported
from thruway.capture.refused import BOOKKEEPING, is_refused
from thruway.capture.state import Frame, Inline, State
from thruway.capture.tensors import call_torch, is_torch_callable
from thruway.capture.values.base import (
    CompiledValue, Constant, DictValue, FunctionValue, GeneratorValue, MethodValue, ObjectValue, PartialValue, PulledValue, TensorValue, TransformedValue,
    TupleValue, Value, known_text,
)
from thruway.capture.values.constants import NotConstant, as_python, from_python
from thruway.capture.values.errors import raise_as_python_does, raise_error, raise_real
from thruway.capture.values.number_calls import call_with_numbers
from thruway.capture.values.overriding import may_ask, modes_on
from thruway.capture.values.tensor_attribute import tensor_attribute
from thruway.capture.values.torch_function import is_getter, is_python_of_torch, overridden_call
from thruway.capture.values.types_ import python_type
from thruway.capture.values.warned import warns
from thruway.capture.wrap import function_cells, function_defaults, function_keyword_defaults, wrap
from thruway.core.marks import ALLOWED, CONSTANT, DISABLED, disabled_reason, is_marked
from thruway.frame.guard import MISSING
from thruway.frame.source import Attr
from thruway.frame.tagged import is_taggable

Result = Value | Inline
Kwargs = dict[str, Value]

CO_VARARGS, CO_VARKEYWORDS, CO_GENERATOR, CO_COROUTINE = 4, 8, 0x20, 0x80 | 0x100 | 0x200


def call(state: State, function: Value, args: list[Value], kwargs: Kwargs) -> Result:
    """`function(*args, **kwargs)`."""
    caller = CALLERS.get(type(function))
    if caller is None:
        raise_error(state, TypeError, f"'{python_type(function).__name__}' object is not callable")
    return caller(state, function, args, kwargs)


def run_inline(state: State, result: Result) -> Value:
    """The value of a result; an inlined frame runs now, nested."""
    return state.finish_inline(result) if isinstance(result, Inline) else result


def _call_method(state: State, method: MethodValue, args: list[Value], kwargs: Kwargs) -> Result:
    return call(state, method.function, [method.owner, *args], kwargs)


def _call_partial(state: State, partial: PartialValue, args: list[Value], kwargs: Kwargs) -> Result:
    return call(state, partial.function, [*partial.args, *args], partial.kwargs | kwargs)


def _call_object(state: State, value: ObjectValue, args: list[Value], kwargs: Kwargs) -> Result:
    found = state.type_lookup(value.cls, "__call__")
    if found is MISSING:
        raise_error(state, TypeError, f"'{value.cls.value.__name__}' object is not callable")
    row = _row(state, found)
    if row is not None:
        return _call_row(state, row, found, [value, *args], kwargs)
    if isinstance(found, types.FunctionType):
        source = Attr(value.cls.source, "__call__") if value.cls.source is not None else None
        return call(state, wrap(state, found, source, True) if source else Constant(found), [value, *args], kwargs)
    is_named = value.real is not None and "__qualname__" in vars(value.cls.value)      # a function of a kind of its own: Cython's
    raise unsupported(state, "TW101", _told(value.real) if is_named else value.cls.value.__name__)


def _call_function(state: State, function: FunctionValue, args: list[Value], kwargs: Kwargs) -> Result:
    real = function.real
    if real is not None:
        if state.overrides:
            if (answer := overridden_call(state, function, real, args, kwargs)) is not None:
                return answer
            if is_python_of_torch(real) and (modes_on(state) or may_ask(state, (*args, *kwargs.values()))):
                return inline(state, function, args, kwargs)
        row = state.known.get(real) or marked_row(state, real)
        if row is not None:
            return _call_row(state, row, real, args, kwargs)
        by_code = state.known.get(real.__code__)
        if by_code is not None:
            return by_code(state, function, args, kwargs)
        if is_torch_callable(real) and not warns(real, args, kwargs):
            result = call_torch(state, real, args, kwargs)
            if result is not None:
                return result
    return inline(state, function, args, kwargs)


def marked_row(state: State, real: Any) -> Callable[..., Result] | None:
    """How to call a function that the user marked with disable, allow_in_graph or assume_constant_result."""
    if is_marked(real, DISABLED):
        why = disabled_reason(real)
        raise unsupported(state, "TW130", getattr(real, "__qualname__", repr(real)), f": {why}" if why else "")
    if is_marked(real, ALLOWED):
        return lambda state, args, kwargs: _call_opaque(state, real, args, kwargs)
    if is_marked(real, CONSTANT):
        return lambda state, args, kwargs: _call_once(state, real, args, kwargs)
    return None


def _call_opaque(state: State, real: Any, args: list[Value], kwargs: Kwargs) -> Value:
    result = call_torch(state, real, args, kwargs)
    if result is None:
        raise unsupported(state, "TW101", real.__qualname__)
    return result


def _call_once(state: State, real: Any, args: list[Value], kwargs: Kwargs) -> Value:
    """What the function gives now, kept by the entry."""
    values = [_real(state, a) for a in args]
    result = real(*values, **{k: _real(state, v) for k, v in kwargs.items()})
    return wrap(state, result, state.made(result), True)


def _real(state: State, value: Value) -> Any:
    """The object itself, found outside or a constant; NotConstant where there is none yet."""
    real = getattr(value, "real", None)
    return as_python(state, value) if real is None else real


def inline(state: State, function: FunctionValue, args: list[Value], kwargs: Kwargs) -> Result:
    """A frame for the function with its arguments bound; for a generator function the suspended generator."""
    code, module = function.code, function.namespace.real.get("__name__")
    if (module, code.co_qualname) in BOOKKEEPING:
        return Constant(None)
    if is_refused(module, code.co_qualname):
        name, made_in = getattr(function.real, "__qualname__", code.co_qualname), getattr(function.real, "__module__", module)
        told = name if "." in name else f"{made_in}.{name}"
        raise unsupported(state, "TW101", told, hint=hint_of_call(made_in, name))
    frame = Frame(code, function, state.program(code), function.namespace)
    bind_arguments(state, function, frame.locals, args, kwargs)
    if function.real is None or function.code.co_freevars:
        for name, cell in zip(code.co_freevars, function_cells(state, function)):
            frame.cells[name] = cell
    if code.co_flags & CO_GENERATOR:
        generator = GeneratorValue(frame)
        frame.generator = generator
        state.generators.append(generator)
        return generator
    if code.co_flags & CO_COROUTINE:
        raise unsupported(state, "TW113", function.name)
    return Inline(frame)


def bind_arguments(state: State, function: FunctionValue, into: dict[str, Value], args: list[Value], kwargs: Kwargs) -> None:
    """Python's binding of arguments to parameters."""
    code = function.code
    count, names = code.co_argcount, code.co_varnames
    into.update(zip(names[:count], args))
    keyword_names = names[:count + code.co_kwonlyargcount]
    extra: dict[str, Value] = {}
    for name, value in kwargs.items():
        if name in keyword_names and name not in names[:code.co_posonlyargcount]:
            if name in into:
                raise_signature_error(state, function, args, kwargs)
            into[name] = value
        elif code.co_flags & CO_VARKEYWORDS:
            extra[name] = value
        else:
            raise_signature_error(state, function, args, kwargs)
    if not _bind_rest(function, into, args, extra) or len(into) < len(names) and not _bind_defaults(state, function, into):
        raise_signature_error(state, function, args, kwargs)


def raise_signature_error(state: State, function: FunctionValue, args: list[Value], kwargs: Kwargs) -> NoReturn:
    """The TypeError of a call that does not fit the function's parameters, as Python words it."""
    code, count = function.code, function.code.co_argcount
    names = list(code.co_varnames[:count + code.co_kwonlyargcount])
    first_default = count - len(function_defaults(state, function))
    with_default = function_keyword_defaults(state, function).keys() | names[first_default:count]
    parameters = [f"{name}=None" if name in with_default else name for name in names]
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    if code.co_kwonlyargcount or code.co_flags & CO_VARARGS:
        parameters.insert(count + bool(code.co_posonlyargcount), "*_rest" if code.co_flags & CO_VARARGS else "*")
    if code.co_flags & CO_VARKEYWORDS:
        parameters.append("**_more")
    space: dict[str, Any] = {}
    exec(f"def stand_in({', '.join(parameters)}): pass", space)
    stand_in = space["stand_in"]
    stand_in.__code__ = stand_in.__code__.replace(co_qualname=code.co_qualname)
    stand_in.__qualname__ = code.co_qualname
    raise_as_python_does(state, lambda: stand_in(*args, **kwargs))


def _bind_rest(function: FunctionValue, into: dict[str, Value], args: list[Value], extra: Kwargs) -> bool:
    code = function.code
    count = code.co_argcount
    slot = count + code.co_kwonlyargcount
    if code.co_flags & CO_VARARGS:
        into[code.co_varnames[slot]] = TupleValue(tuple(args[count:]))
        slot += 1
    elif len(args) > count:
        return False
    if code.co_flags & CO_VARKEYWORDS:
        into[code.co_varnames[slot]] = DictValue({k: (Constant(k), v) for k, v in extra.items()})
    return True


def _bind_defaults(state: State, function: FunctionValue, into: dict[str, Value]) -> bool:
    code = function.code
    count, names = code.co_argcount, code.co_varnames
    lacking = [i for i in range(count) if names[i] not in into]
    if lacking:
        defaults = function_defaults(state, function)
        for i in lacking:
            at = i - (count - len(defaults))
            if at < 0:
                return False
            into[names[i]] = defaults[at]
    for name in names[count:count + code.co_kwonlyargcount]:
        if name not in into:
            defaults = function_keyword_defaults(state, function)
            if name not in defaults:
                return False
            into[name] = defaults[name]
    return True


def _call_constant(state: State, value: Constant, args: list[Value], kwargs: Kwargs) -> Result:
    """A builtin function, descriptor, class or torch callable."""
    target = value.value
    if state.overrides and (answer := overridden_call(state, value, target, args, kwargs)) is not None:
        return answer
    if is_getter(target) and isinstance(args[0], TensorValue):
        return tensor_attribute(state, args[0], target.__self__.__name__)
    row = _row(state, target) or marked_row(state, target)
    if row is not None:
        return _call_row(state, row, target, args, kwargs)
    if is_torch_callable(target):
        result = call_torch(state, target, args, kwargs)
        if result is not None:
            return result
    if isinstance(target, type):
        return construct(state, value, args, kwargs)
    if isinstance(target, types.FunctionType):                    # of a class that no source names
        return call(state, wrap(state, target, state.made(target), True), args, kwargs)
    row = _row(state, next((vars(base)["__call__"] for base in type(target).__mro__ if "__call__" in vars(base)), None))
    if row is not None:
        return _call_row(state, row, target, [value, *args], kwargs)
    if is_pure(target, args):
        return call_pure(state, target, args, kwargs)
    if not callable(target):
        raise_error(state, TypeError, f"'{type(target).__name__}' object is not callable")
    hint = hint_of_call(getattr(target, "__module__", None), getattr(target, "__qualname__", ""), in_python=False)
    raise unsupported(state, "TW101", _told(target), hint=hint)


def _told(target: Any) -> str:
    """As users write it: `time.sleep`."""
    name, module = getattr(target, "__qualname__", repr(target)), getattr(target, "__module__", None)
    return f"{module}.{name}" if isinstance(target, types.BuiltinFunctionType) and module not in (None, "builtins") else name


def _call_row(state: State, row: Callable[..., Result], target: Any, args: list[Value], kwargs: Kwargs) -> Result:
    """A row of the table; one that needs a value that is not known leaves the call to Python."""
    if target not in TAKE_TEXTS:
        args, kwargs = [*map(known_text, args)], {name: known_text(one) for name, one in kwargs.items()}
    try:
        return row(state, args, kwargs)
    except NotConstant:
        raise unsupported(state, "TW101", _told(target)) from None


# What needs no text that it is given: rows of others get one of numbers as a constant.
TAKE_TEXTS: frozenset[Any] = frozenset((
    print, isinstance, type, warnings.warn, list.append, list.insert, list.extend, collections.deque.append, str.join, str.format,
    *(getattr(place, name) for place in (logging, logging.Logger) for name in ("debug", "info", "warning", "error", "critical", "exception", "log")),
))


def _row(state: State, target: Any) -> Callable[..., Result] | None:
    try:
        return state.known.get(target)
    except TypeError:
        return None


# Builtin functions that only compute: module → names, or None for all of its.
PURE_FUNCTIONS: dict[str, frozenset[str] | None] = {
    "math": None, "cmath": None, "unicodedata": None,
    "builtins": frozenset("abs all any ascii bin chr divmod format hash hex len max min oct ord pow repr round sorted sum".split()),
    "_operator": frozenset(
        "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert is_ is_not le length_hint lshift lt matmul mod mul "
        "ne neg not_ or_ pos pow rshift sub truediv truth xor".split()),
    "_struct": frozenset({"calcsize", "pack", "unpack", "unpack_from"}), "_bisect": frozenset({"bisect_left", "bisect_right", "bisect"}),
    "_string": frozenset({"formatter_field_name_split"}),
}
CHANGES_MODES = frozenset({"__enter__", "__exit__", "__call__"})         # of torch.device
MATCHING = {re.Pattern: frozenset("match fullmatch search findall sub subn split".split()),
            re.Match: frozenset("group groups groupdict start end span expand __getitem__".split())}
PURE_TYPES = (int, float, complex, bool, str, bytes, range, torch.Size, torch.dtype, torch.device, torch.finfo, torch.iinfo, slice)


def is_pure(target: Any, args: list[Value]) -> bool:
    """Whether a builtin only computes on values that cannot run user code."""
    owner = getattr(target, "__objclass__", None)
    if owner in MATCHING:
        return target.__name__ in MATCHING[owner]
    if target in (str.maketrans, bytes.maketrans):
        return True
    if owner is not None:
        return owner in PURE_TYPES and target.__name__ not in CHANGES_MODES
    if isinstance(target, types.BuiltinFunctionType):
        bound = target.__self__
        if isinstance(bound, type):
            return bound in PURE_TYPES or bound in (dict, bytes)
        if bound is None or isinstance(bound, types.ModuleType):
            names = PURE_FUNCTIONS.get(target.__module__, frozenset())
            return names is None or target.__name__ in names
        if type(bound) is frozenset:
            return target.__name__ == "__contains__"
        return type(bound) in PURE_TYPES and target.__name__ not in CHANGES_MODES
    return False


def call_pure(state: State, target: Callable[..., Any], args: list[Value], kwargs: Kwargs) -> Value:
    """Runs a pure callable on known values; what it raises is raised in the user's code."""
    try:
        if not kwargs and (made := call_with_numbers(state, target, args)) is not None:
            return made
        real_args = [as_python(state, a) for a in args]
        real_kwargs = {k: as_python(state, v) for k, v in kwargs.items()}
    except NotConstant:
        raise unsupported(state, "TW101", _told(target)) from None
    if any(map(_has_own_operators, (*real_args, *real_kwargs.values()))):
        raise unsupported(state, "TW101", f"{getattr(target, '__qualname__', target)} on an object with operators of its own")
    try:
        result = target(*real_args, **real_kwargs)
    except Exception as error:
        raise_real(state, error)
    return from_python(state, result)


def _has_own_operators(value: Any) -> bool:
    """Whether computing with `value` may run code of the user's: special methods in Python in its class."""
    if isinstance(value, (tuple, list)):
        return any(map(_has_own_operators, value))
    return _defines_operators(type(value))


@functools.lru_cache(maxsize=4096)
def _defines_operators(cls: type) -> bool:
    return any(isinstance(found, types.FunctionType) and name.startswith("__") and name not in MAKERS and not _is_of_a_library(found.__module__)
               for base in cls.__mro__ for name, found in base.__dict__.items())


MAKERS = frozenset({"__new__", "__init__", "__init_subclass__", "__set_name__", "__getnewargs__", "__class_getitem__", "__post_init__"})


def _is_of_a_library(module: str | None) -> bool:
    return module is not None and (module.partition(".")[0] in sys.stdlib_module_names or module.partition(".")[0] in ("torch", "numpy"))


def construct(state: State, cls: Constant, args: list[Value], kwargs: Kwargs) -> Result:
    """`cls(*args, **kwargs)`: the metaclass's `__call__`, `__new__`, then `__init__`."""
    real = cls.value
    meta_call = next(base.__dict__["__call__"] for base in type(real).__mro__ if "__call__" in base.__dict__)
    if isinstance(meta_call, types.FunctionType):
        meta = state.class_of(type(real), cls.source)
        source = Attr(meta.source, "__call__") if meta.source else None
        return call(state, wrap(state, meta_call, source, True) if source else Constant(meta_call), [cls, *args], kwargs)
    return construct_plain(state, cls, args, kwargs)


def construct_plain(state: State, cls: Constant, args: list[Value], kwargs: Kwargs) -> Result:
    """type.__call__."""
    real = cls.value
    if real in PURE_TYPES:
        return call_pure(state, real, args, kwargs)
    new = state.type_lookup(cls, "__new__")
    row = _row(state, new)
    if isinstance(new, staticmethod):
        made = state.call(_class_function(state, cls, new.__func__, "__new__"), [cls, *args], kwargs)
        if real not in python_type(made).__mro__:
            return made
    elif issubclass(real, BaseException):
        made = ObjectValue(cls)
        made.new_args = tuple(args)
    elif row is not None and real.__flags__ & HEAP_TYPE:
        made = run_inline(state, row(state, [cls, *args], kwargs))
    else:
        raise unsupported(state, "TW101", real.__qualname__)
    return initialize(state, cls, made, args, kwargs)


HEAP_TYPE = 1 << 9


def initialize(state: State, cls: Constant, made: Value, args: list[Value], kwargs: Kwargs) -> Result:
    init = state.type_lookup(cls, "__init__")
    if isinstance(init, types.FunctionType):
        result = call(state, _class_function(state, cls, init, "__init__"), [made, *args], kwargs)
        if isinstance(result, Inline):
            result.frame.then = Made(made)
            return result
        return made
    row = _row(state, init)
    if row is not None:
        run_inline(state, row(state, [made, *args], kwargs))
    return made


class Made:
    """After `__init__`: its result is dropped and the new object pushed."""

    __slots__ = ("made",)

    def __init__(self, made: Value):
        self.made = made

    def __call__(self, state: State, caller: Frame, result: Value) -> None:
        caller.stack.append(self.made)


def _class_function(state: State, cls: Constant, real: types.FunctionType, name: str) -> Value:
    return Constant(real) if cls.source is None or is_taggable(real) else wrap(state, real, Attr(cls.source, name), True)


def _call_compiled(state: State, value: CompiledValue, args: list[Value], kwargs: Kwargs) -> Result:
    return call(state, value.original, args, kwargs)


def _call_transformed(state: State, value: TransformedValue, args: list[Value], kwargs: Kwargs) -> Result:
    return state.known[TransformedValue](state, [value, *args], kwargs)


def _call_pulled(state: State, value: PulledValue, args: list[Value], kwargs: Kwargs) -> Result:
    return state.known[PulledValue](state, [value, *args], kwargs)


CALLERS: dict[type, Callable[..., Result]] = {
    Constant: _call_constant, FunctionValue: _call_function, MethodValue: _call_method, PartialValue: _call_partial, ObjectValue: _call_object,
    CompiledValue: _call_compiled, TransformedValue: _call_transformed, PulledValue: _call_pulled,
}
