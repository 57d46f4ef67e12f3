"""From a functional ATen graph (see `graph/__init__`) to a Program, one Compute, Update or Scan per step of each operator.

The graph is read duck-typed and operators by their name, so that nothing here needs torch. What has no row in `lowerings`
becomes an Extern, and so does what matrix and convolution libraries do better. Views become copies through an index map,
which fusion later inlines; where a view feeds an Extern or leaves the program it becomes an alias of its root instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from thruway.core.errors import Unsupported
from thruway.core.sizes import Size, add, mul
from thruway.core.target import Target
from thruway.loops.builder import Builder, Tensor, Value, axes_of, axis_indices, load_broadcast
from thruway.loops.expressions import loads, references
from thruway.loops.ir import Buffer, BufferRef, Compute, Extern, Node, Origin, Program, Scan, SizeArg, Update
from thruway.loops.lowerings import ROWS
from thruway.loops.lowerings.products import Parts, open_columns, open_product, product_of
from thruway.loops.operators import Operator, operator_of
from thruway.shapes.meta import TensorMeta, contiguous_strides


def lower(graph, target: Target | None = None, default_float: str = "float32", parts_of: Parts = lambda product: 0) -> Program:
    """The Program of `graph`. `default_float` is the default dtype that Python floats had when the graph was made; `parts_of` says which
    matrix products are loops rather than library calls, and in how many parts along the inner axis."""
    return _Lowering(graph, target or Target(), default_float, parts_of).program()


LAZY = {"aten._conj.default": "aten._conj_physical.default", "aten._neg_view.default": "aten.neg.default"}      # what is read is not what lies there
COPIES = LAZY | {f"aten.view_as_{kind}.default": f"aten.view_as_{kind}_copy.default" for kind in ("real", "complex")}


class _Lowering:
    """One walk over a graph. `values` maps graph nodes to what they became."""

    def __init__(self, graph, target: Target, default_float: str, parts_of: Parts):
        self.graph = list(graph.nodes)
        self.target = target
        self.parts_of = parts_of
        self.node: Any = None                                  # the call at hand
        self.opened: dict[str, tuple[tuple, dict, int]] = {}       # linear layers that became loops, by what they make
        self.b = Builder(default_float)
        self.values: dict[object, Value] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.nodes: list[Node] = []
        self.derived: list[Node] = []

    def program(self) -> Program:
        for node in self.graph:
            match node.op:
                case "placeholder":
                    self._placeholder(node)
                case "call_function":
                    self._call(node)
                case "get_attr":
                    self._constant(node)
                case "output":
                    self._output(node)
                case _:
                    raise Unsupported("TW500", f"a graph node of kind {node.op}")
        return self._without_dead_nodes()

    def _placeholder(self, node) -> None:
        meta = node.meta["value"]
        kind = "weight" if node.meta.get("weight") else "input"
        if not isinstance(meta, TensorMeta):
            self.b.buffers[node.name] = Buffer(node.name, "int64", (), (), "size")
            self.values[node] = meta
        else:
            self.b.buffers[node.name] = Buffer(node.name, meta.dtype, meta.sizes, meta.strides, kind, meta.device)
            self.values[node] = Tensor(node.name, meta)
        self.inputs.append(node.name)

    def _constant(self, node) -> None:
        meta = node.meta["value"]
        self.b.buffers[node.name] = Buffer(node.name, meta.dtype, meta.sizes, meta.strides, "constant", meta.device, data=_bytes(node.meta["constant"]))
        self.values[node] = Tensor(node.name, meta)

    def _call(self, node) -> None:
        operator = operator_of(node.target)
        meta = node.meta.get("value")
        if operator.name == "getitem":
            self.values[node] = self.values[node.args[0]][node.args[1]]
        elif isinstance(meta, (int, Size)) and not isinstance(meta, bool):
            self.values[node] = meta
        else:
            self.node = node
            nodes = self.derived if node.meta.get("derived") else self.nodes
            self.b.begin(node.name, meta, Origin((node.name,), node.meta.get("line")), nodes)
            args = self._resolve(node.args)
            kwargs = {key: self._resolve(value) for key, value in node.kwargs.items()} if node.kwargs else {}
            if node.meta.get("kept"):                        # called for its check alone
                self.values[node] = self._extern(replace(operator, pinned=True), args, kwargs)
            else:
                half = self._half(node, args[0]) if operator.name == "aten.slice.Tensor" and self.opened else None
                operator = replace(operator, pinned=True) if node.meta.get("pinned") else operator
                self.values[node] = self._lower_call(operator, args, kwargs) if half is None else half

    def _lower_call(self, operator: Operator, args: tuple, kwargs: dict) -> Value:
        if operator.writes:
            args, kwargs = self._with_current(operator, args, kwargs)
        functional = None if len(operator.writes) != 1 else ROWS.get(operator.functional_name)
        mark = len(self.b.nodes)
        try:
            if operator.name in ROWS:
                return ROWS[operator.name](self.b, *args, **kwargs)
            opened = self._opened(operator, args, kwargs)
            if opened is not None:
                return opened
            if functional is not None:
                return self._in_place_call(functional, args, kwargs)
        except Unsupported:
            del self.b.nodes[mark:]
        if operator.is_view:
            return self._opaque_view(operator, args)
        return self._extern(operator, args, kwargs)

    def _opened(self, operator: Operator, args: tuple, kwargs: dict) -> Value | None:
        """A matrix product as a loop, where the target wants it."""
        product = product_of(operator.name, args, kwargs, _read_by_loops(self.node))
        parts = 0 if product is None or operator.pinned else self.parts_of(product)
        if not parts:
            return None
        made = open_product(self.b, operator.name, args, kwargs, parts)
        if operator.name == "aten.linear.default":
            self.opened[made.name] = args, kwargs, parts
        return made

    def _half(self, node, x: Value) -> Value | None:
        """One half of an opened linear layer's columns as a product of its own, where both halves meet again at the same points: a gate and
        what it gates. Nobody may write what would have been a view."""
        product = self.opened.get(x.name) if isinstance(x, Tensor) else None
        if product is None or not _are_halves(list(node.args[0].users), x) or not _meet(*node.args[0].users):
            return None
        return open_columns(self.b, *product, node.args[2])

    def _with_current(self, operator: Operator, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments, with the written ones as they stand in their storage now."""
        args, kwargs = list(args), dict(kwargs)
        for position, name in operator.writes:
            if position < len(args):
                args[position] = self._writable(args[position])
            elif kwargs.get(name) is not None:
                kwargs[name] = self._writable(kwargs[name])
        return tuple(args), kwargs

    def _writable(self, x: Value) -> Value:
        if isinstance(x, tuple):
            return tuple([self._writable(one) for one in x])
        if x.root.detached:
            raise Unsupported("TW522", "a write through a view as another dtype")
        return self.b.current(x)

    def _in_place_call(self, row: Callable, args: tuple, kwargs: dict) -> Value:
        """The functional operator, in the dtype that its arguments promote to, written over its first argument."""
        target, meta = args[0], self.b.meta
        self.b.meta = replace(target.meta, strides=contiguous_strides(target.sizes), dtype="")
        try:
            value = row(self.b, *args, **kwargs)
        finally:
            self.b.meta = meta
        return self.b.write(target, axis_indices(target.rank), load_broadcast(value, target.rank), axes_of(target.sizes))

    def _opaque_view(self, operator: Operator, args: tuple) -> Value:
        """A view that has no row, as an alias: its metadata says where it lies."""
        x = args[0]
        if not isinstance(x, Tensor) or not isinstance(self.b.meta, TensorMeta) or x.root.detached:
            raise Unsupported("TW523", f"the view {operator.name}")
        name = None if operator.name in LAZY else self._alias(Tensor(self.b.name, self.b.meta, x))
        return self._copied_view(operator, args, self.b.meta) if name is None else Tensor(name, self.b.meta)

    def _copied_view(self, operator: Operator, args: tuple, meta: TensorMeta) -> Value:
        """Complex numbers as pairs, pairs as complex numbers, conjugates: by torch's operator that copies. Nothing is written that would tell it from
        a view."""
        packed = meta.strides == contiguous_strides(meta.sizes)
        if operator.name not in COPIES or not packed or any(operator_of(node.target).writes for node in self.graph if node.op == "call_function"):
            raise Unsupported("TW522", f"the view {operator.name} as another dtype")
        copied = self._extern(Operator(COPIES[operator.name]), args, {})
        assert isinstance(copied, Tensor), "a copy of one tensor is one tensor"
        return replace(copied, detached=True)

    def _resolve(self, value):
        kind = type(value)
        if kind is tuple or kind is list or kind.__name__ == "immutable_list":
            return tuple([self._resolve(one) for one in value])
        if hasattr(value, "op") and hasattr(value, "target"):
            return self.values[value]
        return value

    def _extern(self, operator: Operator, args: tuple, kwargs: dict) -> Value:
        """The call as it stands. Results that share a written argument are that argument afterwards."""
        written = self._written(operator, args, kwargs)
        metas = self.b.meta if isinstance(self.b.meta, (tuple, list)) else (self.b.meta,)
        fresh = operator.fresh if len(operator.fresh) == len(metas) else (True,) * len(metas)
        outs = self._extern_outs([meta for meta, own in zip(metas, fresh) if own and meta is not None])
        call_args = tuple([self._extern_argument(a) for a in args])
        call_kwargs = tuple([(key, self._extern_argument(value)) for key, value in kwargs.items()])
        names, mutates = tuple([o.name for o in outs]), tuple([self._whole(x) for x in written])
        self.b.nodes.append(Extern(operator.call_name, call_args, call_kwargs, names, mutates, self.b.origin, operator.pinned))
        results, after = iter(outs), iter([self.b.written(x) for x in written])
        values: Any = tuple([next(results) if own and meta is not None else next(after, None) for meta, own in zip(metas, fresh)])
        return values if isinstance(self.b.meta, (tuple, list)) else values[0]

    def _written(self, operator: Operator, args: tuple, kwargs: dict) -> list[Tensor]:
        found = []
        for position, name in operator.writes:
            value = args[position] if position < len(args) else kwargs.get(name)
            found += [one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, Tensor)]
        return found

    def _extern_outs(self, metas: list) -> list[Tensor]:
        if not all(isinstance(meta, TensorMeta) for meta in metas):
            raise Unsupported("TW503", f"{self.b.name} returns something that is no tensor")
        return [self.b.new(meta, str(k) if len(metas) > 1 else "") for k, meta in enumerate(metas)]

    def _extern_argument(self, value):
        if isinstance(value, Tensor):
            return BufferRef(self._whole(value))
        if isinstance(value, Size):
            return SizeArg(value)
        if type(value) is tuple:
            return tuple([self._extern_argument(one) for one in value])
        return value

    def _whole(self, x: Tensor) -> str:
        """The name of a buffer that holds `x`: an alias of its root where strides can say it and nothing was written since."""
        if x.source is None:
            return x.name
        if x.version != self.b.versions.get(x.root.name, 0):
            return x.name
        return self._alias(x) or x.name

    def _alias(self, x: Tensor) -> str | None:
        root = x.root
        base = self.b.buffers[root.name]
        if root.detached or (x.dtype, x.meta.device) != (root.dtype, root.meta.device) or base.strides != root.meta.strides:
            return None
        offset = add(x.meta.offset, mul(root.meta.offset, -1))
        name = f"{x.name}_view"
        if base.alias is not None:
            base, offset = self.b.buffers[base.alias], add(offset, base.offset)
        alias = Buffer(name, x.dtype, x.sizes, x.meta.strides, "temp", x.meta.device, base.name, offset)
        if self.b.buffers.setdefault(name, alias) != alias:
            name = self.b.unique(name)
            self.b.buffers[name] = alias
        return name

    def _output(self, node) -> None:
        for value in self._resolve(node.args[0]):
            if not isinstance(value, Tensor):
                raise Unsupported("TW504", "a graph output that is no tensor")
            if value.root.detached:
                raise Unsupported("TW522", "a view as another dtype leaves the graph")
            self.outputs.append(value.name if value.source is None else self._alias(value) or value.name)

    def _without_dead_nodes(self) -> Program:
        """The program less Computes and Scans that nobody reads, and less their buffers."""
        buffers = self.b.buffers
        live = set(self.outputs)
        live.update([buffers[name].alias for name in self.outputs if buffers[name].alias])
        nodes = _live_nodes(self.nodes, buffers, live)
        derived = _live_nodes(self.derived, buffers, live)
        live.update(self.inputs)
        kept = {name: buffer for name, buffer in buffers.items() if name in live}
        return Program(tuple(self.inputs), kept, nodes, tuple(self.outputs), derived)


def _read_by_loops(node) -> bool:
    """Whether all that read a graph node, or a view of it, are operators that become loops."""
    for user in node.users:
        if user.op != "call_function":
            return False
        operator = operator_of(user.target)
        if operator.writes or operator.name not in ROWS or operator.is_view and not _read_by_loops(user):
            return False
    return True


def _are_halves(users: list, x: Tensor) -> bool:
    """Whether two slices take the columns of `x` between them."""
    width = x.sizes[-1]
    spans = [user.args[2:] for user in users if str(user.target) == "aten.slice.Tensor" and len(user.args) == 4 and user.args[1] % x.rank == x.rank - 1]
    return len(users) == 2 and type(width) is int and width % 2 == 0 and sorted(spans) == [(0, width // 2), (width // 2, width)]


def _meet(first, second) -> bool:
    """Whether two graph nodes, each read by one elementwise operator after another, come together in one."""
    ends = []
    for node in (first, second):
        while len(node.users) == 1:
            user = next(iter(node.users))
            tensors = [a for a in user.args if hasattr(a, "op")]
            if len(tensors) == 2 or user.op != "call_function" or operator_of(user.target).writes or _sizes(user) != _sizes(node):
                node = user
                break
            node = user
        ends.append(node)
    return ends[0] is ends[1] and ends[0].op == "call_function" and _sizes(ends[0]) == _sizes(first) and not operator_of(ends[0].target).writes


def _sizes(node) -> object:
    return getattr(node.meta.get("value"), "sizes", None)


def _bytes(tensor) -> bytes:
    """What lies between the first and the end of the last element of a tensor in the host's memory."""
    tensor = tensor.detach().cpu()
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    return ctypes.string_at(tensor.data_ptr(), span * tensor.element_size()) if span else b""


def _live_nodes(nodes: list[Node], buffers: dict[str, Buffer], live: set[str]) -> tuple[Node, ...]:
    """The nodes whose results are in `live` or reach it; `live` grows by what they touch."""
    kept = []
    for node in reversed(nodes):
        if isinstance(node, (Compute, Scan)) and node.out not in live:
            continue
        for name in touched(node):
            live.add(name)
            if buffers[name].alias:
                live.add(buffers[name].alias)
        kept.append(node)
    return tuple(reversed(kept))


def touched(node: Node) -> Iterable[str]:
    """The buffers that `node` reads or writes."""
    match node:
        case Compute(out, _, value) | Scan(out, _, _, _, value):
            return [out, *[read.buffer for read in loads(value)]]
        case Update(target, _, index, value):
            inside = [read.buffer for at in index if not isinstance(at, (int, Size)) for read in loads(at)]
            return [target, *inside, *[read.buffer for read in loads(value)]]
        case Extern(_, args, kwargs, outs):
            return [*outs, *references((*args, *[value for _, value in kwargs]))]
        case _:
            raise TypeError(f"not a node of a program: {node!r}")
