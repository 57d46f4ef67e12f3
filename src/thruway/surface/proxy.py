"""The compiled module: a proxy that calls compiled code and forwards everything else to the module, which stays eager.

`__class__` is the module's, so `isinstance` and torch's own registration take the proxy for the module. Methods of the module
run on the module itself; where one returns the module (`train`, `to`, a user's own `freeze`), the caller gets the proxy back.
Special methods are looked up on the type, so each module class gets a proxy class with those that it has.
"""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import MethodType
from typing import Any

from torch import nn

from thruway.core.marks import original_of
from thruway.core.options import CompileOptions
from thruway.surface import lazy

OWN = frozenset({"_thruway_original", "_thruway_options", "_thruway_call", "_thruway_type"})

# Special methods that the proxy answers itself, or that belong to making the object rather than to using it.
NOT_FORWARDED = frozenset({
    "__call__", "__class__", "__class_getitem__", "__copy__", "__deepcopy__", "__del__", "__delattr__", "__dict__", "__doc__",
    "__getattr__", "__getattribute__", "__getstate__", "__init__", "__init_subclass__", "__module__", "__new__", "__prepare__",
    "__reduce__", "__reduce_ex__", "__setattr__", "__setstate__", "__slots__", "__subclasshook__", "__weakref__",
})


class ModuleProxy:
    """Made by `proxy_of`. Its own state stands in slots, so that its `__dict__` is the module's."""

    __slots__ = ("__weakref__", *sorted(OWN))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._thruway_original
        if type(module) is not self._thruway_type:
            _follow_class(self)
        return self._thruway_call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in OWN:
            raise AttributeError(name)
        value = getattr(self._thruway_original, name)
        if type(value) is MethodType and value.__self__ is self._thruway_original:
            return ProxyMethod(value, self)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._thruway_original, name, value)
        if name == "__class__":
            _set_real_class(self, _proxy_class(type(self._thruway_original)))

    def __delattr__(self, name: str) -> None:
        delattr(self._thruway_original, name)

    @property
    def __class__(self) -> type:
        return type(self._thruway_original)

    @property
    def _orig_mod(self) -> nn.Module:
        """The eager module, under the name that torch's own compiled modules use."""
        return self._thruway_original

    def __copy__(self) -> Any:
        return proxy_of(copy.copy(self._thruway_original), self._thruway_options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return proxy_of(copy.deepcopy(self._thruway_original, memo), self._thruway_options)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return proxy_of, (self._thruway_original, self._thruway_options)

    def __repr__(self) -> str:
        return repr(self._thruway_original)

    def __dir__(self) -> list[str]:
        return dir(self._thruway_original)


ModuleProxy.__call__.__signature__ = inspect.signature(nn.Module.__call__)        # type: ignore[attr-defined]


class ProxyMethod:
    """A bound method of the module, reached through its proxy: returns the proxy where the method returns the module."""

    __slots__ = ("__wrapped__", "_proxy")

    def __init__(self, method: MethodType, proxy: ModuleProxy):
        self.__wrapped__ = method
        self._proxy = proxy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.__wrapped__(*args, **kwargs)
        return self._proxy if result is self.__wrapped__.__self__ else result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    @property
    def _thruway_original(self) -> MethodType:
        return self.__wrapped__

    def __eq__(self, other: object) -> bool:
        return self.__wrapped__ == (other.__wrapped__ if isinstance(other, ProxyMethod) else other)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._proxy, self.__wrapped__.__name__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def proxy_of(module: nn.Module, options: CompileOptions) -> Any:
    """A new compiled module over `module`."""
    proxy = object.__new__(_proxy_class(type(module)))
    object.__setattr__(proxy, "_thruway_original", module)
    object.__setattr__(proxy, "_thruway_options", options)
    object.__setattr__(proxy, "_thruway_type", None)          # no class yet: the first call brings the compiler in
    return proxy


_proxy_classes: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()
_set_real_class = object.__dict__["__class__"].__set__


def _follow_class(proxy: Any) -> None:
    """Matches the proxy with the class that its module has now (`module.__class__ =`, parametrize): special methods and call."""
    module = proxy._thruway_original
    _set_real_class(proxy, _proxy_class(type(module)))
    object.__setattr__(proxy, "_thruway_type", type(module))
    options = replace(proxy._thruway_options, name=type(module).__qualname__)
    object.__setattr__(proxy, "_thruway_call", lazy.compile_callable(original_of(module.__call__), options))


def _proxy_class(cls: type) -> type:
    made = _proxy_classes.get(cls)
    if made is None:
        members = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        members |= {name: _forward(name) for name in _special_methods(cls)}
        made = _proxy_classes[cls] = type(ModuleProxy)(cls.__name__, (ModuleProxy,), members)
    return made


def _special_methods(cls: type) -> set[str]:
    """Special methods that `cls` gets from anywhere but `object` and `nn.Module`."""
    names = {name for base in cls.__mro__ if base not in (object, nn.Module) for name in vars(base)}
    return {name for name in names if name.startswith("__") and name.endswith("__") and name not in NOT_FORWARDED and callable(getattr(cls, name, None))}


def _forward(name: str) -> Callable[..., Any]:
    def forwarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        module = self._thruway_original
        result = getattr(type(module), name)(module, *args, **kwargs)
        return self if result is module else result

    forwarded.__name__ = forwarded.__qualname__ = name
    return forwarded
