"""The slow Python twin of the native core: the same names, arguments and answers, without the frame hook.

It is what runs where no C compiler was found, and what the tests hold the C code against.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import inspect
import struct
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType, FunctionType, MappingProxyType, MethodType, TracebackType
from weakref import ReferenceType

import torch

from thruway.native import probe

try:
    from thruway.native._core import RegionFailed
except ImportError:

    class RegionFailed(Exception):
        """A compiled region gave up before any effect; the caller runs eager."""


Step = tuple[str, int, int, int, object, int]


class _Failed(Exception):
    """A load found nothing."""


class GuardProgram:
    """GuardProgram(steps, inputs, symbols=0): see native/guard.c; every pass is a full one."""

    def __init__(self, steps: tuple[Step, ...], inputs: tuple[int, ...], symbols: int = 0):
        known = _LOADS.keys() | _CHECKS.keys() | {"relation", "tensor", "size"}
        for step in steps:
            if step[0] not in known:
                raise ValueError(f"no guard step {step[0]!r}")
        self.steps, self.inputs, self.symbols, self.passes = steps, inputs, symbols, 0

    def check(self, function: FunctionType, locals: tuple[object, ...]) -> tuple[object, ...] | None:
        registers, failed = self._run(function, locals)
        return tuple(registers[i] for i in self.inputs) if failed is None else None

    def explain(self, function: FunctionType, locals: tuple[object, ...]) -> tuple[int, bool, object] | None:
        registers, failed = self._run(function, locals)
        if failed is None:
            return None
        seen = failed[0] not in _LOADS
        return failed[5], seen, registers[failed[2]] if seen else None

    def stats(self) -> dict[str, int]:
        return {"fast_hits": 0, "full_passes": self.passes, "steps": len(self.steps), "repeated": len(self.steps), "slow": 0}

    def _run(self, function: FunctionType, locals: tuple[object, ...]) -> tuple[list[object], Step | None]:
        self.passes += 1
        registers: list[object] = []
        symbols = [0] * self.symbols
        for step in self.steps:
            name, _, a, b, argument, _ = step
            try:
                if name in _LOADS:
                    registers.append(_LOADS[name](function, locals, registers, a, b, argument))
                elif not _holds(step, registers, symbols):
                    return registers, step
            except Exception:  # whatever a descriptor or the user's own code raises, the guard does not hold
                return registers, step
        return registers, None


def _holds(step: Step, registers: list[object], symbols: list[int]) -> bool:
    name, _, a, b, argument, _ = step
    match name:
        case "tensor":
            return _tensor_holds(registers[a], argument, symbols)
        case "size":
            symbols[b] = registers[a]
            return type(registers[a]) is int and 2 <= registers[a] < 1 << 62
        case "relation":
            left, operator, right = argument
            return _RELATIONS[operator](_evaluate(left, symbols), _evaluate(right, symbols))
        case "same" | "not_same" | "no_overlap":
            return _CHECKS[name](registers[a], registers[b])
        case "length" | "truth":
            return _CHECKS[name](registers[a], b)
        case _:
            return _CHECKS[name](registers[a], argument)


# ---- loads: (function, locals, registers, a, b, argument) → value


def _local(function, locals, registers, a, b, argument):
    return locals[a]


def _cell(function, locals, registers, a, b, argument):
    return function.__closure__[a].cell_contents


def _dict_attr(function, locals, registers, a, b, name):
    base = registers[a]
    return type.__dict__["__dict__"].__get__(base)[name] if isinstance(base, type) else object.__getattribute__(base, "__dict__")[name]


def _item(function, locals, registers, a, b, key):
    base = registers[a]
    for kind in (dict, list, tuple):
        if isinstance(base, kind):
            return kind.__getitem__(base, key)
    return base[key]


def _dict_key(function, locals, registers, a, b, argument):
    if isinstance(registers[a], OrderedDict):
        raise _Failed
    for i, key in enumerate(dict.keys(registers[a])):
        if i == b:
            return key
    raise _Failed


def _function(value: object) -> FunctionType:
    if type(value) is not FunctionType:
        raise _Failed
    return value


def _method(value: object) -> MethodType:
    if type(value) is not MethodType:
        raise _Failed
    return value


def viewed_dict(view: object) -> dict:
    """The dict behind a view of its keys, values or items."""
    if not isinstance(view, VIEWS):
        raise _Failed
    return next(each for each in gc.get_referents(view) if isinstance(each, dict))


def proxied_dict(proxy: object) -> dict:
    """The dict behind a types.MappingProxyType."""
    found = gc.get_referents(proxy)[0] if type(proxy) is MappingProxyType else None
    if not isinstance(found, dict):
        raise _Failed
    return found


VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


def _weak(function, locals, registers, a, b, argument):
    if not isinstance(registers[a], ReferenceType):
        raise _Failed
    return ReferenceType.__call__(registers[a])


_LOADS: dict[str, Callable[..., object]] = {
    "local": _local,
    "function": lambda function, locals, r, a, b, x: function,
    "const": lambda function, locals, r, a, b, x: x,
    "cell": _cell,
    "globals": lambda function, locals, r, a, b, x: function.__globals__,
    "builtins": lambda function, locals, r, a, b, x: function.__builtins__,
    "attr": lambda function, locals, r, a, b, x: getattr(r[a], x),
    "dict_attr": _dict_attr,
    "item": _item,
    "dict_key": _dict_key,
    "type": lambda function, locals, r, a, b, x: type(r[a]),
    "closure": lambda function, locals, r, a, b, x: _function(r[a]).__closure__[b].cell_contents,
    "default": lambda function, locals, r, a, b, x: _function(r[a]).__defaults__[b],
    "kwdefault": lambda function, locals, r, a, b, x: _function(r[a]).__kwdefaults__[x],
    "weak": _weak,
    "method_self": lambda function, locals, r, a, b, x: _method(r[a]).__self__,
    "method_function": lambda function, locals, r, a, b, x: _method(r[a]).__func__,
    "function_globals": lambda function, locals, r, a, b, x: _function(r[a]).__globals__,
    "getattr": lambda function, locals, r, a, b, x: getattr(r[a], x),
    "viewed": lambda function, locals, r, a, b, x: viewed_dict(r[a]),
    "call": lambda function, locals, r, a, b, x: x(r[a]),
}


# ---- checks


def same_constant(a: object, b: object) -> bool:
    """Equal by exact type and value, floats by bits; types made in Python compare by identity."""
    if type(a) is not type(b):
        return False
    match a:
        case float():
            return struct.pack("d", a) == struct.pack("d", b)
        case complex():
            return struct.pack("dd", a.real, a.imag) == struct.pack("dd", b.real, b.imag)
        case tuple() | list():
            return len(a) == len(b) and all(map(same_constant, a, b))
        case dict():
            return len(a) == len(b) and all(map(same_constant, a.items(), b.items()))
        case set() | frozenset():
            return len(a) == len(b) and all(any(same_constant(x, y) for y in b) for x in a)
        case slice():
            return same_constant((a.start, a.stop, a.step), (b.start, b.stop, b.step))
        case _:
            return a is b or not _is_made_in_python(type(a)) and bool(a == b)


def _is_made_in_python(kind: type) -> bool:
    return kind.__flags__ & (1 << 9 | 1 << 8) == 1 << 9


def _length(value: object, expected: int) -> bool:
    for kind in (tuple, list, dict, set, frozenset):
        if isinstance(value, kind):
            return kind.__len__(value) == expected
    return not _is_made_in_python(type(value)) and len(value) == expected


def _dict_keys(value: object, expected: tuple[object, ...]) -> bool:
    has_own_order = isinstance(value, OrderedDict) and len(expected) > 1
    return isinstance(value, dict) and not has_own_order and same_constant(tuple(dict.keys(value)), expected)


def _ordered_keys(value: object, expected: tuple[object, ...]) -> bool:
    return isinstance(value, OrderedDict) and same_constant(tuple(OrderedDict.__iter__(value)), expected)


def _type_lookup(value: object, wanted: tuple[object, ...]) -> bool:
    name, *expected = wanted
    found = [base.__dict__[name] for base in value.__mro__ if name in base.__dict__][:1]
    return [id(each) for each in found] == [id(each) for each in expected[:1]] or any(also(each) for also in expected[1:] for each in found)


def _has_not(value: object, name: str) -> bool:
    try:
        getattr(value, name)
    except Exception:
        return True
    return False


def _code(value: object, code: object) -> bool:
    function = value.__func__ if type(value) is MethodType else value
    return type(function) is FunctionType and function.__code__ is code


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def _no_overlap(a: object, b: object) -> bool:
    (low_a, high_a), (low_b, high_b) = _extent(a), _extent(b)
    return high_a <= low_b or high_b <= low_a or low_a == high_a or low_b == high_b


def _truth(value: object, expected: int) -> bool:
    kind = type(value)
    is_dict_like = issubclass(kind, dict) and kind.__len__ is dict.__len__ and not hasattr(kind, "__bool__")
    return (is_dict_like or not _is_made_in_python(kind)) and bool(value) == bool(expected)


_CHECKS: dict[str, Callable[[object, object], bool]] = {
    "is_type": lambda value, expected: type(value) is expected,
    "is": lambda value, expected: value is expected,
    "is_weak": lambda value, expected: value is not None and ReferenceType.__call__(expected) is value,
    "equal": same_constant,
    "length": _length,
    "dict_keys": _dict_keys,
    "has_not": _has_not,
    "absent": lambda value, key: isinstance(value, dict) and not dict.__contains__(value, key),
    "code": _code,
    "same": lambda a, b: a is b,
    "not_same": lambda a, b: a is not b,
    "no_overlap": _no_overlap,
    "truth": _truth,
    "type_lookup": _type_lookup,
    "ordered_keys": _ordered_keys,
    "python": lambda value, predicate: bool(predicate(value)),
}
_RELATIONS: dict[int, Callable[[int, int], bool]] = {
    0: lambda a, b: a < b, 1: lambda a, b: a <= b, 2: lambda a, b: a == b, 3: lambda a, b: a != b,
}
_OPERATIONS: dict[int, Callable[[int, int], int]] = {
    2: lambda a, b: a + b, 3: lambda a, b: a * b, 4: lambda a, b: a // b, 5: lambda a, b: a % b, 6: max, 7: min,
}


def _evaluate(postfix: tuple[int, ...], symbols: list[int]) -> int:
    stack: list[int] = []
    for code, operand in zip(postfix[::2], postfix[1::2], strict=True):
        if code <= 1:
            stack.append(symbols[operand] if code else operand)
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(_OPERATIONS[code](left, right))
    (result,) = stack
    return result


def _tensor_holds(value: object, expected: tuple, symbols: list[int]) -> bool:
    kind, dtype, device, requires_grad, keys, dims = expected
    if type(value) is not kind or probe.key_set(value) != keys or value.requires_grad != requires_grad:
        return False
    if probe.dtype_code(value.dtype) != dtype or probe.device_code(value.device) != device or 2 * value.dim() != len(dims):
        return False
    if torch.autograd.forward_ad.unpack_dual(value).tangent is not None:
        return False
    return all(_dim_holds(seen, dim, symbols) for seen, dim in zip((*value.shape, *value.stride()), dims, strict=True))


def _dim_holds(seen: int, dim: tuple[int, int], symbols: list[int]) -> bool:
    match dim:
        case (0, size):
            return seen == size
        case (1, _):
            return True
        case (2, symbol):
            symbols[symbol] = seen
            return True
        case (_, symbol):
            return symbols[symbol] == seen


# ---- dispatch


def read_state() -> bytes:
    """The torch modes of this thread as bytes that are equal where all modes are."""
    keys = torch._C._dispatch_tls_local_include_set().raw_repr(), torch._C._dispatch_tls_local_exclude_set().raw_repr()
    modes = (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
        str(torch.get_default_dtype()), torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        *((torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device))) for device in ("cpu", "cuda")),
    )
    return hashlib.blake2b(repr((keys, modes)).encode(), digest_size=40).digest()


class Entry:
    """Entry(guards, state, graph, finish=None, single_output=False, kept=(), hooked=0, failed=None, below=0).

    Without graph and finish the original function runs. failed(error) hears of a region that gave up where the function did not fail."""

    def __init__(self, guards, state, graph, finish=None, single_output=False, kept=(), hooked=0, failed=None, below=0):
        self.guards, self.state, self.graph, self.finish, self.failed = guards, state, graph, finish, failed
        self.single_output, self.kept, self.hooked, self.below, self.hits = single_output, kept, hooked, below, 0

    def _run(self, function: FunctionType, locals: tuple[object, ...], inputs: tuple[object, ...]) -> object:
        outputs = self.graph(*inputs) if self.graph is not None else ()
        if self.finish is not None:
            try:
                return self.finish(*locals, *(function.__closure__ or ()), *outputs)
            except BaseException as error:
                error.__traceback__ = _without_own_frames(error.__traceback__.tb_next)
                raise
        if self.single_output:
            (result,) = outputs
            return result
        return tuple(outputs)


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """An error goes on as if the user's own frames had called each other."""
    while traceback is not None and (file := traceback.tb_frame.f_code.co_filename):
        if not file.startswith("<thruway ") and not file.endswith("/thruway/capture/resume.py"):
            break
        traceback = traceback.tb_next
    return traceback


def _of_function(name: str) -> property:
    """What inspect asks a function for: that of the one that was compiled."""
    return property(lambda self: getattr(self.__wrapped__, name), lambda self, value: setattr(self.__wrapped__, name, value))


class Compiled:
    """Compiled(function, miss): miss(compiled, args, kwargs) gives an Entry, or None to run the function."""

    def __init__(self, function: FunctionType, miss: Callable[..., Entry | None]):
        if type(function) is not FunctionType:
            raise TypeError(f"Compiled takes a Python function, not {type(function).__name__}")
        functools.update_wrapper(self, function)
        self.miss, self.entries, self.eager, self.misses = miss, (), False, 0
        self._code, self._signature = function.__code__, inspect.signature(function)

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else MethodType(self, instance)

    __code__ = _of_function("__code__")
    __defaults__ = _of_function("__defaults__")
    __kwdefaults__ = _of_function("__kwdefaults__")

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__.__qualname__}>"

    def __reduce__(self) -> str:
        return self.__wrapped__.__qualname__

    def __call__(self, /, *args, **kwargs):
        function = self.__wrapped__
        if self.eager:
            return function(*args, **kwargs)
        if function.__code__ is not self._code:
            self._code, self.entries = function.__code__, ()
        locals = bind_arguments(function, args, kwargs)
        if locals is None:
            return function(*args, **kwargs)
        state = read_state()
        for entry in self.entries:
            matched, result = self._try(entry, state, locals, args, kwargs)
            if matched:
                return result
        self.misses += 1
        entry = self.miss(self, args, kwargs)
        try:
            matched, result = self._try(entry, state, locals, args, kwargs) if entry is not None else (False, None)
            return result if matched else function(*args, **kwargs)
        finally:
            if after := self.__dict__.pop("after", None):        # once, when a call that missed is over
                after()

    def _try(self, entry: Entry, state: bytes, locals: tuple[object, ...], args: tuple, kwargs: dict) -> tuple[bool, object]:
        inputs = entry.guards.check(self.__wrapped__, locals) if entry.state == state else None
        if inputs is None:
            return False, None
        entry.hits += 1
        if entry.graph is None and entry.finish is None:
            return True, self.__wrapped__(*args, **kwargs)
        try:
            return True, entry._run(self.__wrapped__, locals, inputs)
        except RegionFailed as error:
            failure = error.with_traceback(None)
        result = self.__wrapped__(*args, **kwargs)
        if entry.failed is not None:
            entry.failed(failure)
        return True, result


def call_bound(function: Callable[..., object], code: CodeType, arguments: tuple[object, ...]) -> object:
    """Calls with what `bind_arguments` gave for `code`."""
    positional, keyword = code.co_argcount, code.co_kwonlyargcount
    rest = list(arguments[positional + keyword:])
    more = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ()
    named = dict(zip(code.co_varnames[positional:positional + keyword], arguments[positional:positional + keyword]))
    return function(*arguments[:positional], *more, **named, **(rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else {}))


def bind_arguments(function: FunctionType, args: tuple, kwargs: dict) -> tuple[object, ...] | None:
    """The arguments as the frame's first locals (co_varnames order); None where they do not fit the signature."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    variable = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
    slots = dict(zip(names[: code.co_argcount], args, strict=False))
    if len(args) > code.co_argcount and not variable[0]:
        return None
    by_name = set(names[code.co_posonlyargcount :])
    rest = {name: value for name, value in kwargs.items() if name not in by_name}
    given = {name: value for name, value in kwargs.items() if name in by_name}
    if (rest and not variable[1]) or given.keys() & slots.keys():
        return None
    defaults = function.__defaults__ or ()
    all_defaults = dict(zip(names[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)) | (function.__kwdefaults__ or {})
    slots = all_defaults | slots | given
    if any(name not in slots for name in names):
        return None
    extra = ((args[code.co_argcount :],) if variable[0] else ()) + ((rest,) if variable[1] else ())
    return (*(slots[name] for name in names), *extra)
