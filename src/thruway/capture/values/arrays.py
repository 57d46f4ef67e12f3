"""numpy inside captured code: its functions are calls in the graph, which numpy itself answers when the graph runs.

What an array is (dtype, shape, strides) is found by calling the function on examples at capture; only functions whose results are alike for all
elements are called so. Arrays that hang on constants alone are known, elements included. Arrays made here may be written; memory that tensors or
the caller can see may not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from thruway.capture.breaks import OF_NUMPY, unsupported
from thruway.capture.state import State
from thruway.capture.tensors import array_node, result_value, tensor_node
from thruway.capture.values.base import (
    ArrayValue, Constant, DictValue, ListValue, SizeValue, SliceValue, TensorValue, TupleValue, Value,
)
from thruway.capture.values.constants import NotConstant, as_python, from_python, make_tuple
from thruway.capture.values.errors import raise_real
from thruway.capture.values.number_index import number_of
from thruway.core.kept_warnings import kept_warnings
from thruway.shapes.nodes import make_node
from thruway.shapes.symbolic import bare_meta
from thruway.shapes.trace_tensor import TraceTensor, from_meta, meta_of

LARGEST = 1 << 26            # bytes of an array that is looked at
LONGEST = 64                 # items of an array that is iterated over
KINDS = "biufc"              # of dtypes: booleans, numbers


@dataclass(slots=True, eq=False)
class Memory:
    """What several arrays may share. `is_known`: elements are the same at every call. `is_own`: made by numpy here, and seen by nobody else.
    `root`: the trace of the tensor that lies in it."""

    is_known: bool = False
    is_own: bool = True
    root: TraceTensor | None = None


@dataclass(frozen=True, slots=True)
class _Slot:
    """An argument that the graph computes."""

    number: int


class _Arguments:
    """The arguments of a call: as examples, and as a structure in which `nodes` are to be put."""

    def __init__(self, state: State):
        self.state = state
        self.nodes: list[Node] = []
        self.arrays: list[ArrayValue] = []

    def of(self, value: Value) -> tuple[Any, Any]:
        """(example, structure)."""
        match value:
            case ArrayValue():
                example = value.example
                self.arrays.append(value)
                self.nodes.append(array_node(self.state, value))
                return example, _Slot(len(self.nodes) - 1)
            case TupleValue():
                pairs = [self.of(one) for one in value.items]
                return make_tuple(value.cls, [one for one, _ in pairs]), tuple(one for _, one in pairs)
            case ListValue(cls=cls) if cls is list:
                pairs = [self.of(one) for one in value.items]
                return [one for one, _ in pairs], [one for _, one in pairs]
            case SliceValue():
                pairs = [self.of(one) for one in (value.start, value.stop, value.step)]
                return slice(*(one for one, _ in pairs)), slice(*(one for _, one in pairs))
            case Constant() | SizeValue() | DictValue():
                known = as_python(self.state, value)
                return known, known
            case _:
                raise NotConstant

    @property
    def are_known(self) -> bool:
        return all(one.memory.is_known for one in self.arrays)


def _filled(structure: Any, given: tuple[Any, ...]) -> Any:
    match structure:
        case _Slot(number):
            return given[number]
        case tuple() if type(structure) is tuple:
            return tuple(_filled(one, given) for one in structure)
        case list():
            return [_filled(one, given) for one in structure]
        case slice():
            return slice(_filled(structure.start, given), _filled(structure.stop, given), _filled(structure.step, given))
        case _:
            return structure


def call_numpy(state: State, target: Callable[..., Any], args: list[Value], kwargs: dict[str, Value], name: str, needs_known: bool = False) -> Value:
    """`target(*args, **kwargs)`. `needs_known`: what it gives hangs on elements in more than its own."""
    arguments = _Arguments(state)
    try:
        pairs = [arguments.of(one) for one in args]
        named = {key: arguments.of(one) for key, one in kwargs.items()}
    except NotConstant:
        raise unsupported(state, "TW101", name, hint=OF_NUMPY) from None
    if needs_known and not arguments.are_known:
        raise unsupported(state, "TW103", f"{name} of numpy, whose result's shape depends on elements", hint=OF_NUMPY)
    result = _on_examples(state, target, [one for one, _ in pairs], {key: one for key, (one, _) in named.items()}, name, arguments.are_known)
    structures = [one for _, one in pairs], {key: one for key, (_, one) in named.items()}
    return _result(state, target, name, arguments, structures, result)


def _on_examples(state: State, target: Callable[..., Any], args: list, kwargs: dict, name: str, are_known: bool) -> Any:
    try:
        with kept_warnings(), np.errstate(all="ignore"), _disable_current_modes():
            return target(*args, **kwargs)
    except Exception as error:
        if are_known:
            raise_real(state, error)
        raise unsupported(state, "TW112", name, f"{type(error).__name__}: {error}") from error


def _holds_arrays(result: Any) -> bool:
    return isinstance(result, np.ndarray | np.generic) or isinstance(result, tuple | list) and any(map(_holds_arrays, result))


def _result(state: State, target: Callable[..., Any], name: str, arguments: _Arguments, structures: tuple[list, dict], result: Any) -> Value:
    if isinstance(result, np.generic) and arguments.are_known or not _holds_arrays(result):
        if not arguments.are_known and not isinstance(result, np.dtype | type(None)):
            raise unsupported(state, "TW103", name, hint=OF_NUMPY)
        return from_python(state, result)
    node = add_array_node(state, target, name, arguments.nodes, structures)
    return _values(state, node, result, arguments.arrays)


def add_array_node(state: State, target: Callable[..., Any], name: str, nodes: list[Node], structures: tuple[list, dict]) -> Node:
    """A call that Python runs in its place between the compiled pieces of the graph."""
    if state.sides or state.transforms:
        raise unsupported(state, "TW103", f"{name} of numpy in a side of a branch or below a transform", hint=OF_NUMPY)
    args, kwargs = structures

    def called(*given: Any) -> Any:
        return target(*(_filled(one, given) for one in args), **{key: _filled(one, given) for key, one in kwargs.items()})

    called.__name__ = name.rpartition(".")[2]
    node = make_node(state.graph, "call_function", called, tuple(nodes))
    node.meta.update(line=state.where(), opaque=True, example_value=None)
    return node


def _values(state: State, node: Node, result: Any, over: list[ArrayValue]) -> Value:
    if isinstance(result, tuple | list):
        items = []
        for i, one in enumerate(result):
            part = make_node(state.graph, "call_function", operator.getitem, (node, i))
            part.meta.update(line=node.meta["line"], opaque=True, example_value=None)
            items.append(_values(state, part, one, over))
        return ListValue(items) if isinstance(result, list) else TupleValue(tuple(items), cls=type(result))
    if not isinstance(result, np.ndarray | np.generic) or result.dtype.kind not in KINDS or result.nbytes > LARGEST \
            or type(result) is not np.ndarray and not isinstance(result, np.generic):
        raise unsupported(state, "TW101", f"{node.name} of numpy with elements of {getattr(result, 'dtype', type(result).__name__)}")
    return ArrayValue(result, _memory_of(result, over), node)


def _memory_of(result: Any, over: list[ArrayValue]) -> Memory:
    shared = list(dict.fromkeys(one.memory for one in over if isinstance(result, np.ndarray) and np.may_share_memory(result, one.example)))
    if len(shared) == 1:
        return shared[0]
    return Memory(is_known=all(one.memory.is_known for one in over), is_own=not shared)


# -- between tensors and arrays ------------------------------------------------------------------------------------------------------------

def array_of(state: State, value: TensorValue, name: str) -> ArrayValue:
    """`tensor.numpy()`: the same memory."""
    trace = value.trace
    if trace.device.type != "cpu" or trace.requires_grad or trace.dtype not in DTYPES or trace.is_conj() or trace.is_neg():
        raise unsupported(state, "TW103", name, hint=OF_NUMPY)
    sizes, strides = [int(size) for size in trace.shape], [int(stride) for stride in trace.stride()]
    if sum(size * stride for size, stride in zip(sizes, strides)) * trace.dtype.itemsize > LARGEST:
        raise unsupported(state, "TW103", f"{name} of a large tensor", hint=OF_NUMPY)
    with _disable_current_modes():
        example = torch.empty_strided(sizes, strides, dtype=trace.dtype).zero_().numpy()
    node = add_array_node(state, torch.Tensor.numpy, name, [tensor_node(state, value)], ([_Slot(0)], {}))
    return ArrayValue(example, Memory(is_own=False, root=trace.root), node)


DTYPES = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64,
                    torch.complex128})


def tensor_of(state: State, function: Callable[..., Any], array: ArrayValue, kwargs: dict[str, Value]) -> Value:
    """torch.from_numpy, torch.tensor or torch.as_tensor of an array."""
    name = function.__name__
    example = array.example
    if not isinstance(example, np.ndarray) or not example.flags.writeable or any(stride < 0 or stride % example.itemsize for stride in example.strides):
        raise unsupported(state, "TW101", f"{name} of such an array", hint=OF_NUMPY)
    options = {key: as_python(state, one) for key, one in kwargs.items()}
    if options.keys() - {"dtype"}:
        raise unsupported(state, "TW101", f"{name} with options", hint=OF_NUMPY)
    with _disable_current_modes():
        try:
            made = function(example, **options)
        except Exception as error:
            raise unsupported(state, "TW112", name, str(error)) from error
        shares = bool(example.nbytes) and made.untyped_storage().data_ptr() == torch.from_numpy(example).untyped_storage().data_ptr()
    node = add_array_node(state, function, name, [array_node(state, array)], ([_Slot(0)], options))
    trace = from_meta(bare_meta(meta_of(made)), None, state.facts)
    if shares:
        array.memory.is_known = False
        _share(state, array.memory, trace)
    return result_value(state, node, trace)


def _share(state: State, memory: Memory, trace: TraceTensor) -> None:
    """The tensor lies in the array's memory: the caller's, or that of an earlier tensor."""
    if memory.root is None:
        memory.root = trace
        if not memory.is_own:
            state.array_roots.append(trace)
    else:
        trace.root = memory.root
    memory.is_own = False


def number_in_array(state: State, array: ArrayValue, name: str) -> Value:
    """`array.item()` of a scalar, or of an array with one element: a number that stays in the graph."""
    example = array.example
    if example.size != 1 or example.dtype.kind not in "iuf" or example.dtype.itemsize > 8 or example.dtype == np.uint64:
        raise unsupported(state, "TW103", name, hint=OF_NUMPY)
    if array.memory.is_known:
        return Constant(example.item())
    node = add_array_node(state, _item, "item", [array_node(state, array)], ([_Slot(0)], {}))
    return number_of(state, node, example.dtype.kind == "f")


def _item(array: Any) -> Any:
    return array.item()


def is_scalar_of_numpy(value: Value) -> bool:
    """A known one, whose operators give scalars of numpy's again."""
    return isinstance(value, Constant) and isinstance(value.value, np.generic)


def beside_tensor(state: State, value: Value) -> Value:
    """The other operand of a tensor's operator: a scalar of numpy's counts as the number that it is."""
    if isinstance(value, ArrayValue) and issubclass(value.cls, np.generic):
        return number_in_array(state, value, "a scalar of numpy's")
    return value


# -- writing ---------------------------------------------------------------------------------------------------------------------------

def write_array(state: State, target: Callable[..., Any], array: ArrayValue, *operands: Value) -> None:
    """`array[key] = new`, `array += other`: of an array that numpy made here."""
    memory = array.memory
    if not memory.is_own or not isinstance(array.example, np.ndarray) or not array.example.flags.writeable:
        raise unsupported(state, "TW106", "an array that the caller or a tensor may see")
    arguments = _Arguments(state)
    try:
        pairs = [arguments.of(one) for one in (array, *operands)]
    except NotConstant:
        raise unsupported(state, "TW106", "an array of numpy") from None
    if len(operands) > 1 and any(isinstance(one, ArrayValue) and one.example.dtype.kind == "b" and not one.memory.is_known for one in _flat(operands[0])):
        pairs[2] = (pairs[2][0].flat[:1] if isinstance(pairs[2][0], np.ndarray) else pairs[2][0], pairs[2][1])       # how many, only the run knows
    _on_examples(state, target, [np.array(pairs[0][0]), *(one for one, _ in pairs[1:])], {}, target.__name__, False)
    add_array_node(state, target, target.__name__, arguments.nodes, ([one for _, one in pairs], {}))
    was_known = memory.is_known
    memory.is_known = False
    state.effects.remember(lambda: setattr(memory, "is_known", was_known), array.age)


def _flat(key: Value) -> tuple[Value, ...]:
    return key.items if isinstance(key, TupleValue) else (key,)


# -- operators -------------------------------------------------------------------------------------------------------------------------

def operate(state: State, function: Callable[..., Any], *operands: Value) -> Value:
    """An operator of Python's on arrays and numbers."""
    if any(isinstance(one, TensorValue) for one in operands):
        raise unsupported(state, "TW104", function.__name__, "a tensor and an array")
    return call_numpy(state, function, list(operands), {}, function.__name__)


def array_item(state: State, array: ArrayValue, key: Value) -> Value:
    """`array[key]`; a mask says with its elements how many there are."""
    masked = any(isinstance(one, ArrayValue) and one.example.dtype.kind == "b" for one in _flat(key))
    return call_numpy(state, operator.getitem, [array, key], {}, "getitem", masked)


def array_items(state: State, array: ArrayValue) -> list[Value]:
    """What iteration gives."""
    example = array.example
    if not isinstance(example, np.ndarray) or not example.ndim:
        raise_real(state, TypeError("iteration over a 0-d array" if isinstance(example, np.ndarray) else f"'{example.dtype}' object is not iterable"))
    if len(example) > LONGEST:
        raise unsupported(state, "TW105", "a long array")
    return [array_item(state, array, Constant(i)) for i in range(len(example))]


def array_truth(state: State, array: ArrayValue) -> bool:
    if not array.memory.is_known:
        raise unsupported(state, "TW103", "the truth of an array", hint=OF_NUMPY)
    try:
        return bool(array.example)
    except ValueError as error:
        raise_real(state, error)


def array_length(state: State, array: ArrayValue) -> Value:
    try:
        return Constant(len(array.example))
    except TypeError as error:
        raise_real(state, error)


VIEWS = frozenset({"T", "real", "imag", "mT"})
FACTS = frozenset({"shape", "ndim", "dtype", "size", "itemsize", "nbytes", "strides"})


def array_attribute(state: State, array: ArrayValue, name: str) -> Value | None:
    """An attribute that is no method; None where it has none of this name."""
    if name in FACTS:
        return from_python(state, getattr(array.example, name))
    if name in VIEWS:
        return call_numpy(state, lambda owner: getattr(owner, name), [array], {}, name)
    return None
