"""The kinds of Value. A value found outside has a Source and the real object; one made inside has neither until `emit` rebuilds it.

Values are compared by identity: one Value per object. Containers hold Values in plain Python containers, so that most
methods of list, dict and set are run by Python itself on them.
"""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from thruway.core.errors import Unsupported
from thruway.frame.source import Attr, DictAttr, Item, Source
from thruway.shapes.floats import FloatNode
from thruway.shapes.symbolic import SizeNode


_AGES = itertools.count(1)
_age = 0


def new_age() -> int:
    """Values made from now on have an age of at least this; those that there are, a lower one."""
    global _age
    _age = now = next(_AGES)
    return now


class Value:
    """`source`: where the object is found outside, or None. `exposed`: an effect already refers to it, so that later writes are effects too.
    `age` tells values made in a side of a branch from those that are older; what was found outside is older than all."""

    __slots__ = ("source", "exposed", "age")

    def __init__(self, source: Source | None = None):
        self.source = source
        self.exposed = source is not None
        self.age = _age if source is None else 0


class Null(Value):
    """The NULL that CPython pushes beside callables."""

    __slots__ = ()


NULL = Null()


class Constant(Value):
    """A Python object that is known exactly and never changes under us: a number, string, type, builtin function, module, dtype, …"""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None):
        self.source = source
        self.exposed = False
        self.value = value

    def __repr__(self) -> str:
        return f"Constant({self.value!r})"


NONE, TRUE, FALSE = Constant(None), Constant(True), Constant(False)
NOT_IMPLEMENTED = Constant(NotImplemented)


class TensorValue(Value):
    """`trace` holds metadata only; of a tensor found outside it is made, and the metadata guarded, when it is first wanted.
    `node` is the tensor's place in the graph, made when first used. `found_meta` is the metadata before any call changed it."""

    __slots__ = ("found_meta", "known_trace", "make_trace", "node", "real")

    def __init__(self, trace: Any, node: Any = None, source: Source | None = None, real: Any = None):
        super().__init__(source)
        self.known_trace, self.node, self.real = trace, node, real
        self.make_trace: Callable[[], Any] | None = None

    @property
    def trace(self) -> Any:
        if self.known_trace is None:
            self.known_trace = self.make_trace()
            self.found_meta = self.known_trace.meta
        return self.known_trace

    def __repr__(self) -> str:
        return f"TensorValue({self.node or self.source})"


class ArrayValue(Value):
    """A numpy array, or a scalar of numpy's that only the run knows, which `node` gives. `example` has its type, dtype, shape and strides; where
    `memory.is_known` also its elements. Of one found outside, `find` guards these when they are first wanted."""

    __slots__ = ("found", "find", "memory", "node", "cls")

    def __init__(self, example: Any, memory: Any, node: Any = None, source: Source | None = None, cls: type | None = None):
        super().__init__(source)
        self.exposed = False
        self.found, self.memory, self.node = example, memory, node
        self.cls: type = cls or type(example)
        self.find: Callable[[], Any] | None = None

    @property
    def example(self) -> Any:
        if self.found is None:
            self.found = self.find()
        return self.found

    def __repr__(self) -> str:
        return f"ArrayValue({self.node or self.source})"


class SizeValue(Value):
    """An integer that depends on symbolic sizes: a torch.SymInt. `tensors.size_node` computes it in the graph."""

    __slots__ = ("size",)

    def __init__(self, size: Any):
        super().__init__()
        self.size = size


class SliceValue(Value):
    __slots__ = ("start", "stop", "step")

    def __init__(self, start: Value, stop: Value, step: Value):
        super().__init__()
        self.start, self.stop, self.step = start, stop, step


class TextValue(Value):
    """A text that shows what tensors hold, or numbers that change between calls: `function(*args, **kwargs)`, called where it is needed.
    Where Python has to know it, its numbers become constants; a tensor in it breaks."""

    __slots__ = ("function", "args", "kwargs")

    def __init__(self, function: Callable[..., str], args: tuple[Value, ...], kwargs: dict[str, Value]):
        super().__init__()
        self.function, self.args, self.kwargs = function, args, kwargs

    @property
    def is_known(self) -> bool:
        return all(map(_is_known, (*self.args, *self.kwargs.values())))

    @property
    def value(self) -> str:
        if not self.is_known:
            raise Unsupported("TW104", "operator formatting on Tensor is not captured", "print the text or raise it, or compute with it outside")
        return self.function(*map(_known, self.args), **{name: _known(one) for name, one in self.kwargs.items()})

    items = value


def known_text(value: Value) -> Value:
    """The value, for those who have to know it: a text that no tensor holds anything of as a constant."""
    return Constant(value.value) if isinstance(value, TextValue) and value.is_known else value


def _is_known(part: Value) -> bool:
    """Whether no tensor holds anything that a text shows of it."""
    match part:
        case ListValue() | TupleValue():
            return all(map(_is_known, part.items))
        case TextValue():
            return part.is_known
        case SizeValue():
            return not holds_element(part.size)
        case _:
            return isinstance(part, Constant)


def _known(part: Value) -> Any:
    match part:
        case ListValue():
            return [_known(one) for one in part.items]
        case TupleValue():
            return part.cls(_known(one) for one in part.items)
        case SizeValue():
            return int(part.size) if isinstance(part.size, torch.SymInt) else float(part.size)
        case _:
            return part.value


def holds_element(size: Any) -> bool:
    """Whether a tensor holds the number, or it is made of such numbers."""
    node = size.node
    return node.is_element() if isinstance(node, FloatNode) else type(node) is SizeNode and node.facts.is_free(node.size)


def is_plain_size(size: Any) -> bool:
    """Whether it is an integer made of sizes and numbers found outside alone."""
    return isinstance(size, torch.SymInt) and type(size.node) is SizeNode and not holds_element(size)


class ListValue(Value):
    """A list (`cls` list or deque). `items` are Values; of one found outside all are wrapped and its length is guarded."""

    __slots__ = ("items", "cls", "options")

    def __init__(self, items: list[Value], source: Source | None = None, cls: type = list, options: dict[str, Value] | None = None):
        super().__init__(source)
        self.items, self.cls = items, cls
        self.options = options or {}

    def __repr__(self) -> str:
        return f"{self.cls.__name__}Value({self.items})"


class Unknown:
    """In place of the items of a list that only one side of a branch changed: items can be appended, whatever reads them breaks there."""

    def append(self, item: Value) -> None:
        pass

    def pop(self) -> None:
        pass

    def refuse(self, *args: Any) -> Any:
        raise Unsupported("TW103", "the value of a tensor is needed in Python: it decides what a list holds")

    __iter__ = __len__ = __getitem__ = __contains__ = __add__ = __bool__ = __setitem__ = __reversed__ = refuse
    copy = index = count = insert = refuse


class UnknownValue(Value):
    """An attribute that only one side of a branch wrote: whatever reads it breaks there."""


class UnreadList(ListValue):
    """A list or deque found outside (`real`) whose length changes between calls: it can be appended to, and read at places that are counted from its
    start or its end (see `unread`); whatever needs its whole content breaks there. `count` gives the length that it came with, `appended` are the items
    that followed, or None where these are not known, `dropped` how many left a full deque at its start. `places` are those that were read."""

    __slots__ = ("real", "refuse", "count", "appended", "dropped", "places")

    def __init__(self, source: Source, real: Any, options: dict[str, Value], refuse: Callable[[], Exception], count: Callable[[], Value]):
        Value.__init__(self, source)
        self.real, self.cls, self.options, self.refuse, self.count = real, type(real), options, refuse, count
        self.appended: tuple[Value, ...] | None = ()
        self.dropped = 0
        self.places: set[int] = set()

    @property
    def items(self) -> list[Value]:
        raise self.refuse()

    def __repr__(self) -> str:
        return "UnreadList()"


class TupleValue(Value):
    """A tuple, torch.Size, named tuple or structseq made of known items."""

    __slots__ = ("items", "cls")

    def __init__(self, items: tuple[Value, ...], source: Source | None = None, cls: type = tuple):
        super().__init__(source)
        self.items, self.cls = items, cls
        self.exposed = False

    def __repr__(self) -> str:
        return f"{self.cls.__name__}Value({self.items})"


@functools.lru_cache(maxsize=1024)
def is_named_tuple(cls: type) -> bool:
    """Whether instances are TupleValues: a named tuple that leaves all protocols of tuples alone. Others are objects with a tuple inside."""
    return cls.__base__ is tuple and hasattr(cls, "_fields") and not any(
        name[:2] == "__" == name[-2:] and isinstance(found, FunctionType) and not (found.__module__ or "").startswith(("collections", "namedtuple_"))
        for name, found in vars(cls).items())


class DictValue(Value):
    """A dict or OrderedDict, defaultdict; the content of a Counter. `items` maps a key (see `keys.key_of`) to (key Value, Value).

    One found outside is read key by key: `items` holds what was read or written, `removed` the real keys written away,
    `missing` keys known to be absent; `complete` says that every real key is in `items`, in order.
    """

    __slots__ = ("items", "cls", "real", "removed", "missing", "complete", "factory")

    def __init__(self, items: dict | None = None, source: Source | None = None, cls: type = dict, real: dict | None = None):
        super().__init__(source)
        self.items: dict[Any, tuple[Value, Value]] = items if items is not None else {}
        self.cls, self.real = cls, real
        self.removed: set = set()
        self.missing: set = set()
        self.complete = real is None
        self.factory: Value | None = None

    def item_source(self, key: Any) -> Source | None:
        return None if self.source is None else Item(self.source, key)

    def __repr__(self) -> str:
        return f"{self.cls.__name__}Value({self.items})"


class InstanceDict(DictValue):
    """The `__dict__` of an object found outside."""

    __slots__ = ("owner",)

    def __init__(self, owner: Source, real: dict):
        super().__init__({}, Attr(owner, "__dict__"), dict, real)
        self.owner = owner

    def item_source(self, key: Any) -> Source:
        return DictAttr(self.owner, key)


class SetValue(Value):
    """A set or frozenset: key → Value, as in a dict."""

    __slots__ = ("items", "cls", "found_order")

    def __init__(self, items: dict[Any, Value], source: Source | None = None, cls: type = set):
        super().__init__(source)
        self.found_order = tuple(items) if source is not None else None       # of one found outside
        self.items, self.cls = items if source is not None else in_set_order(items), cls
        if cls is frozenset:
            self.exposed = False


def in_set_order(items: dict[Any, Value]) -> dict[Any, Value]:
    """Members in the order in which a set made of them gives them: that of their hashes. Objects keep theirs, since it hangs on addresses."""
    if not all(map(_has_own_hash, items.values())):
        return items
    return {key: items[key] for key in set(items)}


def _has_own_hash(item: Value) -> bool:
    return isinstance(item, Constant | SizeValue | TextValue) or isinstance(item, TupleValue) and all(map(_has_own_hash, item.items))


class CellValue(Value):
    """A closure cell; `content` None where empty."""

    __slots__ = ("content", "real")

    def __init__(self, content: Value | None = None, source: Source | None = None, real: Any = None):
        super().__init__(source)
        self.content, self.real = content, real


class FunctionValue(Value):
    """A Python function. Of one found outside (`real`), defaults and cells are wrapped when they are first wanted."""

    __slots__ = ("code", "namespace", "name", "defaults", "keyword_defaults", "cells", "real", "attributes", "annotations")

    def __init__(self, code: CodeType, namespace: Any, name: str, source: Source | None = None, real: Any = None):
        super().__init__(source)
        self.code, self.namespace, self.name, self.real = code, namespace, name, real
        self.defaults: tuple[Value, ...] | None = () if real is None else None
        self.keyword_defaults: dict[str, Value] | None = {} if real is None else None
        self.cells: tuple[CellValue, ...] | None = () if real is None else None
        self.attributes: DictValue | None = None
        self.annotations: Value | None = None

    def __repr__(self) -> str:
        return f"FunctionValue({self.name})"


class MethodValue(Value):
    """A bound method: `function` is any callable Value, `owner` its first argument."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Value, owner: Value, source: Source | None = None):
        super().__init__(source)
        self.exposed = False
        self.function, self.owner = function, owner

    def __repr__(self) -> str:
        return f"MethodValue({self.function}, {self.owner})"


class CompiledValue(Value):
    """A compiled function or module found outside: used as what it was compiled from, passed on as itself."""

    __slots__ = ("cls", "original")

    def __init__(self, cls: type, original: Value, source: Source | None):
        super().__init__(source)
        self.cls, self.original = cls, original


class PartialValue(Value):
    """functools.partial."""

    __slots__ = ("function", "args", "kwargs")

    def __init__(self, function: Value, args: tuple[Value, ...], kwargs: dict[str, Value], source: Source | None = None):
        super().__init__(source)
        self.function, self.args, self.kwargs = function, args, kwargs


class TransformedValue(Value):
    """What a transform of torch.func makes of a function: `target(function, **options)`."""

    __slots__ = ("target", "function", "options")

    def __init__(self, target: Callable[..., Any], function: Value, options: dict[str, Value]):
        super().__init__()
        self.target, self.function, self.options = target, function, options


class HandledValue(Value):
    """What stands on the stack while an `except` block handles `error`: the exception handled before, which leaving the block puts back."""

    __slots__ = ("error",)

    def __init__(self, error: Value):
        super().__init__()
        self.error = error


class TracebackValue(Value):
    """One entry of a traceback: `frame` at instruction `index`, and the entry of what it called (`following`)."""

    __slots__ = ("frame", "index", "following")

    def __init__(self, frame: Any, index: int, following: Value):
        super().__init__()
        self.frame, self.index, self.following = frame, index, following


class PulledValue(Value):
    """What torch.func.vjp or linearize gives to call: `made` is the one for metadata, `node` gives that of the run."""

    __slots__ = ("made", "node")

    def __init__(self, made: Callable[..., Any], node: Any):
        super().__init__()
        self.exposed = False
        self.made, self.node = made, node


class SuperValue(Value):
    """super(start, owner): `owner` an instance or a class, lookups begin behind `start` in the MRO."""

    __slots__ = ("start", "owner")

    def __init__(self, start: type, owner: Value):
        super().__init__()
        self.start, self.owner = start, owner


RAISED_BARE = ".raised"     # slot of an exception raised where no frame of this capture handles another: Python may stand in an `except` outside


class ObjectValue(Value):
    """An instance of any other class. `attributes` is its instance dict, `slots` what member descriptors hold,
    `storage` the content of a builtin base class (dict, list, tuple, int, …), `args` those of an exception."""

    __slots__ = ("cls", "real", "attributes", "slots", "storage", "new_args")

    def __init__(self, cls: Constant, source: Source | None = None, real: Any = None):
        super().__init__(source)
        self.cls, self.real = cls, real
        self.attributes: DictValue | None = None
        self.slots: dict[str, Value] = {}
        self.storage: Value | None = None
        self.new_args: tuple[Value, ...] = ()

    def __repr__(self) -> str:
        return f"ObjectValue({self.cls.value.__name__})"


class IteratorValue(Value):
    """A builtin iterator made inside; one subclass per kind stands in `iterate`."""

    __slots__ = ()


class GeneratorValue(Value):
    """A generator made inside: a suspended symbolic frame. `running` guards against re-entry.
    `plays`: the builtin (filter, itertools.…) and its arguments where the frame is our own writing of that one."""

    __slots__ = ("frame", "started", "finished", "running", "plays")

    def __init__(self, frame: Any):
        super().__init__()
        self.frame = frame
        self.started = self.finished = self.running = False
        self.plays: tuple[Any, list[Value], dict[str, Value]] | None = None


class Thrown(Value):
    """In place of what is sent to a generator below a `yield from`: the error that it is to raise."""

    __slots__ = ("error",)

    def __init__(self, error: Value):
        super().__init__()
        self.error = error


class ViewValue(Value):
    """keys(), values() or items() of a dict: `kind` names which."""

    __slots__ = ("mapping", "kind")

    def __init__(self, mapping: DictValue, kind: str, source: Source | None = None):
        super().__init__(source)
        self.mapping, self.kind = mapping, kind

    @property
    def cls(self) -> type:
        return VIEW_TYPES[OrderedDict if issubclass(self.mapping.cls, OrderedDict) else dict][self.kind]


VIEW_TYPES = {cls: {kind: type(getattr(cls(), kind)()) for kind in ("keys", "values", "items")} for cls in (dict, OrderedDict)}
