"""`functionalize`: from eager's program, operator by operator, to the room's conventions on writes.

Takes a graph whose nodes run in order with eager's meaning (in-place operators, out=, views). Gives one where whole overwrites of
fresh tensors are functional; writes to inputs and partial writes stay in place, in order; and every read sees the right version,
through views that stand behind the last write. Afterwards an in-place node has no users.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from thruway.core.errors import Unsupported
from thruway.graph.aliases import CONSTANT, FRESH, Place, node_traits, place_nodes, root_kind, written_arguments
from thruway.graph.raising import can_raise
from thruway.shapes.infer import infer
from thruway.shapes.meta import TensorMeta
from thruway.shapes.names import torch_dtype
from thruway.shapes.nodes import make_node
from thruway.shapes.refuse import METADATA_MUTATION
from thruway.shapes.symbolic import Facts
from thruway.shapes.traits import functional_form

aten = torch.ops.aten

# In-place operators that leave some elements as they were.
PARTIAL = frozenset({
    "aten::index_put_", "aten::_index_put_impl_", "aten::index_copy_", "aten::index_add_", "aten::index_fill_", "aten::scatter_",
    "aten::scatter_add_", "aten::scatter_reduce_", "aten::masked_scatter_", "aten::put_", "aten::index_reduce_", "aten::fill_diagonal_",
})


@dataclass(slots=True)
class Storage:
    """One storage while the new graph is written: the node that holds it now, and how often it was written. `undone`: the inverse
    views that lead from the node that owns the memory to `node`, where it was overwritten through views."""

    kind: str
    node: Node
    version: int = 0
    undone: tuple[Node, ...] = ()

    def become(self, node: Node, undone: tuple[Node, ...] = ()) -> None:
        self.node, self.kind, self.undone = node, FRESH, undone
        self.version += 1


@dataclass(slots=True)
class Rewriter:
    graph: Graph
    places: dict[Node, Place]
    facts: Facts | None
    values: dict[Node, Node] = field(default_factory=dict)                  # old node that owns no storage → new node
    storages: dict[Node, Storage] = field(default_factory=dict)             # old root → its storage
    views: dict[tuple[Node, int], Node] = field(default_factory=dict)       # old view at a version → new node

    def now(self, old: Node) -> Node:
        """The new node that holds what `old` holds at this place in the order."""
        place = self.places.get(old)
        if place is None:
            return self.values[old]
        storage = self.storages[place.root]
        if place.parent is None:
            return storage.node
        if _is_same_tensor(old):
            return self.now(place.parent)
        key = (old, storage.version)
        if key not in self.views:
            parent = self.now(place.parent)
            self.views[key] = self._copy(old, lambda n: parent if n is place.parent else self.now(n))
        return self.views[key]

    def _copy(self, old: Node, mapped) -> Node:
        args, kwargs = map_arg(old.args, mapped), map_arg(old.kwargs, mapped)      # first: this may add nodes
        new = make_node(self.graph, old.op, old.target, args, kwargs, old.name)
        new.meta.update(old.meta)
        return new

    def emit(self, like: Node, op: OpOverload, args: tuple, kwargs: dict | None = None, value: object = None) -> Node:
        """A further node for the user's line of `like`; its value is inferred where none is given."""
        node = make_node(self.graph, "call_function", op, args, kwargs)
        node.meta["line"] = like.meta.get("line")
        node.meta["value"] = infer(op, _metas(args), _metas(kwargs or {}), self.facts) if value is None else value
        return node

    def keep(self, old: Node) -> None:
        """A node without writes: a view is made now for the reader's sake, anything else is copied."""
        place = self.places.get(old)
        if place is not None and place.parent is not None:
            self.now(old)
            return
        new = self._copy(old, self.now)
        if place is None:
            self.values[old] = new
        else:
            self.storages[old] = Storage(root_kind(old), new)

    def write(self, old: Node) -> None:
        """A node with writes: functional where it overwrites a whole fresh tensor, else kept in place."""
        traits = node_traits(old)
        targets = written_arguments(old)
        if traits.outs:
            return self._write_outs(old, targets)
        if traits.inplace and len(targets) == 1 and old.target._schema.name not in PARTIAL and self._overwrite(old, targets[0]):
            return
        for target in targets:
            self._own(target)
        new = self._copy(old, self.now)
        self.values[old] = new
        for target in targets:
            self._advance(target)
        if not traits.inplace and isinstance(old.meta["value"], TensorMeta):
            self.storages[old] = Storage(FRESH, new)

    def _advance(self, target: Node) -> None:
        """After a write in place: whatever is read from now on stands behind it."""
        storage = self.storages[self.places[target].root]
        storage.version += 1
        if storage.undone:
            node, again = storage.undone[0].args[0], []
            for view in storage.undone:
                node = self.emit(view, view.target, (node, *view.args[1:]), value=view.meta["value"])
                again.append(node)
            storage.node, storage.undone = node, tuple(again)

    def _own(self, target: Node) -> None:
        """A literal is cloned before it is written."""
        storage = self.storages[self.places[target].root]
        if storage.kind == CONSTANT:
            storage.become(self.emit(target, aten.clone.default, (storage.node,)))

    def _overwrite(self, old: Node, target: Node) -> bool:
        """The functional form of in-place `old`, where its target is all of a fresh storage."""
        op = functional_form(old.target)
        storage = self.storages[self.places[target].root]
        if op is None or storage.kind not in (FRESH, CONSTANT) or not self._covers(target):
            return False
        made = self._try(old, op, map_arg(_with_defaults(old, op), self.now), map_arg(dict(old.kwargs), self.now))
        return made is not None and self._become(old, target, made)

    def _try(self, old: Node, op: OpOverload, args: tuple, kwargs: dict) -> Node | None:
        try:
            return self.emit(old, op, args, kwargs)
        except Unsupported:
            return None

    def _become(self, old: Node, target: Node, made: Node) -> bool:
        """`made` is the new contents of `target`; False where its layout is not the target's."""
        wanted = target.meta["value"]
        if made.meta["value"].dtype != wanted.dtype:
            made = self.emit(old, aten._to_copy.default, (made,), {"dtype": torch_dtype(wanted.dtype)})
        whole = made if same_layout(made.meta["value"], wanted) else None
        node, undone = target, []
        while whole is not None and self.places[node].parent is not None:
            before, whole = whole, self._undo(old, node, whole)
            node = self.places[node].parent
            if whole is not before:
                undone.append(whole)
        if whole is None:
            return False
        storage = self.storages[node]
        storage.become(whole, tuple(undone))
        if self.places[_view_of(target, self.places)].parent is not None:
            self.views[_view_of(target, self.places), storage.version] = made
        return True

    def _covers(self, target: Node) -> bool:
        """Whether the views from the root to `target` each hold every element of the one before, once."""
        node = target
        while (parent := self.places[node].parent) is not None:
            if not is_bijective(node):
                return False
            node = parent
        return True

    def _undo(self, old: Node, view: Node, value: Node) -> Node | None:
        """`value`, which has the layout of `view`, as its parent is laid out."""
        parent = self.places[view].parent
        wanted = parent.meta["value"]
        inverse = inverse_view(view)
        if inverse is None:
            return value
        made = self._try(old, inverse[0], (value, *map_arg(inverse[1], self.now)), {})
        return made if made is not None and same_layout(made.meta["value"], wanted) else None

    def _write_outs(self, old: Node, targets: list[Node]) -> None:
        """out=: the functional result takes the place of a fresh tensor, or is copied into it."""
        op = functional_form(old.target)
        if op is None:
            raise Unsupported("TW501", f"{old.target} has no form without out=")
        kwargs = {k: v for k, v in old.kwargs.items() if k not in node_traits(old).outs}
        made = self.emit(old, op, map_arg(old.args, self.now), map_arg(kwargs, self.now))
        for i, target in enumerate(targets):
            one = made
            if isinstance(made.meta["value"], (tuple, list)):
                one = self.emit(old, operator.getitem, (made, i), value=made.meta["value"][i])
            self._store(old, target, one)

    def _store(self, old: Node, target: Node, made: Node) -> None:
        storage = self.storages[self.places[target].root]
        before = target.meta["value"]
        if before.sizes != made.meta["value"].sizes:
            if storage.kind != FRESH or not self._stands_alone(target):
                raise Unsupported(METADATA_MUTATION, "out= resizes an input or a view")
            storage.become(self._cast(old, made, before.dtype))
        elif storage.kind != FRESH or not self._covers(target) or not self._become(old, target, made):
            self._own(target)
            self.emit(old, aten.copy_.default, (self.now(target), made))
            self._advance(target)

    def _stands_alone(self, target: Node) -> bool:
        """Whether `target` is all that anyone knows of its storage (a factory's result may come through one detach)."""
        root = _view_of(target, self.places)
        return self.places[root].parent is None and (root is target or set(root.users) == {target})

    def _cast(self, old: Node, made: Node, dtype: str) -> Node:
        if made.meta["value"].dtype == dtype:
            return made
        return self.emit(old, aten._to_copy.default, (made,), {"dtype": torch_dtype(dtype)})

    def finish(self, old: Node) -> None:
        """The output. A literal that leaves is cloned, so that the caller may write it; a tensor that eager gives beside another one, or beside
        an input, stays another tensor."""
        for node in old.all_input_nodes:
            if node in self.places:
                self._own(node)
        own = {one: self.now(one) for one in old.all_input_nodes}
        owners: dict[Node, Node] = {}                    # of several that are one by now, the first that owns its storage keeps it
        for one in sorted(own, key=lambda one: one in self.places and self.places[one].parent is not None):
            owners.setdefault(own[one], one)
        outputs = []
        for one in old.args[0]:
            node = own[one] if isinstance(one, Node) else one
            if isinstance(one, Node) and (owners[node] is not one or one.target in _ALIASES and node.op == "placeholder"):
                node = self.emit(one, aten.alias.default, (node,))
            outputs.append(node)
        self.graph.output(tuple(outputs))


def functionalize(graph: Graph, facts: Facts | None = None) -> Graph:
    """A new graph; `graph` is left as it was. `facts` are those under which symbolic sizes were traced."""
    rewriter = Rewriter(Graph(), place_nodes(graph), facts)
    for node in graph.nodes:
        if node.op == "output":
            rewriter.finish(node)
        elif node.op == "call_function" and (traits := node_traits(node)) is not None and traits.writes:
            rewriter.write(node)
        else:
            rewriter.keep(node)
    mark_written_weights(rewriter.graph)
    drop_unread(rewriter.graph)
    return rewriter.graph


def mark_written_weights(graph: Graph) -> None:
    """A placeholder that the graph writes is no weight."""
    places = place_nodes(graph)
    for node in graph.nodes:
        for target in written_arguments(node):
            places[target].root.meta["weight"] = False


def drop_unread(graph: Graph) -> None:
    """Removes functional nodes and views that nothing reads. Writes, random operators, assertions (they give nothing) and what can raise stay."""
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users:
            if has_effect(node):
                node.meta["pinned"] = can_raise(node)
            elif can_raise(node):
                node.meta["kept"] = True
            else:
                graph.erase_node(node)


def has_effect(node: Node) -> bool:
    traits = node_traits(node)
    return traits is not None and (bool(traits.writes) or traits.random or not node.target._schema.returns)


def same_layout(a: TensorMeta, b: TensorMeta) -> bool:
    return (a.sizes, a.strides, a.dtype, a.device) == (b.sizes, b.strides, b.dtype, b.device)


def _is_same_tensor(node: Node) -> bool:
    """The result of an in-place operator, or a plain alias: nothing but its parent."""
    traits = node_traits(node)
    return traits is not None and (traits.inplace or node.target in _ALIASES)


def is_bijective(view: Node) -> bool:
    """Whether a view node holds each element of its parent exactly once."""
    if _is_same_tensor(view):
        return True
    if view.target is operator.getitem or not isinstance(view.meta["value"], TensorMeta):
        return False
    return view.target in _ALWAYS or _same_extent(view)


_ALIASES = frozenset({aten.alias.default, aten.detach.default})
_ALWAYS = frozenset({aten.view.default, aten.permute.default, aten.transpose.int, aten.t.default, aten.unsqueeze.default, aten.squeeze.default,
                     aten.squeeze.dim, aten.squeeze.dims, aten._reshape_alias.default})


def _same_extent(view: Node) -> bool:
    """A slice or expand that changes nothing."""
    parent = view.args[0].meta["value"]
    return view.target in (aten.slice.Tensor, aten.expand.default) and same_layout(parent, view.meta["value"])


def inverse_view(view: Node) -> tuple[OpOverload, tuple] | None:
    """The operator and further arguments that lead from a bijective view's layout back to its parent's; None where they are equal."""
    parent = view.args[0].meta["value"]
    if _is_same_tensor(view) or same_layout(parent, view.meta["value"]):
        return None
    match view.target:
        case aten.permute.default:
            order = [d % len(parent.sizes) for d in view.args[1]]
            return aten.permute.default, ([order.index(d) for d in range(len(order))],)
        case aten.transpose.int:
            return aten.transpose.int, view.args[1:]
        case aten.t.default:
            return aten.t.default, ()
        case _:
            return aten.view.default, (list(parent.sizes),)


def _with_defaults(old: Node, op: OpOverload) -> tuple:
    """The arguments of `old` for `op`, with those that only the schema of `old` has a default for."""
    args = list(old.args)
    for mine, its in zip(old.target._schema.arguments[len(args):], op._schema.arguments[len(args):], strict=False):
        if its.has_default_value() or its.kwarg_only or mine.name in old.kwargs:
            break
        args.append(mine.default_value)
    return tuple(args)


def _view_of(target: Node, places: dict[Node, Place]) -> Node:
    """`target`, or what it stands for where it is the result of an in-place operator or an alias."""
    while _is_same_tensor(target):
        target = places[target].parent
    return target


def _metas(value: object) -> object:
    if isinstance(value, Node):
        return value.meta["value"]
    if isinstance(value, (list, tuple)):
        return type(value)(_metas(v) for v in value)
    if isinstance(value, dict):
        return {k: _metas(v) for k, v in value.items()}
    return value
