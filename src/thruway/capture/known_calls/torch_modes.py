"""Modes that captured code changes: autocast and the default dtype are set for the trace and in the graph; a default device goes into each
factory call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.cuda.amp.common import amp_definitely_not_available

from thruway.capture.breaks import unsupported
from thruway.capture.state import State
from thruway.capture.values.base import FALSE, NONE, Constant, DictValue, TupleValue, Value
from thruway.capture.values.constants import as_python, from_python
from thruway.capture.values.effect import record
from thruway.capture.values.overriding import is_mode, modes_on
from thruway.frame.modes import SWITCHES, autocast_devices, autocast_nesting, device_of_factories, present, put_back, set_autocast_nesting

Args = list[Value]
Kwargs = dict[str, Value]


def switches(setter: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """A call that sets modes: made for the trace, and in the graph."""
    def handler(state: State, args: Args, kwargs: Kwargs) -> Value:
        refuse_modes(state)
        values = [as_python(state, one) for one in args]
        keywords = {name: as_python(state, one) for name, one in kwargs.items()}
        before = present()

        def undo() -> None:
            put_back(before)
            state.tracing.autocast = autocast_devices()
        state.effects.remember(undo)
        result = setter(*values, **keywords)
        state.tracing.autocast = autocast_devices()
        node = state.graph.create_node("call_function", setter, tuple(values), keywords)
        node.meta["line"] = state.where()
        return from_python(state, result)
    return handler


def refuse_modes(state: State) -> None:
    """Function modes that were entered inside hear of other modes in torch's own way."""
    if modes_on(state):
        raise unsupported(state, "TW118")


def restore_modes(state: State, before: tuple[Any, ...]) -> None:
    """The graph leaves the modes as it found them; where the user's code stands in others, `finish` sets those first."""
    for switch, was, now in zip(SWITCHES, before, present()):
        if was != now:
            state.graph.create_node("call_function", switch.write, (*switch.first, was)).meta["line"] = None
            _finish_with(state, switch.write, *switch.first, now)


def restore_devices(state: State, before: tuple[torch.device, ...]) -> None:
    """`finish` enters and leaves the default devices that the user's code did."""
    shared = 0
    while shared < min(len(before), len(state.devices)) and before[shared] is state.devices[shared]:
        shared += 1
    for device in reversed(before[shared:]):
        _finish_with(state, torch.device.__exit__, device, None, None, None)
    for device in state.devices[shared:]:
        _finish_with(state, torch.device.__enter__, device)


def _finish_with(state: State, function: Callable[..., Any], *args: Any) -> None:
    record(state, "call", Constant(function), TupleValue(tuple(from_python(state, one) for one in args)), DictValue())


def enter_device(state: State, args: Args, kwargs: Kwargs) -> Value:
    refuse_modes(state)
    state.devices.append(args[0].value)
    state.effects.remember(state.devices.pop)
    return args[0]


def leave_device(state: State, args: Args, kwargs: Kwargs) -> Value:
    was = state.devices.pop()
    state.effects.remember(lambda: state.devices.append(was))
    return NONE


def default_device(state: State, args: Args, kwargs: Kwargs) -> Value:
    return Constant(device_of_factories(state.devices))


def number_of_function_modes(state: State, args: Args, kwargs: Kwargs) -> Value:
    return Constant(len(state.devices) + sum(map(is_mode, state.overriding)))


SETTERS = (
    torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled, torch.autocast_increment_nesting,
    torch.autocast_decrement_nesting, torch.clear_autocast_cache, torch.set_default_dtype, set_autocast_nesting,
)
QUESTIONS = (
    autocast_nesting, torch.is_autocast_cpu_enabled, torch.get_autocast_gpu_dtype, torch.get_autocast_cpu_dtype, torch.is_autocast_ipu_enabled,
    torch._C._get_privateuse1_backend_name, amp_definitely_not_available, torch.cuda.is_bf16_supported,
)


def _now(question: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    return lambda state, args, kwargs: from_python(state, question(*(as_python(state, one) for one in args)))


ROWS = {
    **{setter: switches(setter) for setter in SETTERS}, **{question: _now(question) for question in QUESTIONS},
    torch.device.__enter__: enter_device, torch.device.__exit__: leave_device, torch.get_default_device: default_device,
    torch._C._is_torch_function_mode_enabled: lambda state, args, kwargs: FALSE,       # autocast asks it for the export's own mode
    torch._C._len_torch_function_stack: number_of_function_modes,
}
