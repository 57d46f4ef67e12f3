"""`retrace`: the captured torch-level graph, run once over TraceTensors, becomes a functional ATen graph under the room's conventions.

It runs below autograd, so composite operators that have a rule of ours stay whole and torch's own composite kernels take the others
apart. What is recorded is eager's program, operator by operator; `functionalize` then removes the writes that need not stay.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from thruway.core.errors import Unsupported, UserLine
from thruway.core.kept_warnings import kept_warnings
from thruway.core.sizes import FloorDiv, Max, Min, Mod, Size, SizeLike, Symbol, add, as_symbol, floordiv, maximum, minimum, mod, mul
from thruway.frame.modes import autocast_devices, kept_modes
from thruway.graph.evaluate import constant_node
from thruway.graph.functionalize import functionalize
from thruway.shapes.meta import TensorMeta
from thruway.shapes.nodes import make_node
from thruway.shapes.refuse import METADATA_MUTATION, NO_RULE, refuse
from thruway.shapes.symbolic import Facts, bare, bare_meta, symint
from thruway.shapes.trace_tensor import TraceMode, TraceTensor, from_meta, meta_of
from thruway.shapes.traits import Traits

# In-place metadata operators and the view that gives the same tensor.
VIEWS_FOR = {
    "aten::t_": "t", "aten::transpose_": "transpose.int", "aten::squeeze_": "squeeze.default", "aten::squeeze_.dim": "squeeze.dim",
    "aten::squeeze_.dims": "squeeze.dims", "aten::unsqueeze_": "unsqueeze.default", "aten::as_strided_": "as_strided.default",
    "aten::swapdims_": "transpose.int", "aten::swapaxes_": "transpose.int",
}


SIZE_ARITHMETIC = {operator.add: add, operator.mul: mul, operator.floordiv: floordiv, operator.mod: mod,
                   torch.sym_max: maximum, torch.sym_min: minimum}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a captured graph is not retraced: `stand_ins` gives for each node that does not run the node whose value it has; `inputs` and
    `outputs` are positions."""

    stand_ins: Mapping[Node, Node] = field(default_factory=dict)
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()


NOTHING = LeftOut()


class Recorder(TraceMode):
    """Writes every operator into `graph`. `lift` says whether a foreign tensor becomes a further placeholder (else a constant)."""

    def __init__(self, graph: Graph, lift: bool = False, facts: Facts | None = None):
        super().__init__()
        self.facts = facts or Facts()
        self._symbols: dict[Symbol, tuple[Node, int | None]] = {}
        self._sizes: dict[Size, Node] = {}
        self.graph = graph
        self.lift = lift
        self.line: UserLine | None = None
        self.lifted: list[torch.Tensor] = []
        self._foreign: dict[int, tuple[torch.Tensor, TraceTensor]] = {}         # by the identity of the tensor, which stays alive
        self._constants = itertools.count()

    def place(self, meta: TensorMeta, name: str, weight: bool) -> TraceTensor:
        """A placeholder and the TraceTensor that stands for it."""
        node = self.graph.placeholder(name)
        node.meta.update(value=meta, line=None, weight=weight)
        for dim, size in enumerate(meta.sizes):
            if (symbol := as_symbol(size)) is not None:
                self._symbols.setdefault(symbol, (node, dim))
        return _bind(from_meta(meta, facts=self.facts), node)

    def place_size(self, size: SizeLike, name: str) -> object:
        """A placeholder for an integer and what stands for it."""
        node = self.graph.placeholder(name)
        node.meta.update(value=size, line=None, weight=False)
        if (symbol := as_symbol(size)) is not None:
            self._symbols[symbol] = (node, None)
            self._sizes[size] = node
        return symint(size, self.facts)

    def record(self, op: OpOverload, traits: Traits, args: tuple, kwargs: dict, result: object) -> None:
        if traits.changes_metadata:
            return self._record_metadata_change(op, args, kwargs)
        if op is torch.ops.aten.batch_norm.default and args[5] and args[3] is not None:
            refuse("batch norm in training mode")
        if op is torch.ops.aten._efficientzerotensor.default:
            refuse("a tensor of zeros without memory, which torch leaves out of products")
        node = make_node(self.graph, "call_function", op, self.to_nodes(args), {k: self.to_nodes(v) for k, v in kwargs.items() if v is not None})
        self._finish(node, result, not (traits.inplace or traits.outs))

    def _finish(self, node: Node, result: object, binds: bool) -> None:
        node.meta["line"] = self.line
        node.meta["value"] = _values(result)
        if not binds:
            return
        if isinstance(result, TraceTensor):
            _bind(result, node)
        elif isinstance(result, (tuple, list)):
            for i, one in enumerate(result):
                if isinstance(one, TraceTensor):
                    self._item(node, i, one)

    def _item(self, node: Node, index: int, one: TraceTensor) -> None:
        item = make_node(self.graph, "call_function", operator.getitem, (node, index))
        item.meta.update(line=self.line, value=_values(one))
        _bind(one, item)

    def _record_metadata_change(self, op: OpOverload, args: tuple, kwargs: dict) -> None:
        target = args[0]
        if op._name == "aten::detach_":
            return
        if target._node.op == "placeholder" or op._name not in VIEWS_FOR:
            if op._name.startswith("aten::resize_") and _values(target) == target._node.meta["value"]:
                return                                       # to the sizes it has
            raise Unsupported(METADATA_MUTATION, f"{op._name} changes the sizes or storage of a tensor", "make a new tensor instead")
        packet, _, overload = VIEWS_FOR[op._name].partition(".")
        view = getattr(getattr(torch.ops.aten, packet), overload or "default")
        self._finish(self.graph.call_function(view, self.to_nodes(args), self.to_nodes(kwargs)), target, True)

    def to_nodes(self, value: object) -> object:
        """An operator's arguments as a graph holds them."""
        if isinstance(value, TraceTensor):
            return value._node
        if isinstance(value, torch.SymInt):
            return self.size_node(bare(value))
        if isinstance(value, torch.SymFloat | torch.SymBool):
            raise Unsupported(NO_RULE, "a float or truth value that changes between calls", "make it a tensor")
        if isinstance(value, (list, tuple)):
            return type(value)([self.to_nodes(v) for v in value])
        if isinstance(value, dict):
            return {k: self.to_nodes(v) for k, v in value.items()}
        return value

    def size_node(self, size: SizeLike) -> Node | int:
        """A node whose value is `size`, computed from the sizes of placeholders."""
        if type(size) is int:
            return size
        if size not in self._sizes:
            self._sizes[size] = self._compute_size(size)
        return self._sizes[size]

    def _compute_size(self, size: Size) -> Node:
        total: Node | int | None = None
        for monomial, coefficient in size.terms.items():
            factors = [self._atom_node(a) for a in monomial]
            term = factors.pop(0) if factors else coefficient
            for factor in factors:
                term = self._arithmetic(operator.mul, term, factor)
            if monomial and coefficient != 1:
                term = self._arithmetic(operator.mul, term, coefficient)
            total = term if total is None else self._arithmetic(operator.add, total, term)
        return total

    def _atom_node(self, atom: object) -> Node:
        match atom:
            case Symbol():
                node, dim = self._symbols[atom]
                return node if dim is None else self._size_call(torch.ops.aten.sym_size.int, (node, dim), node.meta["value"].sizes[dim])
            case FloorDiv(left, right):
                return self._arithmetic(operator.floordiv, self.size_node(left), self.size_node(right))
            case Mod(left, right):
                return self._arithmetic(operator.mod, self.size_node(left), self.size_node(right))
            case Max(left, right):
                return self._arithmetic(torch.sym_max, self.size_node(left), self.size_node(right))
            case Min(left, right):
                return self._arithmetic(torch.sym_min, self.size_node(left), self.size_node(right))
            case _:
                raise TypeError(f"not an atom of a size: {atom!r}")

    def _arithmetic(self, function: Callable[..., object], left: Node | int, right: Node | int) -> Node:
        a, b = (n.meta["value"] if isinstance(n, Node) else n for n in (left, right))
        return self._size_call(function, (left, right), SIZE_ARITHMETIC[function](a, b))

    def _size_call(self, function: Callable[..., object], args: tuple, size: SizeLike) -> Node:
        node = self.graph.call_function(function, args)
        node.meta.update(value=size, line=self.line)
        return node

    def adopt(self, t: torch.Tensor) -> TraceTensor:
        """A foreign tensor: a constant, or under `lift` another placeholder, one per tensor object."""
        if id(t) not in self._foreign:
            self._foreign[id(t)] = t, self._lifted(t) if self.lift else self.literal(t)
        return self._foreign[id(t)][1]

    def _lifted(self, t: torch.Tensor) -> TraceTensor:
        meta = meta_of(t)
        last = next((n for n in reversed(self.graph.nodes) if n.op == "placeholder"), None)
        with self.graph.inserting_after(last) if last is not None else self.graph.inserting_before(next(iter(self.graph.nodes), None)):
            made = self.place(meta, f"lifted_{len(self.lifted)}", isinstance(t, torch.nn.Parameter))
        self.lifted.append(t)
        return made

    def literal(self, t: torch.Tensor) -> TraceTensor:
        """A node of its own, also where another literal is equal: the program may write either. A 0-dim one is `full`, so that it fuses."""
        meta = meta_of(t)
        if meta.sizes:
            node = constant_node(self.graph, f"constant_{next(self._constants)}", t.detach())
        else:
            with torch._C._DisableTorchDispatch():
                value = t.item()
            node = self.graph.call_function(torch.ops.aten.full.default, ([], value), {"dtype": t.dtype, "device": t.device})
        node.meta.update(value=meta, line=self.line)
        return _bind(from_meta(meta), node)


def retrace(
    graph_module: GraphModule, metas: Sequence[TensorMeta | SizeLike], weights: Sequence[bool], facts: Facts | None = None,
    left_out: LeftOut = NOTHING,
) -> Graph:
    """The ATen graph of `graph_module` for inputs of these metadata, without gradients. One placeholder per meta that is not left out, in order.

    What is assumed of symbolic sizes is recorded in `facts`, whose hints answer comparisons.
    """
    graph = Graph()
    recorder = Recorder(graph, facts=facts)
    names = [n.target for n in graph_module.graph.nodes if n.op == "placeholder"]
    inputs = [None if i in left_out.inputs else _input(recorder, meta, name, weight) for i, (meta, name, weight) in enumerate(zip(metas, names, weights))]
    with kept_modes(), _below_autograd(recorder):
        outputs = run_captured(graph_module, inputs, recorder, left_out.stand_ins)
    return _close(recorder, [one for i, one in enumerate(outputs) if i not in left_out.outputs])


@dataclass(frozen=True, slots=True)
class Retraced:
    """`lifted` are tensors that the callable reached by itself; they are the graph's last placeholders. `structure` is what it
    returned, with indices into the flat outputs in place of tensors."""

    graph: Graph
    lifted: tuple[torch.Tensor, ...]
    structure: object


def retrace_callable(fn: Callable[..., object], metas: Sequence[object], facts: Facts | None = None) -> Retraced:
    """`fn` run over TraceTensors of `metas` (other values pass as they are)."""
    graph = Graph()
    recorder = Recorder(graph, lift=True, facts=facts)
    inputs = [_input(recorder, m, f"arg_{i}", False) if isinstance(m, TensorMeta) else m for i, m in enumerate(metas)]
    outputs: list[object] = []
    with _below_autograd(recorder):
        structure = _flatten(fn(*inputs), outputs)
    return Retraced(_close(recorder, outputs), tuple(recorder.lifted), structure)


def _flatten(value: object, outputs: list[object]) -> object:
    if isinstance(value, torch.Tensor):
        outputs.append(value)
        return len(outputs) - 1
    if isinstance(value, (tuple, list)):
        return [_flatten(v, outputs) for v in value]
    if isinstance(value, dict):
        return {k: _flatten(v, outputs) for k, v in value.items()}
    return value


def _input(recorder: Recorder, meta: TensorMeta | SizeLike, name: str, weight: bool) -> object:
    if isinstance(meta, TensorMeta):
        plain = TensorMeta(meta.sizes, meta.strides, meta.dtype, meta.device, False, meta.offset)
        return recorder.place(plain, name, weight)
    return recorder.place_size(meta, name)


def _below_autograd(recorder: Recorder) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(kept_warnings())                     # capture has told them
    stack.enter_context(torch.no_grad())
    stack.enter_context(torch._C._AutoDispatchBelowAutograd())
    stack.enter_context(recorder)
    return stack


def _run(node: Node, args: tuple, kwargs: dict) -> object:
    try:
        return node.target(*args, **kwargs)
    except RuntimeError as error:
        if "without overflow" in str(error):
            raise Unsupported("TW302", str(error)) from error
        raise


def run_captured(module: GraphModule, inputs: Sequence[object], recorder: Recorder, stand_ins: Mapping[Node, Node]) -> tuple[object, ...]:
    """The captured graph over `inputs`; each operator is recorded under the line of the captured node that calls it."""
    remaining = list(inputs)
    recorder.autocast = autocast_devices()
    values: dict[Node, object] = {}
    for node in module.graph.nodes:
        if node in stand_ins:
            values[node] = values[stand_ins[node]]
            continue
        recorder.line = node.meta.get("line")
        args, kwargs = map_arg(node.args, values.__getitem__), map_arg(node.kwargs, values.__getitem__)
        match node.op:
            case "placeholder":
                values[node] = remaining.pop(0)
            case "get_attr":
                values[node] = _attribute(module, node.target)
            case "call_function":
                values[node] = _run(node, args, kwargs)
                if node.target is torch.set_autocast_enabled:
                    recorder.autocast = autocast_devices()
            case "call_method":
                values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
            case "call_module":
                values[node] = _attribute(module, node.target)(*args, **kwargs)
            case "output":
                return args[0] if isinstance(args[0], (tuple, list)) else (args[0],)
            case _:
                raise ValueError(f"not a node of a captured graph: {node.format_node()}")
    raise ValueError("a captured graph without an output node")


def _attribute(module: object, path: str) -> object:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _close(recorder: Recorder, outputs: Sequence[object]) -> Graph:
    recorder.graph.output(tuple(recorder.to_nodes(o) for o in outputs))
    return functionalize(recorder.graph, recorder.facts)


def _bind(t: TraceTensor, node: Node) -> TraceTensor:
    t._node = node
    return t


def _values(result: object) -> object:
    if isinstance(result, TraceTensor):
        return bare_meta(result._meta) if result._symbolic else result._meta
    if isinstance(result, (list, tuple)):
        return tuple(_values(r) for r in result)
    return bare(result)
