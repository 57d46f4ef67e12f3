"""Globals of modules and functions: read once, guarded, with writes that wait."""

from __future__ import annotations

import builtins
import functools

from thruway.capture.state import Namespace, State
from thruway.capture.values.base import Constant, Value
from thruway.capture.values.effect import record
from thruway.capture.values.errors import raise_error
from thruway.capture.values.older import GlobalSlot, note_global
from thruway.capture.wrap import module_global, wrap
from thruway.frame.source import Attr, Builtin


def read_global(state: State, space: Namespace, name: str) -> Value:
    """`name` in the globals, else in builtins."""
    value = space.values.get(name)
    if value is not None:
        return value
    if name not in space.missing and name in space.real:
        value = wrap(state, space.real[name], space.source_of(name))
    elif hasattr(builtins, name):
        _guard_not_shadowed(state, space, name)
        value = wrap(state, getattr(builtins, name), Builtin(name))
    else:
        raise_error(state, NameError, f"name '{name}' is not defined")
    space.values[name] = value
    return value


def _guard_not_shadowed(state: State, space: Namespace, name: str) -> None:
    """The Builtin source speaks for the compiled function's globals alone. torch's own modules are taken not to grow such names."""
    if space.real is state.function.__globals__ or name in space.missing or str(space.real.get("__name__")).partition(".")[0] == "torch":
        return
    if space.place is None:
        space.place = state.made(space.real)
    state.guard("absent", space.place, name)


def write_global(state: State, space: Namespace, name: str, value: Value) -> None:
    old = space.values.get(name)
    state.effects.remember(lambda: space.values.pop(name, None) if old is None else space.values.__setitem__(name, old),
                           note_global(state, GlobalSlot(space, name)))
    space.values[name] = value
    record(state, "global_store", space, name, value)


def module_namespace(state: State, module: Constant) -> Namespace:
    """The globals of a module object as capture sees them."""
    real = module.value.__dict__
    space = state.namespaces.get(id(real))
    if space is None:
        if module.source is None:
            space = Namespace(real, functools.partial(module_global, module.value.__name__), module.value.__name__)
        else:
            space = Namespace(real, functools.partial(Attr, module.source), None, module.source)
        state.namespaces[id(real)] = space
    return space
