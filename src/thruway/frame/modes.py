"""Modes of the thread that operators obey and that captured code may change, and the devices that `torch.device` contexts set.

A mode can be read, and set by a function that a graph may call. Devices stand on torch's stack of function modes; capture takes them
off that stack and gives the device to each factory call instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._device import DeviceContext

AUTOCAST_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Switch:
    """`write(*first, value)` sets the mode."""

    read: Callable[[], Any]
    write: Callable[..., Any]
    first: tuple[Any, ...] = ()

    def set(self, value: Any) -> None:
        self.write(*self.first, value)


def autocast_nesting() -> int:
    """How many autocast blocks stand around."""
    inside = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return inside - 1


def set_autocast_nesting(level: int) -> None:
    """What autocast cached goes with the last block."""
    for _ in range(autocast_nesting(), level):
        torch.autocast_increment_nesting()
    for _ in range(level, autocast_nesting()):
        torch.autocast_decrement_nesting()
    if level == 0:
        torch.clear_autocast_cache()


SWITCHES = (
    Switch(torch.is_grad_enabled, torch._C._set_grad_enabled),
    *(Switch(functools.partial(torch.is_autocast_enabled, device), torch.set_autocast_enabled, (device,)) for device in AUTOCAST_DEVICES),
    *(Switch(functools.partial(torch.get_autocast_dtype, device), torch.set_autocast_dtype, (device,)) for device in AUTOCAST_DEVICES),
    Switch(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    Switch(autocast_nesting, set_autocast_nesting),
    Switch(torch.get_default_dtype, torch.set_default_dtype),
)
SETTERS = frozenset({
    *(switch.write for switch in SWITCHES), torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache,
})
DTYPE_SETTERS = SETTERS - {torch._C._set_grad_enabled}      # what operators compute depends on these


def sets_modes(graph: Any, setters: frozenset[object]) -> bool:
    """Whether the fx graph calls one of `setters`, or a side of one of its branches does."""
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    return any(target in setters or any(sets_modes(side.graph, setters) for side in getattr(target, "sides", ())) for target in called)


def present() -> tuple[Any, ...]:
    """The value of each switch now."""
    return tuple(switch.read() for switch in SWITCHES)


def put_back(before: tuple[Any, ...]) -> None:
    for switch, value in zip(SWITCHES, before):
        if switch.read() != value:
            switch.set(value)


@contextmanager
def kept_modes() -> Iterator[None]:
    """The switches stand afterwards as they do now."""
    before = present()
    try:
        yield
    finally:
        put_back(before)


def autocast_devices() -> tuple[str, ...]:
    """Devices for which autocast is on."""
    return tuple(device for device in AUTOCAST_DEVICES if torch.is_autocast_enabled(device))


@contextmanager
def with_autocast(devices: tuple[str, ...]) -> Iterator[None]:
    """Autocast is on for `devices` and off for all others; with none, operators compute in the dtypes they are given."""
    before = autocast_devices()
    for device in AUTOCAST_DEVICES:
        torch.set_autocast_enabled(device, device in devices)
    try:
        yield
    finally:
        for device in AUTOCAST_DEVICES:
            torch.set_autocast_enabled(device, device in before)


def _function_modes() -> list[Any]:
    """Outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def has_only_device_mode() -> bool:
    """Whether the function modes around, if any, are torch's own for default devices."""
    return all(type(mode) is DeviceContext for mode in _function_modes())


def present_devices() -> tuple[torch.device, ...]:
    """Default devices set around, outermost first; the last one counts. Some contexts take another one off the stack and remember it."""
    found: list[torch.device] = []
    for mode in reversed(_function_modes()):
        while type(mode) is DeviceContext:
            found.append(mode.device)
            mode = mode.prev_mode
    return tuple(reversed(found))


@contextmanager
def without_device_mode() -> Iterator[None]:
    """Factory calls make what they say, whatever the default device."""
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)


def device_of_factories(devices: tuple[torch.device, ...] | list[torch.device]) -> torch.device:
    """What torch.get_default_device() gives under `devices`."""
    if not devices:
        return torch.device("cpu")
    device = devices[-1]
    return torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device
