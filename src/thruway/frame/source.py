"""Sources: where a value can be found again at the next call. Pure data; emitting and checking code match on them.

Sources that are reached through another one remember their hash: capture looks them up again and again, and chains are long.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class _Hashed:
    """Computes the hash of its fields once."""

    __slots__ = ("_hash",)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((type(self).__name__, *(getattr(self, name) for name in self.__match_args__)))
            object.__setattr__(self, "_hash", found)
            return found


@dataclass(frozen=True, slots=True)
class Local:
    """Argument `index` of the frame after binding: positional, keyword-only, *args tuple, **kwargs dict, in co_varnames order."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Contents of the free variable `name` of the function, its `index`-th closure cell."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class Global:
    """`name` in the globals of the captured function, or of `module` (imported by name) where an inlined callee reads another one's."""

    name: str
    module: str | None = None


@dataclass(frozen=True, slots=True)
class Builtin:
    """`name` in builtins, read because globals lacked it."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionGlobal(_Hashed):
    """`name` in `__globals__` of the Python function found at `function`, where no importable module owns that dict."""

    function: Source
    name: str
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Attr(_Hashed):
    """`getattr(base, name)` with the plain protocol."""

    base: Source
    name: str
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class DictAttr(_Hashed):
    """`name` in the instance `__dict__` of `base`: no descriptor or `__getattr__` runs."""

    base: Source
    name: str
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Item(_Hashed):
    """`base[key]` for an exact list, tuple or dict and a constant key."""

    base: Source
    key: object
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class DictKey(_Hashed):
    """The `index`-th key of the dict `base`, in insertion order."""

    base: Source
    index: int
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class TypeOf(_Hashed):
    """`type(base)`."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class ClosureCell(_Hashed):
    """Contents of the `index`-th closure cell of the Python function found at `function`."""

    function: Source
    index: int
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Default(_Hashed):
    """The `index`-th positional default of the function found at `function`, or the keyword default `name`."""

    function: Source
    index: int | None
    name: str | None = None
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class WeakTarget(_Hashed):
    """What the weak reference at `base` points to."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class MethodSelf(_Hashed):
    """`base.__self__` of a bound method."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class MethodFunction(_Hashed):
    """`base.__func__` of a bound method."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Viewed(_Hashed):
    """The dict behind `base`, a view of its keys, values or items."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Proxied(_Hashed):
    """The dict behind `base`, a types.MappingProxyType."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Length(_Hashed):
    """`len(base)` of a list, deque or dict, whose name is `of`."""

    base: Source
    of: str = "list"
    __hash__ = _Hashed.__hash__


LENGTHS: dict[str, Callable[[Any], int]] = {cls.__name__: cls.__len__ for cls in (list, deque, dict)}


@dataclass(frozen=True, slots=True)
class Grad(_Hashed):
    """`base.grad` of a tensor."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class PlainTensor(_Hashed):
    """The tensor `base`, whose class has `__torch_function__`, as a plain one in the same memory."""

    base: Source
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Own:
    """The function of the frame itself, where frames are found by their code: another one of the same code may come at the next call."""


@dataclass(frozen=True, slots=True)
class Made:
    """A value that capture itself keeps for the entry (an interned callable, say): `index` in the entry's constants."""

    index: int


Source = (
    Local | Cell | Global | Builtin | FunctionGlobal | Attr | DictAttr | Item | DictKey | TypeOf | ClosureCell | Default
    | WeakTarget | MethodSelf | MethodFunction | Viewed | Proxied | Length | Grad | PlainTensor | Made | Own
)


def base_of(source: Source) -> Source | None:
    """The source that `source` is reached through; None for a root."""
    match source:
        case FunctionGlobal() | ClosureCell() | Default():
            return source.function
        case Attr() | DictAttr() | Item() | DictKey() | TypeOf() | WeakTarget() | MethodSelf() | MethodFunction() | Viewed() | Proxied() \
                | Length() | Grad() | PlainTensor():
            return source.base
        case Local() | Cell() | Global() | Builtin() | Made() | Own():
            return None
        case _:
            raise TypeError(f"not a source: {source!r}")


def root_of(source: Source) -> Source:
    """What `source` is reached from in the end."""
    while (base := base_of(source)) is not None:
        source = base
    return source


def show(source: Source) -> str:
    """The source as the user would write it."""
    match source:
        case Local(name) | Cell(name) | Global(name, None) | Builtin(name):
            return name
        case Global(name, module):
            return f"{module}.{name}"
        case FunctionGlobal(function, name):
            return f"{show(function)}.__globals__[{name!r}]"
        case Attr(base, name):
            return f"{show(base)}.{name}"
        case DictAttr(base, name):
            return f"{show(base)}.__dict__[{name!r}]"
        case Item(base, key):
            return f"{show(base)}[{key!r}]"
        case DictKey(base, index):
            return f"list({show(base)})[{index}]"
        case TypeOf(base):
            return f"type({show(base)})"
        case ClosureCell(function, index):
            return f"{show(function)}.__closure__[{index}].cell_contents"
        case Default(function, index, name):
            return f"{show(function)}.__kwdefaults__[{name!r}]" if name else f"{show(function)}.__defaults__[{index}]"
        case WeakTarget(base):
            return f"{show(base)}()"
        case MethodSelf(base):
            return f"{show(base)}.__self__"
        case MethodFunction(base):
            return f"{show(base)}.__func__"
        case Viewed(base) | Proxied(base):
            return f"{show(base)}.mapping"
        case Length(base):
            return f"len({show(base)})"
        case Grad(base):
            return f"{show(base)}.grad"
        case PlainTensor(base):
            return f"{show(base)}.as_subclass(torch.Tensor)"
        case Made(index):
            return f"<kept value {index}>"
        case Own():
            return "<this function>"
        case _:
            raise TypeError(f"not a source: {source!r}")


def tell(source: Source) -> str:
    """`show` for readers: what has no name in the user's code is named by what it is."""
    return HIDDEN.sub(lambda found: f"<value {found[1]} at the break>" if found[1] else f"<object {found[2]} that the code uses>", show(source))


HIDDEN = re.compile(r"^\.s(\d+)|<kept value (\d+)>")          # parameters of continuations, and what the entry itself keeps


def is_buffer(source: Source) -> bool:
    """Whether the tensor is reached through a module's `_buffers`."""
    return is_module_tensor(source) and source.base.name == "_buffers"         # type: ignore[union-attr]


def is_module_tensor(source: Source) -> bool:
    """Whether the tensor is reached through a module's `_parameters` or `_buffers`."""
    return isinstance(source, Item) and isinstance(source.base, DictAttr | Attr) and source.base.name in ("_parameters", "_buffers")
