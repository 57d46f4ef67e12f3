"""Classes with `__torch_function__` and function modes: what torch does where a class does not say otherwise, how tensors get a class, and what
switches the asking on and off."""

from __future__ import annotations

import torch
import torch.overrides

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.tensors import call_torch
from thruway.capture.values.base import FALSE, NONE, NOT_IMPLEMENTED, Constant, DictValue, ListValue, MethodValue, ObjectValue, TensorValue, TupleValue, Value
from thruway.capture.values.compare import boolean
from thruway.capture.values.constants import as_python
from thruway.capture.values.effect import record
from thruway.capture.values.iterate import items_of
from thruway.capture.values.overriding import is_mode, is_off, is_tensor_object, may_ask, modes_on, overrides
from thruway.capture.values.torch_function import overridden_call
from thruway.capture.values.types_ import python_type
from thruway.capture.values.unpack import mapping_items

Args = list[Value]
Kwargs = dict[str, Value]
DEFAULT = torch.Tensor.__torch_function__.__func__
OFF = (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction)


def default_function(state: State, args: Args, kwargs: Kwargs) -> Value:
    """torch.Tensor.__torch_function__: the function itself, and its results get the class."""
    cls, func, kinds, *rest = args
    given = dict(zip(("args", "kwargs"), rest)) | kwargs
    positional = items_of(state, given["args"]) if "args" in given else []
    named = {key.value: one for key, one in mapping_items(state, given["kwargs"])} if given.get("kwargs", NONE) is not NONE else {}
    if not all(issubclass(cls.value, as_python(state, kind)) for kind in items_of(state, kinds)):
        return NOT_IMPLEMENTED
    switch = ObjectValue(state.class_of(OFF[0], None))
    state.overriding = [*(before := state.overriding), switch]
    try:
        result = state.call(func, positional, named)
    finally:
        state.overriding = before
    keeps = isinstance(func, Constant) and func.value in torch.overrides.get_default_nowrap_functions()
    return result if keeps else _converted(state, result, cls)


def _converted(state: State, value: Value, cls: Constant) -> Value:
    if cls.value is torch.Tensor:
        return value
    if isinstance(value, TensorValue | ObjectValue) and issubclass(python_type(value), torch.Tensor):
        return value if issubclass(python_type(value), cls.value) else of_class(state, value, cls)
    if isinstance(value, TupleValue):
        return TupleValue(tuple(_converted(state, one, cls) for one in value.items), cls=value.cls)
    if isinstance(value, ListValue):
        return ListValue([_converted(state, one, cls) for one in value.items])
    return value


def of_class(state: State, value: Value, cls: Constant) -> Value:
    """`tensor.as_subclass(cls)`."""
    plain = value.storage if is_tensor_object(value) else value
    if not isinstance(plain, TensorValue) or not isinstance(cls, Constant):
        raise unsupported(state, "TW108", getattr(cls, "value", cls))
    if cls.value is torch.Tensor:
        return plain
    if cls.value.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or plain.trace.requires_grad and not torch.is_grad_enabled():
        raise unsupported(state, "TW108", cls.value.__name__)
    if plain.trace.requires_grad and plain.trace.is_leaf:
        plain = call_torch(state, torch.ops.aten.alias.default, [plain], {})           # it is a leaf no more
    made = ObjectValue(cls)
    made.storage, state.overrides = plain, True
    return made


def as_subclass(state: State, args: Args, kwargs: Kwargs) -> Value:
    return of_class(state, args[0], args[1] if len(args) > 1 else kwargs["cls"])


def make_subclass(state: State, args: Args, kwargs: Kwargs) -> Value:
    """torch.Tensor._make_subclass(cls, data, require_grad=False)."""
    cls, data, *rest = args
    wanted = rest[0] if rest else kwargs.get("require_grad", FALSE)
    if len(rest) > 1 or kwargs.keys() - {"require_grad"} or as_python(state, wanted) or issubclass(cls.value, torch.nn.Parameter):
        raise unsupported(state, "TW108", f"{cls.value.__name__} that requires a gradient")
    return of_class(state, call_torch(state, torch.Tensor.detach, [data.storage if is_tensor_object(data) else data], {}), cls)


def new_tensor(state: State, args: Args, kwargs: Kwargs) -> Value:
    """`Class(data)` of a class that has no `__new__` of its own: a tensor, or a list of numbers in the default dtype."""
    cls, *given = args
    if len(given) != 1 or kwargs or issubclass(cls.value, torch.nn.Parameter):
        raise unsupported(state, "TW101", cls.value.__qualname__)
    data = given[0].storage if is_tensor_object(given[0]) else given[0]
    if isinstance(data, TensorValue):
        return of_class(state, call_torch(state, torch.Tensor.detach, [data], {}), cls)
    if not isinstance(data, ListValue | TupleValue) or getattr(data, "cls", None) is torch.Size:
        raise unsupported(state, "TW101", cls.value.__qualname__)
    made = call_torch(state, torch.tensor, [data], {"dtype": Constant(torch.get_default_dtype())})
    if made is None:
        raise unsupported(state, "TW101", cls.value.__qualname__)
    return of_class(state, made, cls)


# -- on and off --------------------------------------------------------------------------------------------------------------------------

def _enter(state: State, value: Value) -> None:
    before = state.overriding
    state.overriding, state.overrides = [*before, value], True
    state.effects.remember(lambda: setattr(state, "overriding", before))


def _leave(state: State, value: Value | None) -> Value:
    before = state.overriding
    if not before or value is not None and before[-1] is not value:
        raise unsupported(state, "TW109", "the end of a context that was entered outside")
    state.overriding = before[:-1]
    state.effects.remember(lambda: setattr(state, "overriding", before))
    return before[-1]


def new_switch(cls: type):
    return lambda state, args, kwargs: ObjectValue(state.class_of(cls, None))


def switch_off(state: State, args: Args, kwargs: Kwargs) -> Value:
    _enter(state, args[0])
    return NONE


def switch_on(state: State, args: Args, kwargs: Kwargs) -> Value:
    _leave(state, args[0])
    return NONE


def push_mode(state: State, args: Args, kwargs: Kwargs) -> Value:
    if not is_mode(args[0]) or state.devices:
        raise unsupported(state, "TW118")
    _enter(state, args[0])
    return NONE


def pop_mode(state: State, args: Args, kwargs: Kwargs) -> Value:
    found = _leave(state, None)
    if not is_mode(found):
        raise unsupported(state, "TW118")
    return found


def restore_overriding(state: State) -> None:
    """`finish` enters what the user's code stands in."""
    for one in state.overriding:
        if is_mode(one):
            record(state, "call", Constant(torch._C._push_on_torch_function_stack), TupleValue((one,)), DictValue())
        else:
            record(state, "call", MethodValue(Constant(one.cls.value.__enter__), one), TupleValue(()), DictValue())


def is_enabled(state: State, args: Args, kwargs: Kwargs) -> Value:
    return boolean(not is_off(state) and torch._C._is_torch_function_enabled())


def has_function(state: State, args: Args, kwargs: Kwargs) -> Value:
    """Whether one of the arguments, or of those in a sequence, answers for itself."""
    return boolean(modes_on(state) or may_ask(state, args))


def handle(state: State, args: Args, kwargs: Kwargs) -> Value:
    """torch.overrides.handle_torch_function(public function, relevant arguments, *args, **kwargs)."""
    function, _, *given = args
    real = function.value if isinstance(function, Constant) else getattr(function, "real", None)
    result = overridden_call(state, function, real, given, kwargs) if real is not None else None
    if result is None:
        raise unsupported(state, "TW108", "with a function of its own")
    return result


def told(question):
    """What torch says of one of its functions."""
    return lambda state, args, kwargs: Constant(question(args[0].real if hasattr(args[0], "real") else as_python(state, args[0])))


QUESTIONS = (torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)
ROWS = {
    DEFAULT: default_function, torch.Tensor.as_subclass: as_subclass, torch.Tensor._make_subclass: make_subclass,
    torch._C.TensorBase.__new__: new_tensor,
    **{cls: new_switch(cls) for cls in OFF}, **{cls.__enter__: switch_off for cls in OFF}, **{cls.__exit__: switch_on for cls in OFF},
    torch._C._push_on_torch_function_stack: push_mode, torch._C._pop_torch_function_stack: pop_mode,
    torch._C._is_torch_function_enabled: is_enabled, **{question: has_function for question in QUESTIONS},
    torch.overrides.handle_torch_function: handle, torch.overrides.resolve_name: told(torch.overrides.resolve_name),
    torch.overrides.is_tensor_method_or_property: told(torch.overrides.is_tensor_method_or_property),
    torch.overrides.is_tensor_like: lambda state, args, kwargs: boolean(
        isinstance(args[0], TensorValue) or isinstance(args[0], ObjectValue) and (overrides(args[0].cls.value) or is_tensor_object(args[0]))),
}
