"""Transforms of torch.func: vmap, grad, jacrev, … of a function that capture can follow are one node of the graph.

The function is captured once, for the tensors that the transform gives it, into a graph of its own, and the node applies torch's own
transform to that graph. A custom autograd function inside stays whole (see `autograd_function`), so that its own backward counts.
Functions with effects, and transforms whose result is a function, break.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from thruway.capture.breaks import unsupported
from thruway.capture.known_calls.torch_state import set_grad_enabled
from thruway.capture.opcodes.stack import cell_content
from thruway.capture.state import State
from thruway.capture.tensors import NotTensorArguments, result_value, run_trace, to_node, to_trace
from thruway.capture.values.base import CellValue, Constant, DictValue, FunctionValue, ListValue, PulledValue, TensorValue, TransformedValue, TupleValue, Value
from thruway.capture.values.compare import boolean
from thruway.capture.values.constants import NotConstant, as_python, from_python
from thruway.capture.values.effect import MUTABLE, children, mark_exposed
from thruway.capture.values.mapping import complete
from thruway.capture.wrap import function_cells
from thruway.shapes.meta import TensorMeta
from thruway.shapes.nodes import make_node
from thruway.shapes.symbolic import bare_meta, symint
from thruway.shapes.trace_tensor import from_meta, meta_of

Args = list[Value]
Kwargs = dict[str, Value]
TRANSFORMS = (torch.func.vmap, torch.func.grad, torch.func.grad_and_value, torch.func.jacrev, torch.func.jacfwd)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor's place in a structure: its number, and its metadata where the function gets it."""

    number: int
    meta: TensorMeta | None = None


class _Seen(Exception):
    """The transform has called the function: that is all that was wanted to know."""


# -- what the user holds ---------------------------------------------------------------------------------------------------------------

def transform(target: Callable[..., Any]) -> Callable[[State, Args, Kwargs], Value]:
    """`torch.func.grad(function, …)`: a function to be called later."""
    signature = inspect.signature(target)

    def row(state: State, args: Args, kwargs: Kwargs) -> Value:
        bound = signature.bind(*args, **kwargs).arguments
        return TransformedValue(target, bound.pop("func"), bound)
    return row


def hessian(state: State, args: Args, kwargs: Kwargs) -> Value:
    bound = inspect.signature(torch.func.hessian).bind(*args, **kwargs).arguments
    inner = TransformedValue(torch.func.jacrev, bound.pop("func"), bound)
    return TransformedValue(torch.func.jacfwd, inner, bound)


def call_transformed(state: State, args: Args, kwargs: Kwargs) -> Value:
    """`torch.func.grad(function)(*args)`, made inside."""
    made, *args = args
    return _apply(state, made.target, made.function, made.options, args, kwargs)


def _call_found(target: Callable[..., Any]) -> Callable[[State, FunctionValue, Args, Kwargs], Value]:
    """The same, made outside: function and options stand in the closure of what torch made."""
    names = inspect.signature(target).parameters

    def row(state: State, made: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        cells: dict[str, CellValue] = dict(zip(made.code.co_freevars, function_cells(state, made)))
        options = {name: cell_content(state, cell, name) for name, cell in cells.items() if name in names}
        return _apply(state, target, options.pop("func"), options, args, kwargs)
    return row


def _wrapper_code(target: Callable[..., Any]) -> types.CodeType:
    return next(one for one in target.__code__.co_consts if isinstance(one, types.CodeType) and one.co_name in ("wrapped", "wrapper", "wrapper_fn"))


def jvp(state: State, args: Args, kwargs: Kwargs) -> Value:
    bound = inspect.signature(torch.func.jvp).bind(*args, **kwargs).arguments
    function, primals, tangents = bound.pop("func"), bound.pop("primals"), bound.pop("tangents")
    return _apply(state, _jvp_of, function, bound, [primals, tangents], {})


def _jvp_of(func: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda primals, tangents: torch.func.jvp(func, primals, tangents, **options)


def vjp(state: State, args: Args, kwargs: Kwargs) -> Value:
    """The output, and a function that stays in the graph."""
    function, *primals = args
    return _apply(state, _vjp_of, function, dict(kwargs), primals, {})


def _vjp_of(func: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda *primals: torch.func.vjp(func, *primals, **options)


def linearize(state: State, args: Args, kwargs: Kwargs) -> Value:
    function, *primals = args
    draws = state.draws
    made = _apply(state, _linearize_of, function, dict(kwargs), primals, {})
    if state.draws != draws:
        raise unsupported(state, "TW101", "torch.func.linearize of a function that draws random numbers")
    return made


def _linearize_of(func: Callable[..., Any]) -> Callable[..., Any]:
    def run(*primals: Any) -> Any:
        """The output, and the function of tangents. torch's own traces the graph once more, which only saves time."""
        def push(*tangents: Any) -> Any:
            return torch.func.jvp(func, primals, tangents)[1]
        return func(*primals), push
    return run


def call_pulled(state: State, args: Args, kwargs: Kwargs) -> Value:
    """Calls what vjp gave."""
    pulled, *given = args
    try:
        for one in (*given, *kwargs.values()):
            _read_whole(state, one)
        traces = [to_trace(TupleValue(tuple(given))), {key: to_trace(one) for key, one in kwargs.items()}]
        nodes = (pulled.node, to_node(state, TupleValue(tuple(given))), {key: to_node(state, one) for key, one in kwargs.items()})
    except NotTensorArguments:
        raise unsupported(state, "TW101", "what torch.func.vjp gave") from None
    result = run_trace(state, _pull, [pulled.made, *traces], {})
    node = make_node(state.graph, "call_function", _pull, nodes)
    node.meta["line"] = state.where()
    return result_value(state, node, result)


def _pull(made: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    return made(*_plain(args), **_plain(kwargs))


# -- capture ---------------------------------------------------------------------------------------------------------------------------

def _apply(state: State, target: Callable[..., Any], function: Value, options: dict[str, Value], args: Args, kwargs: Kwargs) -> Value:
    name = f"torch.func.{target.__name__.strip('_').removesuffix('_of')}"
    try:
        known = {key: as_python(state, one) for key, one in options.items()}
        for one in (*args, *kwargs.values()):
            _read_whole(state, one)
        outer = [to_trace(TupleValue(tuple(args))), {key: to_trace(one) for key, one in kwargs.items()}]
        inner, grad = _what_the_function_gets(state, name, functools.partial(target, **known), outer)
        module, lifted, structure = _capture_function(state, name, function, inner, grad)
        nodes = (to_node(state, TupleValue(tuple(args))), {key: to_node(state, one) for key, one in kwargs.items()}, tuple(lifted))
    except (NotConstant, NotTensorArguments):
        raise unsupported(state, "TW101", name) from None
    transformed = _transformed(functools.partial(target, **known), module, structure, name)
    result = run_trace(state, transformed, [*outer, tuple(_at_trace(state, one) for one in lifted)], {})
    node = make_node(state.graph, "call_function", transformed, nodes)
    node.meta["line"] = state.where()
    return _values(state, node, result)


def _values(state: State, node: Node, result: Any) -> Value:
    """The Values of what a transform gives; a function among them is called in the graph."""
    if not isinstance(result, tuple) or not any(isinstance(one, types.FunctionType) for one in result):
        return result_value(state, node, result)
    node.meta["example_value"] = None
    items = []
    for i, one in enumerate(result):
        part = make_node(state.graph, "call_function", operator.getitem, (node, i))
        part.meta.update(line=node.meta["line"], example_value=None)
        items.append(PulledValue(one, part) if isinstance(one, types.FunctionType) else result_value(state, part, one))
    return TupleValue(tuple(items))


def _read_whole(state: State, value: Value) -> None:
    """Dicts found outside are read key by key: here all of them count."""
    match value:
        case DictValue():
            complete(state, value)
            for _, one in value.items.values():
                _read_whole(state, one)
        case ListValue() | TupleValue():
            for one in value.items:
                _read_whole(state, one)


def _what_the_function_gets(state: State, name: str, transform: Callable[..., Any], outer: list) -> tuple[tuple, bool]:
    """Structure and metadata of the arguments that the transform calls its function with, and the gradient mode there."""
    seen: list[Any] = []

    def probe(*args: Any, **kwargs: Any) -> None:
        seen.append((_leaves((args, kwargs), []), torch.is_grad_enabled()))
        raise _Seen

    def run(args: tuple, kwargs: dict) -> None:
        try:
            transform(probe)(*args, **kwargs)
        except _Seen:
            pass
    run_trace(state, run, outer, {})
    if not seen:
        raise unsupported(state, "TW101", name)
    return seen[0]


def _leaves(value: Any, tensors: list[torch.Tensor]) -> Any:
    """`value` with a Leaf for each tensor, which goes to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return Leaf(len(tensors) - 1, bare_meta(meta_of(value)))
    return _mapped(value, lambda one: _leaves(one, tensors))


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with `function` applied to what the containers in it hold; what is no container comes back as it is."""
    if isinstance(value, list):
        return [function(one) for one in value]
    if isinstance(value, tuple):
        parts = [function(one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {key: function(one) for key, one in value.items()}
    return value


def _capture_function(state: State, name: str, function: Value, inner: tuple, grad: bool) -> tuple[GraphModule, list[Node], Any]:
    """The function's graph, nodes of the outer graph that it reads, and the structure of what it returns."""
    effects, mark, last = state.effects, state.effects.mark(), state.graph._root._prev
    _watch(state, function)
    set_grad_enabled(state, [boolean(grad)], {})
    first = state.graph._root._prev
    stand_ins: list[Node] = []
    args, kwargs = (_inner_value(state, one, stand_ins) for one in inner)
    known, written = set(state.by_trace), set(state.written)
    state.transforms += 1
    try:
        result = state.call(function, list(args.items), {key: one for key, (_, one) in kwargs.items.items()})
        outputs = to_node(state, result)
    finally:
        state.transforms -= 1
    if len(effects.steps) > mark[0] or (state.written - written) & known:
        raise unsupported(state, "TW101", f"{name} of a function with effects")
    module, lifted, structure = _extracted(state, first, stand_ins, outputs)
    effects.rollback(mark)
    while state.graph._root._prev is not last and state.graph._root._prev.op != "placeholder":
        state.graph.erase_node(state.graph._root._prev)
    return module, lifted, structure


def _watch(state: State, function: Value) -> None:
    """From now on writes to objects that `function` reaches are steps, and seen."""
    waiting, known = [function], set()
    while waiting:
        value = waiting.pop()
        if value in known or value.source is not None:
            continue
        known.add(value)
        if isinstance(value, MUTABLE) and not value.exposed:
            mark_exposed(state, value)
        if not isinstance(value, Constant | TensorValue):
            waiting += children(state, value)


def _inner_value(state: State, value: Any, stand_ins: list[Node]) -> Value:
    """An argument of the function, with a stand-in node for each tensor."""
    match value:
        case Leaf(_, meta):
            trace = from_meta(meta, None, state.facts)
            node = state.graph.create_node("call_function", _argument, (len(stand_ins),))
            node.meta.update(line=None, example_value=trace)
            stand_ins.append(node)
            made = state.by_trace[id(trace)] = TensorValue(trace, node)
            state.keep.append(trace)
            return made
        case list():
            return ListValue([_inner_value(state, one, stand_ins) for one in value])
        case tuple():
            return TupleValue(tuple(_inner_value(state, one, stand_ins) for one in value), cls=type(value))
        case dict():
            return DictValue({key: (from_python(state, key), _inner_value(state, one, stand_ins)) for key, one in value.items()})
        case _:
            return from_python(state, value)


def _argument(number: int) -> None:
    """Stands for an argument of the function while that is captured."""
    raise AssertionError("an argument that is in no graph")


def _extracted(state: State, first: Node, stand_ins: list[Node], outputs: Any) -> tuple[GraphModule, list[Node], Any]:
    """The nodes behind `first` as a graph of their own: its inputs are the stand-ins, then nodes from before."""
    inside = []
    node = first.next
    while node.op != "root":
        inside += [node] if node.op != "placeholder" else []
        node = node.next
    own = set(inside)
    graph, tensors = Graph(), []
    structure = _output_leaves(outputs, tensors)
    lifted = list(dict.fromkeys(one for node in inside for one in node.all_input_nodes if one not in own))
    lifted += [one for one in dict.fromkeys(tensors) if one not in own and one not in lifted]
    for one in lifted:
        _at_trace(state, one)
    made = {one: graph.placeholder(f"argument_{i}") for i, one in enumerate((*stand_ins, *lifted))}
    for node in inside:
        if node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[one] for one in tensors))
    return _LazyGraphModule(torch.nn.Module(), graph), lifted, structure


def _at_trace(state: State, node: Node) -> Any:
    """What stands for the node's value while torch runs over metadata: a tensor or a size."""
    if isinstance(node.meta.get("example_value"), torch.Tensor):
        return node.meta["example_value"]
    size = next((size for size, known in state.size_nodes.items() if known is node), None)
    if size is None:
        raise NotTensorArguments
    return symint(size, state.facts)


def _output_leaves(value: Any, tensors: list[Node]) -> Any:
    if isinstance(value, Node):
        tensors.append(value)
        return Leaf(len(tensors) - 1)
    return _mapped(value, lambda one: _output_leaves(one, tensors))


def _transformed(transform: Callable[..., Any], module: GraphModule, structure: Any, name: str) -> Callable[..., Any]:
    """What the node calls: torch's transform of the captured function, with the tensors that it reads beside its arguments."""
    def transformed(args: tuple, kwargs: dict, lifted: tuple) -> Any:
        def function(*inner: Any, **named: Any) -> Any:
            tensors: list[torch.Tensor] = []
            _collect((inner, named), tensors)
            _LazyGraphModule.force_recompile(module)
            return _filled(structure, module.forward(*tensors, *lifted))
        return transform(function)(*_plain(args), **_plain(kwargs))

    transformed.__name__ = name.rpartition(".")[2]
    return transformed


def _collect(value: Any, tensors: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _collect(one, tensors)


def _filled(structure: Any, tensors: tuple[torch.Tensor, ...]) -> Any:
    return tensors[structure.number] if isinstance(structure, Leaf) else _mapped(structure, lambda one: _filled(one, tensors))


def _plain(value: Any) -> Any:
    """Containers of an fx graph as Python's own, of which torch's pytrees know the kinds."""
    return _mapped(value, _plain)


ROWS = {
    **{target: transform(target) for target in TRANSFORMS}, **{_wrapper_code(target): _call_found(target) for target in TRANSFORMS},
    TransformedValue: call_transformed, torch.func.hessian: hessian, torch.func.jvp: jvp, torch.func.vjp: vjp,
    torch.func.linearize: linearize, PulledValue: call_pulled,
}
