"""Copies of all that a call can reach and change, sharing among themselves what the originals share: memory, objects, cells.

Objects are copied by their structure, so that no code of the user's runs; what carries no state that Python sees (types, modules, locks,
files) stands for itself. NotCopied names what can be neither copied nor shared: iterators and generators, which a second run would drain.
"""

from __future__ import annotations

import collections
import copy
import enum
import functools
import io
import logging
import os
import random
import sys
import threading
import types
import weakref
from typing import Any

import numpy
import torch

from thruway.core.marks import ORIGINAL, original_of
from thruway.frame.skip import is_skipped_module

SHARED = (
    type(None), bool, int, float, complex, str, bytes, range, type, type(Ellipsis), type(NotImplemented), types.ModuleType, types.CodeType,
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.MethodWrapperType, types.FrameType, types.TracebackType, property, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
    enum.Enum, logging.Logger, logging.Handler, io.IOBase, type(threading.Lock()), type(threading.RLock()), threading.Thread, numpy.dtype,
)
MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
WIDE = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128}
LINKS = ("__dict__", "__weakref__")


@functools.cache
def is_foreign(module: str) -> bool:
    """Whether code of that module keeps no state that a user's program is checked for: the standard library's, torch's, installed ones'."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module.split(".")[0] in ("torch", *sys.stdlib_module_names) or is_skipped_module(module) or f"{os.sep}site-packages{os.sep}" in file


class NotCopied(Exception):
    """A call cannot be run twice, because of the value that the text names."""


class Copies:
    """`copy(value)` gives one copy per object. `wide`: floating tensors become float64. `pairs`: every tensor beside its copy."""

    def __init__(self, wide: bool = False):
        self.wide = wide
        self.memo: dict[int, tuple[Any, Any]] = {}                 # keeps the originals alive, so that ids stay theirs
        self.storages: dict[tuple[int, torch.dtype], torch.UntypedStorage] = {}
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def copy(self, value: Any) -> Any:
        if isinstance(value, SHARED) and not isinstance(value, tuple) or isinstance(value, torch.Size):
            return value
        known = self.memo.get(id(value))
        if known is None:
            known = self.memo[id(value)] = (value, self._copy(value))
        return known[1]

    def _copy(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind.__module__.startswith("thruway.native") and isinstance(original_of(value), types.FunctionType):
            return self.function(original_of(value), vars(value))
        if hasattr(kind, ORIGINAL):
            return self.copy(original_of(value))
        if isinstance(value, numpy.ndarray):
            return value.copy()
        if isinstance(value, random.Random | torch.Generator | numpy.random.Generator | numpy.random.RandomState):
            return self._generator(value)
        if isinstance(value, functools._lru_cache_wrapper):
            return self._cached(value)
        if hasattr(kind, "__next__"):
            raise NotCopied(f"an iterator ({kind.__name__}), which can be run through only once")
        return self._structure(value, kind)

    def _cached(self, value: Any) -> Any:
        """A cached function with an empty cache of its own. What a filled one holds cannot be read."""
        if is_foreign(getattr(value, "__module__", None) or ""):
            return value
        if value.cache_info().currsize:
            raise NotCopied("a cached function, whose cache is filled")
        return self._remember(value, functools.lru_cache(**value.cache_parameters())(self.copy(value.__wrapped__)))

    def _structure(self, value: Any, kind: type) -> Any:
        match value:
            case types.FunctionType():
                return self.function(value)
            case types.MethodType():
                function, owner = self.copy(value.__func__), self.copy(value.__self__)
                return value if function is value.__func__ and owner is value.__self__ else types.MethodType(function, owner)
            case types.CellType():
                return self._cell(value)
            case functools.partial():
                return kind(self.copy(value.func), *map(self.copy, value.args), **{name: self.copy(one) for name, one in value.keywords.items()})
            case weakref.ref():
                target = value()
                return value if target is None else weakref.ref(self.copy(target))
            case staticmethod() | classmethod():
                return kind(self.copy(value.__func__))
            case slice():
                return slice(self.copy(value.start), self.copy(value.stop), self.copy(value.step))
            case _:
                return self._object(value, kind)

    # -- containers and objects --------------------------------------------------------------------------------------------------------

    def _object(self, value: Any, kind: type) -> Any:
        """An instance of a builtin container, of a class made of one, or of a plain class; others by their own copy protocol."""
        base = next((one for one in (*MAPPINGS[1:], dict, list, set, frozenset, collections.deque, tuple) if isinstance(value, one)), object)
        if base is object and _is_sentinel(value, kind):
            return value
        if base in (tuple, frozenset):
            items = [self.copy(one) for one in base.__iter__(value)]
            made = value if all(map(_same, items, base.__iter__(value))) and kind is base else base.__new__(kind, items)
        elif base is collections.deque:
            made = self._remember(value, collections.deque.__new__(kind))
            collections.deque.__init__(made, (), value.maxlen)
        elif (empty := _empty(base, kind)) is None:
            return self._by_protocol(value)
        else:
            made = self._remember(value, empty)
        self._fill(made, value, base)
        if made is not value:
            self._attributes(made, value, kind)
        return made

    def _fill(self, made: Any, value: Any, base: type) -> None:
        if issubclass(base, dict):
            if base is collections.defaultdict:
                made.default_factory = self.copy(value.default_factory)
            for key in list((collections.OrderedDict if base is collections.OrderedDict else dict).__iter__(value)):
                base.__setitem__(made, self.copy(key), self.copy(dict.__getitem__(value, key)))
        elif base is list or base is collections.deque:
            base.extend(made, [self.copy(one) for one in base.__iter__(value)])
        elif base is set:
            set.update(made, [self.copy(one) for one in set.__iter__(value)])

    def _attributes(self, made: Any, value: Any, kind: type) -> None:
        for name, one in _slots(value, kind):
            object.__setattr__(made, name, self.copy(one))
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict) and held:
            made.__dict__.update({name: self.copy(one) for name, one in held.items()})

    def _by_protocol(self, value: Any) -> Any:
        try:
            return copy.deepcopy(value, {id(old): new for old, new in self.memo.values()})
        except Exception:                                        # a handle of something outside Python stands for itself
            return value

    @staticmethod
    def _generator(value: Any) -> Any:
        return value.clone_state() if isinstance(value, torch.Generator) else copy.deepcopy(value)

    def _remember(self, value: Any, made: Any) -> Any:
        self.memo[id(value)] = value, made
        return made

    # -- functions ---------------------------------------------------------------------------------------------------------------------

    def function(self, value: types.FunctionType, attributes: dict[str, Any] | None = None) -> types.FunctionType:
        """The function on copies of what its cells, defaults and attributes hold; itself where they hold nothing that can change."""
        parts = (value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__ if attributes is None else attributes)
        if not any(parts):
            return value
        cells = tuple(self.copy(cell) for cell in value.__closure__ or ())
        made = types.FunctionType(value.__code__, value.__globals__, value.__name__, None, cells or None)
        self._remember(value, made)
        made.__qualname__, made.__module__, made.__doc__ = value.__qualname__, value.__module__, value.__doc__
        made.__defaults__, made.__kwdefaults__ = self.copy(value.__defaults__), self.copy(value.__kwdefaults__)
        made.__dict__.update({name: self.copy(one) for name, one in parts[3].items() if not name.startswith("__")})
        return made

    def _cell(self, value: types.CellType) -> types.CellType:
        made = self._remember(value, types.CellType())
        try:
            made.cell_contents = self.copy(value.cell_contents)
        except ValueError:                                       # an empty cell
            pass
        return made

    # -- tensors -----------------------------------------------------------------------------------------------------------------------

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        made = self._remember(value, self._like(value))
        self.pairs.append((value, made))
        if value.is_leaf and value.grad is not None:
            made.grad = self.copy(value.grad)
        self._attributes_of_tensor(made, value)
        return made

    def _like(self, value: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            made = self._view(value) if _is_dense(value) else value.detach().clone()
            made = made.to(WIDE[made.dtype]) if self.wide and made.dtype in WIDE else made
        if type(value) is torch.nn.Parameter:
            return torch.nn.Parameter(made, value.requires_grad)
        if type(value) is not torch.Tensor:
            made = made.as_subclass(type(value))
        if not value.requires_grad:
            return made
        made.requires_grad_()
        with torch.enable_grad():
            return made if value.is_leaf else made.clone()

    def _view(self, value: torch.Tensor) -> torch.Tensor:
        """On a copy of the storage, which other copies share as the originals do."""
        key = value.untyped_storage().data_ptr(), value.dtype
        dtype = WIDE.get(value.dtype, value.dtype) if self.wide else value.dtype
        if key not in self.storages:
            storage = value.untyped_storage()
            if dtype is value.dtype:
                self.storages[key] = storage.clone()
            else:
                count = storage.nbytes() // value.element_size()
                whole = torch.empty(0, dtype=value.dtype, device=value.device).set_(storage, 0, (count,), (1,))
                self.storages[key] = whole.to(dtype).untyped_storage()
        made = torch.empty(0, dtype=dtype, device=value.device)
        return made.set_(self.storages[key], value.storage_offset(), tuple(value.shape), value.stride())

    def _attributes_of_tensor(self, made: torch.Tensor, value: torch.Tensor) -> None:
        for name, one in getattr(value, "__dict__", {}).items():
            made.__dict__[name] = self.copy(one)


def _is_sentinel(value: Any, kind: type) -> bool:
    """Whether the object is nothing but itself: no attributes, and none to come."""
    return not _slots(value, kind) and not getattr(value, "__dict__", None) and (not kind.__dictoffset__ or is_foreign(kind.__module__))


def _is_dense(value: torch.Tensor) -> bool:
    plain = value.layout is torch.strided and not value.is_quantized and not value.is_conj() and not value.is_neg() and not value.is_meta
    return plain and not value.is_inference() and value.untyped_storage().nbytes() > 0


def _empty(base: type, kind: type) -> Any:
    """A new instance with nothing in it; None where the class has a layout of its own below."""
    try:
        return base.__new__(kind)
    except TypeError:
        return None


def _slots(value: Any, kind: type) -> list[tuple[str, Any]]:
    names = [name for base in kind.__mro__ for name in _names_of(vars(base).get("__slots__", ())) if name not in LINKS]
    return [(name, getattr(value, name)) for name in names if isinstance(getattr(kind, name, None), types.MemberDescriptorType) and hasattr(value, name)]


def _names_of(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _same(one: Any, other: Any) -> bool:
    return one is other
