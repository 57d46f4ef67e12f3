"""Real object + Source → Value, guarded. The only place where live objects become Values.

Constants are guarded by value or identity at once; containers by type and length or keys, their items when read; objects by type.
One object is one Value: a second way to it adds a `same_object` guard.
"""

from __future__ import annotations

import collections
import enum
import functools
import gc
import operator
import re
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes

from thruway.capture.breaks import unsupported
from thruway.capture.leaves import autograd_kind
from thruway.capture.state import Namespace, State, is_library
from thruway.capture.values.arrays import Memory
from thruway.capture.values.base import (
    FALSE, NONE, TRUE, ArrayValue, CellValue, CompiledValue, Constant, DictValue, FunctionValue, InstanceDict, ListValue, MethodValue,
    ObjectValue, PartialValue, SetValue, SizeValue, TensorValue, TupleValue, UnreadList, Value, VIEW_TYPES, ViewValue, is_named_tuple,
)
from thruway.capture.values.constants import from_python
from thruway.capture.values.overriding import FunctionsAsk, overrides
from thruway.core.errors import NotNow
from thruway.core.marks import ORIGINAL, STATIC, is_compiled_type, original_of
from thruway.core.sizes import mul, symbol
from thruway.frame.guard import Holds, TensorExpectation
from thruway.frame.plain import plain_tensor
from thruway.frame.source import (
    Attr, Cell, ClosureCell, Default, FunctionGlobal, Global, Item, Length, Local, MethodFunction, MethodSelf, PlainTensor, Proxied, Source, Viewed,
    is_buffer, root_of, tell,
)
from thruway.native.fallback import proxied_dict, viewed_dict
from thruway.shapes.floats import FloatInput, FloatNode, IntInputNode
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import comparable, is_symbolic, symint
from thruway.shapes.trace_tensor import TraceTensor, from_meta, meta_of, non_leaf

BY_VALUE = frozenset({int, float, complex, str, bytes, range, torch.device})
SIZE_LIMIT = 1 << 62
BY_IDENTITY = (
    type, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, types.ModuleType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType, torch.dtype, torch.layout, torch.memory_format,
    enum.Enum, re.Pattern, operator.itemgetter,
    operator.attrgetter, operator.methodcaller, torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace, torch._ops._Ops, types.CodeType,
    types.GenericAlias, types.UnionType, types.EllipsisType, types.NotImplementedType, functools._lru_cache_wrapper, property, staticmethod,
    classmethod, torch.finfo, torch.iinfo,
    numpy.dtype, numpy.ufunc, type(numpy.sum), numpy.finfo, numpy.iinfo,
)


def wrap(state: State, obj: Any, source: Source, guarded: bool = False) -> Value:
    """The Value of `obj`, found at `source`; `guarded` where a caller's guard already pins its identity."""
    if obj is None or obj is True or obj is False:
        if not guarded:
            state.guard("identity", source, obj)
        return NONE if obj is None else TRUE if obj else FALSE
    cls = type(obj)
    if cls in BY_VALUE:
        if state.drawn and cls in (int, float) and is_drawn(state, source):
            state.facts.drawn.add(source)
            return _number_input(state, obj, source)
        if state.dynamic and cls is int and (source, None) in state.dynamic and 2 <= obj < SIZE_LIMIT:
            return _size_input(state, obj, source)
        if state.dynamic and cls is float and (source, None) in state.dynamic:
            return _number_input(state, obj, source)
        if not guarded:
            state.guard("equal", source, obj)
        return Constant(obj, source)
    known = state.by_id.get(id(obj))
    if known is not None:
        if known.source is None:
            known.source = source
        elif known.source != source and not guarded:
            own_cell = obj if isinstance(known, CellValue) and isinstance(known.source, Cell) else None      # never another one
            state.guard(*("same_object", source, known.source) if own_cell is None else ("identity", source, own_cell))
        return known
    maker = WRAPPERS.get(cls) or _maker_for(cls)
    value = maker(state, obj, source, guarded)
    state.by_id[id(obj)] = value
    state.keep.append(obj)
    return value


def _size_input(state: State, obj: int, source: Source) -> SizeValue:
    """A number that changes between calls: a symbol that its guard binds. Symbols are at least 2, as traced sizes are."""
    known = state.number_inputs.get(source)
    if known is None:
        name = f"s{len(state.symbols)}"
        known = state.number_inputs[source] = SizeValue(symint(symbol(name), state.facts))
        known.source = source
        state.symbols[name] = (known, None)
        state.facts.hints[name], state.facts.numbers[name] = obj, source
        state.guard("size", source, symbol(name))
    return known


def is_drawn(state: State, source: Source | None) -> bool:
    """Whether it comes from a parameter of a continuation that holds what a random generator gave: another one at each call."""
    root = None if source is None else root_of(source)
    return isinstance(root, Local) and root.index in state.drawn


def _number_input(state: State, obj: int | float, source: Source) -> SizeValue:
    """A number found outside as an input of the graph, guarded by its type alone."""
    known = state.number_inputs.get(source)
    if known is None:
        state.guard("type", source, type(obj))
        expression = FloatInput(source)
        number = torch.SymInt(IntInputNode(expression, obj, state.facts)) if type(obj) is int else torch.SymFloat(FloatNode(expression, obj, state.facts))
        known = state.number_inputs[source] = SizeValue(number)
        known.source = source
    return known


def _maker_for(cls: type) -> Callable[..., Value]:
    """By base class, where the exact type is in no table."""
    if is_compiled_type(cls):
        return _wrap_compiled
    if issubclass(cls, torch.Tensor):
        return _wrap_tensor_subclass
    if issubclass(cls, BY_IDENTITY):
        return _wrap_identity
    if issubclass(cls, numpy.number | numpy.bool_):
        return _wrap_array
    if is_named_tuple(cls) or issubclass(cls, tuple) and cls.__module__.startswith("torch.return_types"):
        return _wrap_tuple
    return _wrap_object


def _wrap_compiled(state: State, obj: Any, source: Source, guarded: bool) -> Value:
    state.guard("type", source, type(obj))
    name = ORIGINAL if hasattr(type(obj), ORIGINAL) else "__wrapped__"
    return CompiledValue(type(obj), wrap(state, original_of(obj), Attr(source, name)), source)


def _wrap_identity(state: State, obj: Any, source: Source, guarded: bool) -> Value:
    if not guarded:
        state.guard("identity", source, obj)
    return Constant(obj, source)


def _wrap_builtin(state: State, obj: Any, source: Source, guarded: bool) -> Value:
    """A builtin function; one bound to an object becomes a method of that object's type."""
    owner = getattr(obj, "__self__", None)
    if not isinstance(owner, (list, dict, set, collections.deque, torch.Tensor)):
        return _wrap_identity(state, obj, source, guarded)
    state.guard("type", source, type(obj))
    descriptor = getattr(type(owner), obj.__name__)
    return MethodValue(Constant(descriptor), wrap(state, owner, Attr(source, "__self__")), source)


def _wrap_tensor(state: State, obj: torch.Tensor, source: Source, guarded: bool) -> Value:
    state.guard("type", source, type(obj))
    value = TensorValue(None, None, source, obj)
    value.make_trace = functools.partial(_trace_input, state, value, source)
    return value


def _trace_input(state: State, value: TensorValue, source: Source, static: tuple[int, ...] | None = None) -> TraceTensor:
    """Guards a tensor's metadata and gives its trace; `static`: dimensions that the user fixed, where the tensor itself does not tell."""
    obj = value.real
    if obj.layout is not torch.strided or obj.is_nested:
        raise unsupported(state, "TW108", "nested" if obj.is_nested else obj.layout)
    meta = meta_of(obj)
    static = getattr(obj, STATIC, ()) if static is None else static
    dims = [dim for dim in range(obj.dim()) if (source, dim) in state.dynamic and obj.shape[dim] > 1 and dim not in static]
    if dims and is_dense(meta):
        meta = symbolic_meta(state, value, meta, dims)
    keys = torch._C._dispatch_keys(obj).raw_repr()
    state.guard("tensor", source, TensorExpectation(type(obj), meta.dtype, meta.device, meta.requires_grad, meta.sizes, meta.strides, keys))
    state.guards.pop(("type", source), None)                # the tensor guard says it too
    trace = make_trace(state, obj, comparable(meta, state.facts) if is_symbolic(meta) else meta)
    state.by_trace[id(trace)] = value
    if not obj.dim() and obj.dtype in COUNTS and meta.device == "cpu" and is_buffer(source) and (source, None) not in state.dynamic:
        with torch._C._DisableTorchDispatch():
            trace.elements = obj.detach().clone()
        trace.assumed = (functools.partial(_assume_number, state, source, obj),)
    return trace


COUNTS = frozenset({torch.int64, torch.int32, torch.bool})


def _assume_number(state: State, source: Source, obj: torch.Tensor) -> bool:
    """Guards the number that a module keeps in a buffer, unless a tensor that may share its memory was written meanwhile."""
    if any(id(one.known_trace.root) in state.written for one in state.by_trace.values() if one.source is not None and one.known_trace is not None):
        return False
    with torch._C._DisableTorchDispatch():
        state.guard("answer", source, Holds(obj.item()))
    return True


def symbolic_meta(state: State, value: TensorValue, meta: TensorMeta, dims: list[int]) -> TensorMeta:
    """`meta` with a symbol for each of `dims`, and the strides that follow from them where the tensor is dense."""
    sizes = list(meta.sizes)
    strides = list(meta.strides)
    for dim in dims:
        name = f"s{len(state.symbols)}"
        state.symbols[name] = (value, dim)
        state.facts.hints[name] = meta.sizes[dim]
        sizes[dim] = symbol(name)
    step = 1
    for dim in _inner_first(meta):
        strides[dim] = step
        step = mul(step, sizes[dim])
    return replace(meta, sizes=tuple(sizes), strides=tuple(strides))


def _inner_first(meta: TensorMeta) -> list[int]:
    return sorted(range(len(meta.sizes)), key=lambda dim: (meta.strides[dim], meta.sizes[dim]))


def is_dense(meta: TensorMeta) -> bool:
    """Whether the strides follow from the sizes: each is the product of the sizes inside."""
    step = 1
    for dim in _inner_first(meta):
        if meta.strides[dim] != step:
            return False
        step *= meta.sizes[dim]
    return True


def make_trace(state: State, tensor: torch.Tensor, meta: TensorMeta) -> TraceTensor:
    """Metadata that autograd can run over; a non-leaf where the real tensor is one, so that in-place writes are allowed alike, and a view of a
    leaf, whose writes torch refuses, where it is such a view."""
    try:
        kind = autograd_kind(tensor)
    except RuntimeError:                                        # made without gradients, of a base that was written with them
        raise unsupported(state, "TW117", "the base of a view", "it; autograd refuses the view", hint="make the view again") from None
    if kind == "leaf":
        return from_meta(meta)
    if kind == "view of a leaf":
        with torch.enable_grad(), _disable_current_modes():
            return torch.ops.aten.alias.default(from_meta(meta))
    return non_leaf(from_meta(replace(meta, requires_grad=False)))


def _wrap_tensor_subclass(state: State, obj: torch.Tensor, source: Source, guarded: bool) -> Value:
    """One that only marks its class computes like a tensor. What others do is their own code's: they are passed on, and whatever computes with
    them breaks."""
    cls = type(obj)
    if state.may_wait and is_lazy(obj):
        raise NotNow(f"{tell(source)} has no shape yet, and gets one where it is used first")
    if _computes_plainly(cls):
        return _wrap_tensor(state, obj, source, guarded)
    value = _wrap_object(state, obj, source, guarded)
    plain = plain_tensor(obj) if cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ else None
    if plain is not None and plain.layout is torch.strided:
        plain = value.storage = TensorValue(None, None, PlainTensor(source), plain)
        plain.make_trace = functools.partial(_trace_input, state, plain, PlainTensor(source), vars(obj).get(STATIC, ()))
    return value


@functools.lru_cache(maxsize=256)
def _computes_plainly(cls: type) -> bool:
    """Whether torch's functions take no notice of the class, as with Parameter, and it changes no method of tensors."""
    own = [base for base in cls.__mro__[:cls.__mro__.index(torch.Tensor)] if base not in (torch.nn.Parameter, torch.nn.Buffer)]
    return cls.__torch_function__ is torch.nn.Parameter.__torch_function__ and cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ \
        and not any(hasattr(torch.Tensor, name) and name not in MAKES for base in own for name in vars(base))


MAKES = frozenset("__module__ __doc__ __dict__ __weakref__ __new__ __init__ __torch_function__".split())


def _wrap_array(state: State, obj: Any, source: Source, guarded: bool) -> Value:
    """An array or scalar of numpy's. What it looks like is guarded when it is first wanted."""
    state.guard("type", source, type(obj))
    value = ArrayValue(None, Memory(is_own=False), None, source, type(obj))
    value.find = functools.partial(_find_array, state, obj, source)
    return value


def _find_array(state: State, obj: Any, source: Source) -> Any:
    if obj.dtype.kind not in "biufc" or not obj.dtype.isnative:
        raise unsupported(state, "TW101", f"numpy with elements of {obj.dtype}")
    if isinstance(obj, numpy.ndarray):
        state.guard("identity", Attr(source, "dtype"), obj.dtype)
        state.guard("equal", Attr(source, "shape"), obj.shape)
        state.guard("equal", Attr(source, "strides"), obj.strides)
        state.guard("equal", Attr(Attr(source, "flags"), "writeable"), obj.flags.writeable)
    return obj


def _wrap_list(state: State, obj: list, source: Source, guarded: bool) -> Value:
    cls, count = type(obj), len(obj)
    state.guard("type", source, cls)
    options = {"maxlen": wrap(state, obj.maxlen, Attr(source, "maxlen"))} if cls is collections.deque and obj.maxlen is not None else {}
    is_full = "maxlen" in options and count == obj.maxlen                          # it stays so
    if state.dynamic and (Length(source, cls.__name__), None) in state.dynamic and not is_full:
        return UnreadList(source, obj, options, lambda: unsupported(state, "TW119", tell(source)), lambda: number_of_items(state, source, cls, count))
    state.guard("length", source, len(obj))
    value = ListValue([], source, cls, options)
    state.by_id[id(obj)] = value
    value.items = [wrap(state, item, Item(source, i)) for i, item in enumerate(obj)]
    return value


def number_of_items(state: State, container: Source, cls: type, count: int) -> Value:
    """The length of a container found outside, which changes between calls."""
    source = Length(container, cls.__name__)
    if count >= 2:
        return _size_input(state, count, source)
    state.guard("equal", source, count)
    return Constant(count)


def _wrap_tuple(state: State, obj: tuple, source: Source, guarded: bool) -> Value:
    state.guard("type", source, type(obj))
    state.guard("length", source, len(obj))
    return TupleValue(tuple(wrap(state, item, Item(source, i)) for i, item in enumerate(obj)), source, type(obj))


def _wrap_dict(state: State, obj: dict, source: Source, guarded: bool) -> Value:
    state.guard("type", source, type(obj))
    value = DictValue({}, source, type(obj), obj)
    if isinstance(obj, collections.defaultdict):
        value.factory = wrap(state, obj.default_factory, Attr(source, "default_factory"))
    return value


def _wrap_view(state: State, obj: Any, source: Source, guarded: bool) -> Value:
    """A view of a dict, by its name: of an OrderedDict's the type has "odict_" in front."""
    state.guard("type", source, type(obj))
    mapping = wrap(state, viewed_dict(obj), Viewed(source))
    content = mapping.storage if isinstance(mapping, ObjectValue) else mapping
    return ViewValue(content, type(obj).__name__.partition("_")[2], source)


def _wrap_proxy(state: State, obj: types.MappingProxyType, source: Source, guarded: bool) -> Value:
    """A read-only view of a dict is an object with that dict inside; over another mapping, one that nobody looks into."""
    value = _wrap_object(state, obj, source, guarded)
    if isinstance(gc.get_referents(obj)[0], dict):
        inside = wrap(state, proxied_dict(obj), Proxied(source))
        value.storage = inside.storage if isinstance(inside, ObjectValue) else inside
    return value


def _wrap_set(state: State, obj: set, source: Source, guarded: bool) -> Value:
    """Sets are guarded whole; members must be constants."""
    members = {}
    for member in obj:
        if not _is_member(member):
            raise unsupported(state, "TW114", type(member).__name__)
        members[member] = from_python(state, member)
    state.guard("equal", source, type(obj)(obj))
    state.guard("type", source, type(obj))
    return SetValue(members, source, type(obj))


def _is_member(member: Any) -> bool:
    if type(member) in (tuple, torch.Size):
        return all(map(_is_member, member))
    return type(member) in BY_VALUE or isinstance(member, (type, torch.dtype, enum.Enum, bool)) or member is None


def _wrap_function(state: State, obj: types.FunctionType, source: Source, guarded: bool) -> Value:
    if not (guarded and is_library(obj.__code__.co_filename)):         # the same function may be given other code, by a hot reload say
        state.guard("code", source, obj.__code__)
    return FunctionValue(obj.__code__, namespace_of(state, obj, source), obj.__name__, source, obj)


def namespace_of(state: State, function: types.FunctionType, source: Source) -> Namespace:
    """The globals of a function found outside, by the name of the module that owns them where there is one."""
    real = function.__globals__
    space = state.namespaces.get(id(real))
    if space is None:
        name = real.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and module.__dict__ is real:
            space = Namespace(real, functools.partial(module_global, name), name)
        else:
            space = Namespace(real, functools.partial(FunctionGlobal, source), source=source)
        state.namespaces[id(real)] = space
    return space


def module_global(module: str, name: str) -> Source:
    return Global(name, module)


def _wrap_method(state: State, obj: types.MethodType, source: Source, guarded: bool) -> Value:
    state.guard("type", source, types.MethodType)
    return MethodValue(wrap(state, obj.__func__, MethodFunction(source)), wrap(state, obj.__self__, MethodSelf(source)), source)


def _wrap_partial(state: State, obj: functools.partial, source: Source, guarded: bool) -> Value:
    state.guard("type", source, functools.partial)
    function = wrap(state, obj.func, Attr(source, "func"))
    args = wrap(state, obj.args, Attr(source, "args"))
    names = tuple(obj.keywords)
    keywords = Attr(source, "keywords")
    state.guard("dict_keys", keywords, names)
    return PartialValue(function, args.items, {n: wrap(state, obj.keywords[n], Item(keywords, n)) for n in names}, source)


def _wrap_object(state: State, obj: Any, source: Source, guarded: bool) -> Value:
    """Any other object: its exact type is guarded; attributes are guarded when read."""
    cls = type(obj)
    state.guard("type", source, cls)
    value = ObjectValue(state.class_of(cls, source), source, obj)
    if overrides(cls):
        state.overrides = True
        state.guard("answer", source, FunctionsAsk(not state.is_function_off))
    if issubclass(cls, BaseException):
        value.new_args = wrap(state, obj.args, Attr(source, "args")).items
    for base, storage in STORAGE.items():
        if issubclass(cls, base) and (base in (dict, list, tuple) or cls.__flags__ & MADE_IN_PYTHON):     # numpy's scalars compute in their own way
            value.storage = storage(state, obj, source)
            break
    return value


def _dict_storage(state: State, obj: dict, source: Source) -> Value:
    base = next(b for b in type(obj).__mro__ if b in (collections.defaultdict, collections.OrderedDict, collections.Counter, dict))
    value = DictValue({}, source, base, obj)
    if isinstance(obj, collections.defaultdict):
        value.factory = wrap(state, obj.default_factory, Attr(source, "default_factory"))
    return value


def _list_storage(state: State, obj: list, source: Source) -> Value:
    state.guard("length", source, list.__len__(obj))
    return ListValue([wrap(state, item, Item(source, i)) for i, item in enumerate(list.__iter__(obj))], source)


def _tuple_storage(state: State, obj: tuple, source: Source) -> Value:
    state.guard("length", source, tuple.__len__(obj))
    return TupleValue(tuple(wrap(state, item, Item(source, i)) for i, item in enumerate(tuple.__iter__(obj))), source)


def _scalar_storage(base: type) -> Callable[[State, Any, Source], Value]:
    def storage(state: State, obj: Any, source: Source) -> Value:
        plain = base(obj) if base is not str else str.__str__(obj)
        state.guard("equal", source, plain)
        return Constant(plain)
    return storage


def _wrap_cell(state: State, obj: types.CellType, source: Source, guarded: bool) -> Value:
    """A cell that is itself an argument, as continuations get them."""
    state.guard("type", source, types.CellType)
    return CellValue(None, source, obj)


MADE_IN_PYTHON = 1 << 9      # Py_TPFLAGS_HEAPTYPE
STORAGE: dict[type, Callable[[State, Any, Source], Value]] = {
    dict: _dict_storage, list: _list_storage, tuple: _tuple_storage,
    int: _scalar_storage(int), float: _scalar_storage(float), str: _scalar_storage(str),
}

WRAPPERS: dict[type, Callable[..., Value]] = {
    torch.Tensor: _wrap_tensor, torch.nn.Parameter: _wrap_tensor, torch.nn.Buffer: _wrap_tensor,
    numpy.ndarray: _wrap_array, list: _wrap_list, collections.deque: _wrap_list, tuple: _wrap_tuple, torch.Size: _wrap_tuple,
    dict: _wrap_dict, collections.OrderedDict: _wrap_dict, collections.defaultdict: _wrap_dict,
    set: _wrap_set, frozenset: _wrap_set, **{view: _wrap_view for views in VIEW_TYPES.values() for view in views.values()},
    types.FunctionType: _wrap_function, types.MethodType: _wrap_method, functools.partial: _wrap_partial,
    types.BuiltinFunctionType: _wrap_builtin, types.CellType: _wrap_cell,
    types.MethodWrapperType: _wrap_builtin, types.MappingProxyType: _wrap_proxy,
    type: _wrap_identity, types.ModuleType: _wrap_identity,
}


def function_defaults(state: State, value: FunctionValue) -> tuple[Value, ...]:
    """Positional defaults, wrapped when first wanted."""
    if value.defaults is None:
        real = value.real.__defaults__ or ()
        value.defaults = tuple(wrap(state, d, Default(value.source, i)) for i, d in enumerate(real))
    return value.defaults


def function_keyword_defaults(state: State, value: FunctionValue) -> dict[str, Value]:
    if value.keyword_defaults is None:
        real = value.real.__kwdefaults__ or {}
        value.keyword_defaults = {name: wrap(state, d, Default(value.source, None, name)) for name, d in real.items()}
    return value.keyword_defaults


def function_cells(state: State, value: FunctionValue) -> tuple[CellValue, ...]:
    """Closure cells of a function found outside: one CellValue per real cell, contents wrapped when read."""
    if value.cells is None:
        real = value.real.__closure__ or ()
        value.cells = tuple(cell_value(state, cell, Item(Attr(value.source, "__closure__"), i)) for i, cell in enumerate(real))
    return value.cells


def content_source(cell: CellValue) -> Source:
    """Where the content of a cell found outside stands."""
    match cell.source:
        case Cell():
            return cell.source
        case Item(Attr(function, "__closure__"), int(index)):
            return ClosureCell(function, index)
        case _:
            return Attr(cell.source, "cell_contents")


def cell_value(state: State, cell: types.CellType, source: Source) -> CellValue:
    """The Value of a cell; `source` finds the cell itself, but for a Cell of the compiled function, which finds its content."""
    known = state.by_id.get(id(cell))
    if known is None:
        known = state.by_id[id(cell)] = CellValue(None, source, cell)
        state.keep.append(cell)
    elif known.source != source and isinstance(known.source, Cell):
        state.guard("identity", source, cell)               # the compiled function's own cells never change
    elif known.source != source:
        state.guard("same_object", source, known.source)
    return known


def instance_dict(state: State, value: ObjectValue) -> DictValue | None:
    """The `__dict__` of an object as a value; None where its type has none."""
    if value.attributes is None and _has_dict(value.cls.value):
        if value.real is None:
            value.attributes = DictValue()
        else:
            value.attributes = InstanceDict(value.source, object.__getattribute__(value.real, "__dict__"))
        value.attributes.age = value.age
    return value.attributes


@functools.lru_cache(maxsize=4096)
def _has_dict(cls: type) -> bool:
    return bool(cls.__dictoffset__)
