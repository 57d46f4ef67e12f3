"""`__torch_function__` of arguments and of modes: which functions of torch ask it, with what, and what it answers.

Torch itself says whether a call asks: the call is made once on stand-ins below a mode that notes function, types and arguments. The user's
code then runs symbolically, like any other. A tensor of such a class is an ObjectValue whose storage is the plain tensor; torch's functions
compute with that one once nobody has to be asked any more.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import is_torch_callable
from thruway.capture.values.base import (
    Constant, DictValue, FunctionValue, ListValue, ObjectValue, SizeValue, SliceValue, TensorValue, TupleValue, Value,
)
from thruway.capture.values.constants import from_python, make_tuple
from thruway.capture.values.overriding import answers, is_mode, is_tensor_object, may_ask, modes_on, overrides
from thruway.capture.values.types_ import python_type
from thruway.frame.plain import with_class

Args = list[Value]
Kwargs = dict[str, Value]


# -- which functions ask -----------------------------------------------------------------------------------------------------------------

@functools.cache
def _methods() -> frozenset[Any]:
    kinds = types.MethodDescriptorType | types.WrapperDescriptorType | types.FunctionType
    return frozenset(found for space in (torch._C.TensorBase, torch.Tensor) for name, found in vars(space).items()
                     if isinstance(found, kinds) and name not in ("__torch_function__", "__init__", "__setattr__", "__getattribute__", "as_subclass"))


def is_getter(target: Any) -> bool:
    """`torch.Tensor.shape.__get__` and the like."""
    return isinstance(target, types.MethodWrapperType) and target.__name__ == "__get__" \
        and getattr(target.__self__, "__objclass__", None) in (torch._C.TensorBase, torch.Tensor)


@functools.cache
def _functions() -> frozenset[Any]:
    """Also those that capture does not trace, as torch.as_tensor; and what modes are asked about."""
    found = (getattr(torch._C._VariableFunctions, name, None) for name in dir(torch._C._VariableFunctions) if not name.startswith("__"))
    return frozenset({one for one in found if isinstance(one, types.BuiltinFunctionType)} | {torch._C._set_grad_enabled, torch.device})


def _is_torchs(target: Any) -> bool:
    return is_torch_callable(target) or is_getter(target) or _is_in(target, _methods()) or _is_in(target, _functions())


def _is_in(target: Any, found: frozenset[Any]) -> bool:
    try:
        return target in found
    except TypeError:
        return False


# -- a call that may ask -------------------------------------------------------------------------------------------------------------------

def overridden_call(state: State, function: Value, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """What a call of torch's `target` gives where an argument or a mode answers for it, or an argument has a class of its own; None where
    the call is like any other."""
    return _overridden(state, function, target, args, kwargs) if _is_torchs(target) else None


def overridden_operator(state: State, target: Callable[..., Any], *args: Value) -> Value | None:
    """The same for an operator of Python's or a builtin: operator.add, len, …"""
    return _overridden(state, Constant(target), target, list(args), {})


def is_python_of_torch(target: types.FunctionType) -> bool:
    """Functions and methods of torch's in Python: where they do not ask themselves, what they call does."""
    return is_torch_callable(target) or target in _methods() and target is not torch.Tensor.__iter__


def is_users(found: Any) -> bool:
    """Whether what a class has for a special method is Python code that is not torch's."""
    return isinstance(found, types.FunctionType) and not found.__module__.startswith("torch.")


def _overridden(state: State, function: Value, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    given = (*args, *kwargs.values())
    asks = modes_on(state) or may_ask(state, given)
    if asks and (asked := _ask(state, target, args, kwargs)) is not None:
        return asked.answer()
    if asks and isinstance(target, types.FunctionType):
        return None                                     # its own code is followed, and what that calls asks
    objects = [one for one in given if is_tensor_object(one)]
    if not objects and not modes_on(state):
        return None
    with _without_modes(state):
        result = state.call(function, [_plain(one) for one in args], {name: _plain(one) for name, one in kwargs.items()})
    return next((one for one in objects if one.storage is result), result)


def _plain(value: Value) -> Value:
    return value.storage if is_tensor_object(value) else value


@contextmanager
def _without_modes(state: State) -> Any:
    """Meanwhile no mode is asked."""
    before = state.overriding
    state.overriding = [one for one in before if not is_mode(one)]
    try:
        yield
    finally:
        state.overriding = before


# -- asking torch who is asked -------------------------------------------------------------------------------------------------------------

class _Asked(Exception):
    """The call of a function that asks."""


class _Recorder(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise _Asked(func, types, args, kwargs)


class _StandIn:
    """Stands for an object that answers and is no tensor."""

    __slots__ = ()


class _Question:
    """A call on stand-ins, and the user's code that answers it."""

    def __init__(self, state: State):
        self.state = state
        self.values: dict[int, Value] = {}
        self.kept: list[Any] = []
        self.classes: dict[type, ObjectValue] = {}            # class of stand-ins → the first argument of its kind

    def stand_in(self, value: Value) -> Any:
        made = self._make(value)
        self.kept.append(made)
        if not isinstance(value, Constant) and made != ():
            self.values[id(made)] = value
        return made

    def _make(self, value: Value) -> Any:
        match value:
            case ObjectValue() if answers(self.state, value):
                cls = _stand_in_class(value.cls.value)
                self.classes.setdefault(cls, value)
                return with_class(torch.empty(0), cls) if issubclass(cls, torch.Tensor) else cls()
            case TensorValue() | ObjectValue(storage=TensorValue()):
                return with_class(torch.empty(0), python_type(value))
            case Constant():
                return value.value
            case SizeValue(size=torch.SymInt()):
                return 10 ** 9 + len(self.kept)
            case SizeValue(size=torch.SymFloat()):
                return 0.5 + len(self.kept)
            case TupleValue():
                return make_tuple(value.cls, [self.stand_in(one) for one in value.items])
            case ListValue():
                return [self.stand_in(one) for one in value.items]
            case DictValue() if value.complete:
                return {self.stand_in(key): self.stand_in(one) for key, one in value.items.values()}
            case SliceValue():
                return slice(*(self.stand_in(one) for one in (value.start, value.stop, value.step)))
            case FunctionValue(real=types.FunctionType()):
                return value.real
            case _:
                return _StandIn()

    def value(self, found: Any) -> Value:
        """The Value behind a stand-in; containers that torch made are made anew."""
        known = self.values.get(id(found))
        if known is not None:
            return known
        if type(found) is tuple:
            return TupleValue(tuple(self.value(one) for one in found))
        if type(found) is dict:
            return DictValue({name: (from_python(self.state, name), self.value(one)) for name, one in found.items()})
        return from_python(self.state, found)

    def answer(self) -> Value:
        """What the first that does not decline says: modes, innermost first, then the arguments in torch's order."""
        func, kinds, args, kwargs = self.asked
        state = self.state
        given = [state.wrap(state, func, state.made(func), True) if isinstance(func, types.FunctionType) else Constant(func),
                 TupleValue(tuple(self.classes[kind].cls if kind in self.classes else state.class_of(kind, None) for kind in kinds)), self.value(args)]
        given += [self.value(kwargs)] if kwargs is not None else []
        return _answered(state, [self.classes[kind] for kind in kinds if kind in self.classes], given)


def _answered(state: State, objects: list[ObjectValue], given: Args) -> Value:
    if modes_on(state):
        before = state.overriding
        at = max(i for i, one in enumerate(before) if is_mode(one))
        state.overriding = before[:at] + before[at + 1:]
        try:
            result = _handled(state, before[at], given)
            if not _declines(result):
                return result
            return _answered(state, objects, given)
        finally:
            state.overriding = before
    for one in objects:
        result = _handled(state, one, given)
        if not _declines(result):
            return result
    raise unsupported(state, "TW108", " and ".join(one.cls.value.__name__ for one in objects) or "whose handler declines")


def _declines(result: Value) -> bool:
    return isinstance(result, Constant) and result.value is NotImplemented


def _handled(state: State, owner: ObjectValue, given: Args) -> Value:
    """`owner.__torch_function__(func, types, args, kwargs)`."""
    found = state.type_lookup(owner.cls, "__torch_function__")
    match found:
        case classmethod(__func__=types.FunctionType() as real):
            first: Args = [owner.cls]
        case staticmethod(__func__=types.FunctionType() as real):
            first = []
        case types.FunctionType():
            real, first = found, [owner]
        case _:
            raise unsupported(state, "TW108", owner.cls.value.__name__)
    return state.call(state.wrap(state, real, state.made(real), True), [*first, *given])


@functools.lru_cache(maxsize=1024)
def _stand_in_class(cls: type) -> type:
    """A class that asks as `cls` does, and is derived from those of the bases of `cls`: torch asks derived classes first."""
    bases = tuple(_stand_in_class(base) for base in cls.__bases__ if overrides(base))
    if not bases:
        bases = (torch.Tensor,) if issubclass(cls, torch.Tensor) else (_StandIn,)
    return type(cls.__name__, bases, {"__torch_function__": classmethod(_unasked)})


def _unasked(cls: type, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    raise _Asked(func, types, args, kwargs)


def _ask(state: State, target: Any, args: Args, kwargs: Kwargs) -> _Question | None:
    """The question that a call of `target` asks, if it is about the call itself and somebody is there to answer."""
    question = _Question(state)
    random = torch.random.get_rng_state()
    try:
        with _disable_current_modes(), _Recorder():
            with torch._C.DisableTorchFunction():
                real_args = [question.stand_in(one) for one in args]
                real_kwargs = {name: question.stand_in(one) for name, one in kwargs.items()}
            target(*real_args, **real_kwargs)
    except _Asked as asked:
        func, kinds, _, _ = question.asked = asked.args
        is_inner = isinstance(target, types.FunctionType) and func is not target
        return question if not is_inner and (kinds or modes_on(state)) else None
    except Exception:                               # torch does not know the arguments, and so asks nobody
        pass
    finally:
        torch.random.set_rng_state(random)
    return None
