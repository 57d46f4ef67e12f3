"""Torch calls over trace tensors: run for metadata, recorded as a node. Which callables are torch's, and which of them must not run."""

from __future__ import annotations

import enum
import functools
import math
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch
import torch.nn.functional
from torch.utils._device import _device_constructors

from thruway.capture.breaks import unsupported
from thruway.capture.caught import refuse_caught_error
from thruway.capture.eager_errors import eager_error
from thruway.capture.leaves import guard_kind
from thruway.capture.read_by_torch import with_number
from thruway.capture.state import Input, State
from thruway.capture.torch_warnings import torch_warnings
from thruway.capture.values.base import (
    ArrayValue, Constant, DictValue, ListValue, ObjectValue, SizeValue, SliceValue, TensorValue, TextValue, TupleValue, Value,
)
from thruway.capture.values.constants import from_python, make_tuple, specialize
from thruway.capture.values.errors import raise_real
from thruway.capture.values.overriding import may_ask, modes_on
from thruway.core.errors import Unsupported
from thruway.core.sizes import FloorDiv, Max, Min, Mod, Size, SizeLike, Symbol, as_symbol
from thruway.frame.source import show
from thruway.shapes.booleans import OpenNode
from thruway.shapes.floats import Element, FloatInput, FloatNode, IntElementNode, WholeNode
from thruway.shapes.nodes import make_node
from thruway.shapes.refuse import ILL_SHAPED, NumberWanted
from thruway.shapes.symbolic import bare
from thruway.shapes.trace_tensor import TraceTensor, non_leaf

METHOD_REFUSALS = frozenset(
    "numpy tolist item data_ptr backward register_hook register_post_accumulate_grad_hook retain_grad share_memory_ storage untyped_storage "
    "__dlpack__ __dlpack_device__ __repr__ __reduce__ __reduce_ex__ __len__ __bool__ __iter__ __contains__ __array__ __array_wrap__ apply_ map_ "
    "map2_ is_shared __deepcopy__ __copy__ __format__ __dir__ __setstate__ __index__ __int__ __float__ __complex__ __hash__ __init__ __new__ "
    "_typed_storage type_as_sparse set_ record_stream _make_subclass as_subclass __cuda_array_interface__ requires_grad_ detach_ is_conj is_neg "
    "resolve_conj resolve_neg "
    "__torch_function__ __torch_dispatch__ _backward_hooks is_nonzero equal __init_subclass__ __getattribute__ __setattr__ __delattr__".split())
FUNCTION_REFUSALS = frozenset(
    "from_numpy from_file frombuffer as_tensor asarray is_nonzero equal allclose is_storage set_printoptions compile save load seed manual_seed "
    "get_device_module vmap set_default_dtype is_conj is_neg resolve_conj resolve_neg".split())


@functools.lru_cache(maxsize=1)
def torch_callables() -> dict[Any, str]:
    """Callable → "function" or the method's name: what is called on trace tensors and recorded."""
    table: dict[Any, str] = {}
    for space in (torch._C._VariableFunctions, torch._C._nn, torch._C._fft, torch._C._linalg, torch._C._special, torch.functional,
                  torch.nn.functional, torch.linalg, torch.fft, torch.special, torch):
        for name in dir(space):
            found = getattr(space, name, None)
            if _is_function_of(space, name, found):
                table.setdefault(found, "function")
    for name, found in [*vars(torch._C.TensorBase).items(), *vars(torch.Tensor).items()]:
        if isinstance(found, types.MethodDescriptorType | types.FunctionType | types.WrapperDescriptorType) and name not in METHOD_REFUSALS:
            table[found] = name
    for symbol in OPERATORS:
        table.setdefault(symbol, "function")
    return table


def _is_function_of(space: Any, name: str, found: Any) -> bool:
    if name in FUNCTION_REFUSALS or name.startswith("__"):
        return False
    if space is torch:
        return isinstance(found, types.BuiltinFunctionType) and found.__self__ is torch._C._VariableFunctions or name == "tensor"
    if isinstance(found, types.FunctionType):
        return space in (torch.functional, torch.nn.functional) and found.__module__ in ("torch.functional", "torch.nn.functional", "torch._jit_internal")
    return isinstance(found, types.BuiltinFunctionType)


OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.matmul, operator.and_,
    operator.or_, operator.xor, operator.lshift, operator.rshift, operator.neg, operator.pos, operator.invert, operator.eq, operator.ne,
    operator.lt, operator.le, operator.gt, operator.ge, operator.getitem, operator.abs, operator.iadd, operator.isub, operator.imul,
    operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, operator.imatmul, operator.iand, operator.ior, operator.ixor,
)


TAKES_FLOATS = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.eq, operator.ne,
    operator.lt, operator.le, operator.gt, operator.ge,
})


@functools.cache
def _operators() -> dict[Any, Any]:
    """The operators that functions and methods of torch stand for: as operators they take floats that change between calls."""
    names = {"add": "add", "sub": "sub", "subtract": "sub", "mul": "mul", "multiply": "mul", "div": "truediv", "divide": "truediv", "true_divide": "truediv",
             **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge")}}
    table = {getattr(owner, name): getattr(operator, symbol) for name, symbol in names.items() for owner in (torch, torch.Tensor)}
    in_place = {name: symbol for name, symbol in names.items() if symbol in ("add", "sub", "mul", "truediv")}
    return table | {getattr(torch.Tensor, f"{name}_"): getattr(operator, f"i{symbol}") for name, symbol in in_place.items()}


def is_float_input(value: Value) -> bool:
    """Whether it is a number that changes between calls, and no size."""
    return isinstance(value, SizeValue) and isinstance(value.size.node, FloatNode)


def is_torch_callable(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    try:
        return target in torch_callables()
    except TypeError:
        return False


class NotTensorArguments(Exception):
    """Internal: an argument is neither tensor, constant, size nor a container of them."""


def call_torch(state: State, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Runs `target` on trace tensors and records it. None where an argument is of another kind (a Python callable, say)."""
    if state.overrides and (modes_on(state) or may_ask(state, (*args, *kwargs.values()))):
        raise unsupported(state, "TW108", f"given to {getattr(target, '__name__', target)}")
    if state.devices and target in _device_constructors() and _has_no_device(kwargs):
        kwargs = kwargs | {"device": Constant(state.devices[-1])}
    if not kwargs and len(args) == 2 and isinstance(args[0], TensorValue) and is_float_input(args[1]):
        target = _operators().get(target, target)
    if target not in TAKES_FLOATS:
        args, kwargs = [without_floats(state, a) for a in args], {k: without_floats(state, v) for k, v in kwargs.items()}
    else:
        args = [specialize(state, a) if isinstance(a, SizeValue) and isinstance(a.size.node, WholeNode) else a for a in args]
    try:
        trace_args = [to_trace(a) for a in args]
        trace_kwargs = {k: to_trace(v) for k, v in kwargs.items()}
    except NotTensorArguments:
        return None
    writes = state.writes
    try:
        result = run_trace(state, target, trace_args, trace_kwargs)
    except NumberWanted as wanted:
        changed = with_number(state, wanted.tensor, args, kwargs) if state.writes == writes else None
        if changed is None:
            raise
        return call_torch(state, target, *changed)
    recorded = record_result(state, target, args, kwargs, result, state.writes != writes)
    if state.is_hanging:
        refuse_caught_error(state, getattr(target, "__name__", str(target)))
    return recorded


# torch 2.11 takes products of batches apart by the numbers behind their sizes, which fixes these.
PRODUCTS = frozenset({torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, operator.matmul})


def _is_symbolic(trace: Any) -> bool:
    return isinstance(trace, TraceTensor) and trace._symbolic


def _whole(target: Any, args: list) -> Any:
    """A composite operator by its rule alone."""
    with torch._C._AutoDispatchBelowAutograd():
        made = target(*args)
    return non_leaf(made) if torch.is_grad_enabled() and any(one.requires_grad for one in args) else made


def _repeats_elements(trace: TraceTensor) -> bool:
    """Whether it is a tensor that shows one element in several places: many operators refuse to write it."""
    return not trace._symbolic and any(stride == 0 and size > 1 for size, stride in zip(trace.shape, trace.stride()))


def _may_be_refused(arguments: Iterable[Any]) -> bool:
    """Whether a write over these arguments may be refused for the memory that they show: an element twice, or two views of one memory."""
    found = {id(one): one for one in arguments if isinstance(one, TraceTensor) and not one._symbolic}.values()
    return any(map(_repeats_elements, found)) or len({id(one.root) for one in found}) < len(found)


def _has_no_device(kwargs: dict[str, Value]) -> bool:
    given = kwargs.get("device")
    return given is None or isinstance(given, Constant) and given.value is None


def without_floats(state: State, value: Value) -> Value:
    """The argument, with a float that changes between calls as a constant: only arithmetic takes it as it is."""
    if isinstance(value, SizeValue) and isinstance(value.size.node, IntElementNode):
        return SizeValue(torch.SymInt(value.size.node.as_size()))
    if isinstance(value, SizeValue) and isinstance(value.size.node, FloatNode):
        return specialize(state, value)
    if state.drawn and isinstance(value, SliceValue):
        return SliceValue(*(without_floats(state, one) for one in (value.start, value.stop, value.step)))
    if isinstance(value, ListValue | TupleValue) and (state.drawn or any(isinstance(one, SizeValue) for one in value.items)):
        items = [without_floats(state, one) for one in value.items]
        return ListValue(items) if isinstance(value, ListValue) else TupleValue(tuple(items), cls=value.cls)
    return value


def run_trace(state: State, target: Any, args: list, kwargs: dict) -> Any:
    """The call over metadata. What eager raises too is raised in the user's code; other refusals leave the stretch to eager."""
    if _reads_memory(target, args):
        raise unsupported(state, "TW101", f"{target.__name__} over packed sequences")
    if _is_too_large((args, kwargs)) and (raised := eager_error(target, args, kwargs)) is not None:
        raise_real(state, raised)
    deferred, checked, writes = state.facts.deferred, state.facts.checked, state.writes
    state.is_hanging = False
    try:
        with torch_warnings(state):
            result = _whole(target, args) if target in PRODUCTS and any(map(_is_symbolic, args)) else target(*args, **kwargs)
        state.is_opaque = state.facts.deferred != deferred
        state.is_hanging |= state.facts.checked != checked
    except NumberWanted:
        raise
    except Unsupported as error:
        reason = error.reason
        if reason.code == ILL_SHAPED and (raised := eager_error(target, args, kwargs)) is not None:
            raise_real(state, raised)
        raise Unsupported(reason.code, reason.what, reason.hint, reason.where or state.where()) from error
    except Exception as error:
        if (raised := eager_error(target, args, kwargs)) is not None:
            if not _is_of_autograd(error):
                raise_real(state, raised)
            for one in (*args, *kwargs.values()):
                if isinstance(one, TraceTensor):
                    guard_kind(state, one)
            raise_real(state, error)
        name = getattr(target, "__name__", str(target))
        raise unsupported(state, "TW112", name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    if state.writes != writes and _may_be_refused((*args, *kwargs.values())):
        if (raised := eager_error(target, args, kwargs)) is not None:
            raise_real(state, raised)
    return result


def _is_of_autograd(error: Exception) -> bool:
    """Whether autograd refused a write: it knows of traces, but not of stand-ins, which operator made a view."""
    text = str(error) if type(error) is RuntimeError else ""
    return ("modified inplace" in text or "in-place operation" in text) and "custom Function" not in text


def _is_too_large(arguments: object) -> bool:
    """Whether a number among the arguments does not fit the dtype of a tensor among them: many operators then refuse, but not over metadata."""
    numbers: list[float] = []
    dtypes: set[torch.dtype] = set()
    waiting = [arguments]
    while waiting:
        one = waiting.pop()
        if isinstance(one, TraceTensor):
            dtypes.add(one.dtype)
        elif isinstance(one, torch.dtype):
            dtypes.add(one)
        elif type(one) is int or type(one) is float:
            numbers.append(one)
        elif isinstance(one, list | tuple | dict):
            waiting += one.values() if isinstance(one, dict) else one
    largest = max((abs(one) for one in numbers if math.isfinite(one)), default=0)
    return largest > LEAST_LIMIT and any(largest > _limit(dtype) for dtype in dtypes)


LEAST_LIMIT = 127


@functools.cache
def _limit(dtype: torch.dtype) -> float:
    if dtype is torch.bool:
        return math.inf
    return torch.finfo(dtype).max if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).max


def _reads_memory(target: Any, args: list) -> bool:
    """Whether it reads `batch_sizes` of a packed sequence, in C++ and below all that tracing sees: there is no memory to read."""
    name = getattr(target, "__name__", "")
    return name in PACKED or (name in RECURRENT and len(args) > 3 and isinstance(args[3], list | tuple))


PACKED = frozenset({"_pack_padded_sequence", "_pad_packed_sequence"})
RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


def record_result(state: State, target: Any, args: list[Value], kwargs: dict[str, Value], result: Any, wrote: bool) -> Value:
    """The result as a Value; a node where it holds tensors or sizes are not all known, else a plain constant. `wrote`: an operator wrote."""
    if not holds_tensor(result):
        if wrote or result is None:
            add_node(state, target, args, kwargs)
        return from_python(state, result)
    if isinstance(result, TraceTensor):
        known = state.by_trace.get(id(result))
        if known is not None:
            if not wrote and getattr(target, "__name__", "") in GIVES_BACK:
                return known
            add_node(state, target, args, kwargs)
            return known
    node = add_node(state, target, args, kwargs)
    return result_value(state, node, result)


# Calls that may give back their input and then did nothing, unless they were seen to write.
GIVES_BACK = frozenset("contiguous to float half double bfloat16 int long cpu cuda type expand_as reshape view_as type_as positive resolve_conj "
                       "resolve_neg __pos__ pos coalesce dropout alpha_dropout".split())


def holds_tensor(result: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return True
    return isinstance(result, tuple | list) and any(holds_tensor(r) for r in result)


def result_value(state: State, node: torch.fx.Node, result: Any) -> Value:
    """Values of what a node gives; items of tuples through getitem nodes."""
    node.meta["example_value"] = result
    if isinstance(result, torch.Tensor):
        known = state.by_trace.get(id(result))
        if known is not None:
            return known
        value = TensorValue(result, node)
        state.by_trace[id(result)] = value
        state.keep.append(result)
        _bind_numbers(state, value)
        return value
    if isinstance(result, tuple | list):
        items = []
        for i, item in enumerate(result):
            part = make_node(state.graph, "call_function", operator.getitem, (node, i))
            part.meta["line"] = node.meta["line"]
            items.append(result_value(state, part, item))
        return ListValue(items) if isinstance(result, list) else TupleValue(tuple(items), cls=type(result))
    if type(result) is dict and holds_tensor(list(result.values())):
        pairs = {}
        for key, item in result.items():
            part = make_node(state.graph, "call_function", operator.getitem, (node, key))
            part.meta["line"] = node.meta["line"]
            pairs[key] = (from_python(state, key), result_value(state, part, item))
        return DictValue(pairs)
    return from_python(state, result)


def _bind_numbers(state: State, value: TensorValue) -> None:
    """Sizes that depend on elements are read from the first tensor that has them."""
    if state.facts.unbacked:
        for dim, size in enumerate(value.trace.meta.sizes):
            name = as_symbol(size)
            if name is None or name.name not in state.facts.unbacked or name.name in state.facts.elements:
                continue
            if name.name not in state.symbols or state.symbols[name.name][0].node._erased:
                state.symbols[name.name] = value, dim


def add_node(state: State, target: Any, args: list[Value], kwargs: dict[str, Value]) -> torch.fx.Node:
    """One call in the graph: methods as call_method, everything else as call_function."""
    fx_args = tuple([to_node(state, a) for a in args])
    fx_kwargs = {k: to_node(state, v) for k, v in kwargs.items()}
    kind = "function"
    if not isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        kind = target.__name__ if target in READS_NUMBERS else torch_callables().get(target, "function")
    if kind == "function":
        node = make_node(state.graph, "call_function", target, fx_args, fx_kwargs)
    elif kind in METHOD_OPERATORS:
        node = make_node(state.graph, "call_function", METHOD_OPERATORS[kind], fx_args, fx_kwargs)
    else:
        node = make_node(state.graph, "call_method", kind, fx_args, fx_kwargs)
    node.meta["line"] = state.where()
    if state.is_opaque:
        node.meta["opaque"], state.is_opaque = True, False
        if state.sides:
            state.sides[-1].unselectable = "an operator that may raise runs only where it is asked for"
    return node


READS_NUMBERS = (torch.Tensor.item, torch.Tensor.tolist)
METHOD_OPERATORS: dict[str, Callable[..., Any]] = {"__getitem__": operator.getitem, "__setitem__": operator.setitem}


def to_trace(value: Value) -> Any:
    """What torch gets at capture: trace tensors, numbers, SymInts, containers of them."""
    match value:
        case TensorValue():
            return value.trace
        case Constant():
            if isinstance(value.value, types.FunctionType | types.ModuleType):
                raise NotTensorArguments
            return value.value.item() if isinstance(value.value, numpy.generic) else value.value
        case SizeValue():
            return value.size if type(value.size) is not torch.SymBool else value.size.node.fix()
        case TextValue():
            return value.value
        case TupleValue():
            return make_tuple(value.cls, [to_trace(item) for item in value.items])
        case ListValue():
            return [to_trace(item) for item in value.items]
        case SliceValue():
            return slice(to_trace(value.start), to_trace(value.stop), to_trace(value.step))
        case DictValue() if value.complete:
            return {to_trace(k): to_trace(v) for k, v in value.items.values()}
        case ObjectValue(storage=Constant()):
            return value.storage.value
        case ObjectValue(storage=TensorValue()):
            return value.storage.trace
        case _:
            raise NotTensorArguments


DTYPES = {int: torch.int64, float: torch.float64, bool: torch.bool}         # what Python's types mean as dtypes


def to_node(state: State, value: Value) -> Any:
    """What stands in the graph for an argument."""
    match value:
        case TensorValue():
            return tensor_node(state, value)
        case Constant():
            if isinstance(value.value, numpy.generic):
                return value.value.item()
            if isinstance(value.value, enum.Enum):
                return _content(value.value)
            return DTYPES[value.value] if type(value.value) is type and value.value in DTYPES else value.value
        case SizeValue():
            return size_node(state, value)
        case TupleValue():
            items = [to_node(state, item) for item in value.items]
            return tuple(items) if value.cls is torch.Size or value.cls.__module__.startswith("torch.return_types") else make_tuple(value.cls, items)
        case ListValue():
            return [to_node(state, item) for item in value.items]
        case SliceValue():
            return slice(to_node(state, value.start), to_node(state, value.stop), to_node(state, value.step))
        case DictValue():
            return {to_node(state, k): to_node(state, v) for k, v in value.items.values()}
        case ObjectValue(storage=Constant()):
            return value.storage.value
        case ObjectValue(storage=TensorValue()):
            return tensor_node(state, value.storage)
        case _:
            raise NotTensorArguments


def _content(member: enum.Enum) -> Any:
    """A member of an enum that is a number or a text too, as that: its own text means nothing in the graph's code."""
    return next((base.__new__(base, member) if base is not str else str.__str__(member) for base in (int, float, str) if isinstance(member, base)), member)


def tensor_node(state: State, value: TensorValue) -> torch.fx.Node:
    """The tensor's node; one found outside becomes an input when it is first used."""
    if value.node is None:
        value.node = _input_node(state, value)
        value.node.meta["example_value"] = value.trace
    return value.node


def array_node(state: State, value: ArrayValue) -> torch.fx.Node:
    """The array's node; one found outside becomes an input when it is first used."""
    if value.node is None:
        value.node = _input_node(state, value)
        value.node.meta["example_value"] = None
    return value.node


def _input_node(state: State, value: TensorValue | SizeValue | ArrayValue) -> torch.fx.Node:
    last = state.inputs[-1].node if state.inputs else state.graph._root
    with state.graph.inserting_after(last):
        node = state.graph.create_node("placeholder", _input_name(state, value))
        node.target = node.name          # the parameter: unlike what was asked for, a name is there once
    state.inputs.append(Input(value, node))
    return node


def _input_name(state: State, value: Value) -> str:
    text = show(value.source).replace("._modules[", ".").replace("._parameters[", ".").replace("._buffers[", ".")
    return "".join(c if c.isalnum() else "_" for c in text.replace("__dict__", "")).strip("_").lower() or "input"


def size_node(state: State, value: SizeValue) -> Any:
    """The node that computes a symbolic number from numbers that are inputs and the sizes of inputs."""
    if isinstance(value.size.node, FloatNode):
        expression = value.size.node.expression
        node = _float_node(state, expression)
        return _size_call(state, operator.mul, node, 1.0) if isinstance(expression, Size) else node
    if isinstance(value.size.node, OpenNode):
        raise unsupported(state, "TW103", "a truth value")
    return expression_node(state, bare(value.size))


def _float_node(state: State, expression: Any) -> Any:
    if isinstance(expression, FloatInput):
        return _number_node(state, state.number_inputs[expression.source])
    if isinstance(expression, Element):
        return expression.node
    if not isinstance(expression, tuple):
        return expression_node(state, expression) if isinstance(expression, Size) else expression
    function, *operands = expression
    return _size_call(state, function, *(_float_node(state, one) for one in operands))


def expression_node(state: State, size: SizeLike) -> Any:
    if isinstance(size, int):
        return size
    node = state.size_nodes.get(size)
    if node is None or node._erased:
        terms = [_term_node(state, monomial, coefficient) for monomial, coefficient in size.terms.items()]
        node = state.size_nodes[size] = functools.reduce(lambda a, b: _size_call(state, operator.add, a, b), terms)
    return node


def _term_node(state: State, monomial: tuple, coefficient: int) -> Any:
    factors = [_atom_node(state, atom) for atom in monomial]
    if coefficient != 1 or not factors:
        factors.append(coefficient)
    return functools.reduce(lambda a, b: _size_call(state, operator.mul, a, b), factors)


def _atom_node(state: State, atom: Any) -> Any:
    if isinstance(atom, Symbol):
        if atom.name in state.facts.elements:
            return state.facts.elements[atom.name]
        if atom.name not in state.symbols:
            raise unsupported(state, "TW103", "a number that no tensor's size shows")
        tensor, dim = state.symbols[atom.name]
        if dim is None:
            return _number_node(state, tensor)
        return _size_call(state, torch.ops.aten.sym_size.int, tensor_node(state, tensor), dim)
    function = ATOM_FUNCTIONS[type(atom)]
    return _size_call(state, function, expression_node(state, atom.left), expression_node(state, atom.right))


def _number_node(state: State, value: SizeValue) -> torch.fx.Node:
    known = next((one.node for one in state.inputs if one.value is value), None)
    return known if known is not None else _input_node(state, value)


ATOM_FUNCTIONS: dict[type, Callable[..., Any]] = {FloorDiv: operator.floordiv, Mod: operator.mod, Max: torch.sym_max, Min: torch.sym_min}


def _size_call(state: State, function: Callable[..., Any], *args: Any) -> torch.fx.Node:
    node = state.graph.create_node("call_function", function, args)
    node.meta["line"] = state.where()
    return node
