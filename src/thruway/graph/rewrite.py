"""Small tools for changing a graph: new nodes with metadata, replacing, what shares storage and what is written, and
bringing metadata up to date after a change of layout.

Every pass edits what `editable` gives it, so an untouched graph comes back as the same object.
Afterwards `settled` re-infers what the change reached and gives the outputs eager's strides again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace as replaced
from functools import lru_cache
from itertools import permutations, takewhile
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from thruway.core.dtypes import ITEMSIZE
from thruway.core.errors import CompilerBug, Unsupported
from thruway.core.journal import Journal
from thruway.core.sizes import (
    Atom, FloorDiv, Max, Min, Mod, Size, SizeLike, Symbol, add, as_symbol, atom, floordiv, maximum, minimum, mod, mul, product,
)
from thruway.core.target import Target
from thruway.shapes.infer import infer
from thruway.shapes.meta import TensorMeta, contiguous_strides
from thruway.shapes.nodes import make_node
from thruway.shapes.traits import UNSAID_VIEWS

aten = torch.ops.aten
TOLD = 8                        # names that one note shows
SKIPS_A_ROUNDING = frozenset({"convolution with residual", "library epilogue"})


@dataclass(slots=True)
class Context:
    """What passes may know and what they report. `numerics` as in Settings; `derived_limit`: bytes that values kept between
    calls may take (None: any); `denied`: names of weights of which nothing may be kept; `owns_graph`: a pass may change the graph that it is
    given; `notes`: (kind, text) records of the numeric exceptions taken and of choices refused."""

    target: Target = Target()
    numerics: str = "eager"
    derived_limit: int | None = None
    derived_bytes: int = 0
    denied: frozenset[str] = frozenset()
    owns_graph: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list)

    def allows(self, exception: str, node: Node) -> bool:
        """Whether the numeric exception may be taken at `node`; noted where it is. In float16 the rounding that is skipped might overflow."""
        if self.numerics == "strict" or (exception in SKIPS_A_ROUNDING and meta(node).dtype == "float16"):
            return False
        self.notes.append(("numerics", exception))
        return True

    def reserve(self, amount: int | None, weight: Node) -> bool:
        """Takes `amount` bytes for a value derived from `weight`; False, with a note, where that would pass the limit or is unknown."""
        beyond = amount is None or (self.derived_limit is not None and self.derived_bytes + amount > self.derived_limit)
        if amount is None or beyond or (self.denied and not self.denied.isdisjoint(_names_below(weight))):
            self.notes.append(("unpacked", f"{weight.name}: memory"))
            return False
        self.derived_bytes += amount
        return True

    def tell(self, journal: Journal, name: str) -> None:
        """Journals what was noted, one event of each kind."""
        for kind in dict.fromkeys(kind for kind, _ in self.notes):
            told = list(dict.fromkeys(text for other, text in self.notes if other == kind))
            more = f" and {len(told) - TOLD} more" if len(told) > TOLD else ""
            journal.add(kind, name, ", ".join(told[:TOLD]) + more)


def _names_below(node: Node) -> set[str]:
    """The placeholders that a derived value is made of."""
    found, left = {node}, [node]
    while left:
        fresh = [used for used in left.pop().all_input_nodes if used not in found]
        found.update(fresh)
        left.extend(fresh)
    return {one.name for one in found if one.op == "placeholder"}


VIEWS_BY_SIZES = frozenset({aten.view.default, aten._unsafe_view.default})
STRIDE_READERS = frozenset({aten.as_strided.default, aten.view.dtype, aten.view_as_complex.default, aten.view_as_real.default})

Rule = Callable[["Emitter", Node, SimpleNamespace, Context], Any]


class Emitter:
    """Adds nodes before `anchor`, each with inferred metadata and the anchor's user line."""

    def __init__(self, anchor: Node):
        self.anchor, self.graph = anchor, anchor.graph

    def __call__(self, op: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Node:
        return self.known(infer(op, values(args), values(kwargs)), op, *args, **kwargs)

    def known(self, value: Any, op: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Node:
        """The same where `shapes` has no rule for `op` (library calls) and the caller knows what comes out."""
        with self.graph.inserting_before(self.anchor):
            node = make_node(self.graph, "call_function", op, args, kwargs)
        node.meta.update(value=value, line=self.anchor.meta.get("line"))
        return node

    def item(self, node: Node, index: int) -> Node:
        return self.known(meta(node)[index], operator.getitem, node, index)

    def size(self, size: SizeLike) -> int | Node:
        """An argument whose value is `size`: the integer, an earlier node that has this value, or one computed for it."""
        if type(size) is int:
            return size
        earlier = takewhile(lambda node: node is not self.anchor, self.graph.nodes)
        return next((node for node in earlier if node.meta.get("value") == size), None) or self._computed(size)

    def _computed(self, size: Size) -> int | Node:
        total: int | Node = 0
        for monomial, coefficient in size.terms.items():
            term: int | Node = coefficient
            for factor in monomial:
                term = self._arithmetic(operator.mul, self._atom(factor), term)
            total = self._arithmetic(operator.add, term, total)
        return total

    def _atom(self, factor: Atom) -> int | Node:
        match factor:
            case Symbol():
                node, dim = _size_of_placeholder(self.graph, factor)
                return self.known(atom(factor), aten.sym_size.int, node, dim)
            case FloorDiv(left, right):
                return self._arithmetic(operator.floordiv, self.size(left), self.size(right))
            case Mod(left, right):
                return self._arithmetic(operator.mod, self.size(left), self.size(right))
            case Max(left, right):
                return self._arithmetic(torch.sym_max, self.size(left), self.size(right))
            case Min(left, right):
                return self._arithmetic(torch.sym_min, self.size(left), self.size(right))
            case _:
                raise TypeError(f"not an atom of a size: {factor!r}")

    def _arithmetic(self, function: Callable[..., Any], left: int | Node, right: int | Node) -> int | Node:
        if (function, right) in ((operator.mul, 1), (operator.add, 0)):
            return left
        a, b = (meta(x) if isinstance(x, Node) else x for x in (left, right))
        value = ARITHMETIC[function](a, b)
        return value if type(value) is int else self.known(value, function, left, right)

    def sizes(self, sizes: Iterable[SizeLike]) -> list[int | Node]:
        """Sizes for a view or a reshape: one symbolic size may stay open as -1."""
        given = list(sizes)
        if sum(type(size) is not int for size in given) == 1 and 0 not in given:
            return [size if type(size) is int else -1 for size in given]
        return [self.size(size) for size in given]

    def expand(self, node: Node, sizes: Iterable[SizeLike]) -> Node:
        """`node` broadcast to `sizes`; sizes that it has already stay open."""
        wanted, had = tuple(sizes), meta(node).sizes
        if wanted == had:
            return node
        had = (None,) * (len(wanted) - len(had)) + had
        return self(aten.expand.default, node, [-1 if type(n) is not int and n == h else self.size(n) for n, h in zip(wanted, had, strict=True)])

    def cast(self, node: Node, dtype: str) -> Node:
        return node if meta(node).dtype == dtype else self(aten._to_copy.default, node, dtype=getattr(torch, dtype))

    def view(self, node: Node, sizes: Iterable[SizeLike]) -> Node:
        """A view where strides allow, else a contiguous copy viewed."""
        wanted = tuple(sizes)
        if meta(node).sizes == wanted:
            return node
        if not is_viewable(meta(node), wanted):
            node = self(aten.clone.default, node, memory_format=torch.contiguous_format)
        return self(aten.view.default, node, self.sizes(wanted))


ARITHMETIC = {operator.mul: mul, operator.add: add, operator.floordiv: floordiv, operator.mod: mod, torch.sym_max: maximum,
              torch.sym_min: minimum}


def _size_of_placeholder(graph: Graph, symbol: Symbol) -> tuple[Node, int]:
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta["value"]
        for dim, size in enumerate(value.sizes if isinstance(value, TensorMeta) else ()):
            if as_symbol(size) == symbol:
                return node, dim
    raise Unsupported("TW301", f"no input of the graph has the size {symbol.name}")


def values(tree: Any) -> Any:
    """Arguments with each node replaced by its metadata, in plain tuples, lists and dicts."""
    if isinstance(tree, Node):
        return tree.meta["value"]
    if isinstance(tree, tuple):
        return tuple([values(one) for one in tree])
    if isinstance(tree, list):
        return [values(one) for one in tree]
    return {key: values(one) for key, one in tree.items()} if isinstance(tree, dict) else tree


def meta(node: Node) -> Any:
    return node.meta["value"]


def bind(node: Node) -> SimpleNamespace:
    """All arguments of an operator by name, defaults filled in (`self` too)."""
    return SimpleNamespace(**{a.name: _argument(node, i, a) for i, a in enumerate(node.target._schema.arguments)})


def _argument(node: Node, position: int, argument: Any) -> Any:
    if position < len(node.args) and not argument.kwarg_only:
        return node.args[position]
    return node.kwargs.get(argument.name, argument.default_value)


def is_op(node: Any, *ops: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target in ops


def bytes_of(value: TensorMeta) -> int | None:
    count = product(value.sizes)
    return count * ITEMSIZE[value.dtype] if type(count) is int else None


def numel(value: TensorMeta) -> SizeLike:
    return product(value.sizes)


def is_channels_last(value: TensorMeta) -> bool:
    """Dense with channels innermost; dimensions of size 1 may have any stride."""
    n, c, h, w = value.sizes
    wanted = (h * w * c, 1, w * c, c)
    return all(s == t for size, s, t in zip(value.sizes, value.strides, wanted, strict=True) if size != 1)


def same_layout(a: Any, b: Any) -> bool:
    """Equal in all that a reader of the values sees: sizes, strides of dimensions longer than 1, dtype, device."""
    if not isinstance(a, TensorMeta) or not isinstance(b, TensorMeta):
        return a == b
    return (a.sizes, a.dtype, a.device) == (b.sizes, b.dtype, b.device) and all(
        s == t for size, s, t in zip(a.sizes, a.strides, b.strides, strict=True) if size != 1) or (
        (a.sizes, a.dtype, a.device) == (b.sizes, b.dtype, b.device) and 0 in a.sizes)


def is_contiguous(value: TensorMeta) -> bool:
    wanted = contiguous_strides(value.sizes)
    return 0 in value.sizes or all(s == w for n, s, w in zip(value.sizes, value.strides, wanted, strict=True) if n != 1)


def is_viewable(value: TensorMeta, sizes: tuple[SizeLike, ...]) -> bool:
    """Whether `view(sizes)` of such a tensor needs no copy (the rule of torch's computeStride), certain for these sizes."""
    if is_contiguous(value):
        return True
    groups = _matching_groups(value.sizes, sizes)
    return groups is not None and all(_is_one_run(value, dims) for dims in groups)


def _matching_groups(old: tuple[SizeLike, ...], new: tuple[SizeLike, ...]) -> list[list[int]] | None:
    """Groups of old dimensions that a view merges or splits as one: the shortest runs with equal products."""
    groups: list[list[int]] = []
    i = j = 0
    while i < len(old):
        dims, left, right = [i], old[i], 1
        i += 1
        while left != right:
            smaller_left = type(left) is int and type(right) is int and left < right
            if j < len(new) and not smaller_left:
                right, j = mul(right, new[j]), j + 1
            elif i < len(old) and smaller_left:
                dims.append(i)
                left, i = mul(left, old[i]), i + 1
            else:
                return _symbolic_tail(groups, dims, old)
        groups.append(dims)
    return groups


def _symbolic_tail(groups: list[list[int]], dims: list[int], old: tuple[SizeLike, ...]) -> list[list[int]]:
    """Where sizes cannot be matched, the rest counts as one group."""
    return [*groups, list(range(dims[0], len(old)))]


def _is_one_run(value: TensorMeta, dims: list[int]) -> bool:
    """Whether these neighboring dimensions step through memory as a single dimension would."""
    kept = [d for d in dims if value.sizes[d] != 1]
    return all(value.strides[a] == mul(value.strides[b], value.sizes[b]) for a, b in zip(kept, kept[1:], strict=False))


@lru_cache(maxsize=None)
def alias_arguments(op: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of the arguments that the results may share storage with, and of those written in place."""
    if not isinstance(op, torch._ops.OpOverload):
        return ((0,), ()) if op is operator.getitem else ((), ())
    if op is aten._unsafe_view.default or op._name in UNSAID_VIEWS:      # their schemas keep from autograd that they are views
        return (0,), ()
    arguments = op._schema.arguments
    writes = tuple(i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write)
    returned = {name for r in op._schema.returns if r.alias_info is not None for name in r.alias_info.before_set}
    views = tuple(i for i, a in enumerate(arguments) if a.alias_info is not None and (set(a.alias_info.before_set) & returned or _into_list(a)))
    return views, writes


def _into_list(argument: Any) -> bool:
    """Whether the result is a list of views of the argument, which the schema says at the argument alone: (a -> *)."""
    return not argument.alias_info.is_write and "*" in argument.alias_info.after_set


def _nodes_at(node: Node, positions: tuple[int, ...]) -> list[Node]:
    found: list[Node] = []
    for position in positions:
        name = node.target._schema.arguments[position].name if hasattr(node.target, "_schema") else None
        argument = node.args[position] if position < len(node.args) else node.kwargs.get(name)
        map_arg(argument, found.append)
    return found


class Storages:
    """Which nodes share storage and which storages the graph writes. `roots[n]`: the nodes that made the memory n lives in;
    `version(n, reader)`: how often that memory was written before `reader` runs."""

    def __init__(self, graph: Graph):
        self.roots: dict[Node, frozenset[Node]] = {}
        self.written: dict[Node, list[int]] = {}
        self.place: dict[Node, int] = {}
        self.escaping: set[Node] = set()
        for place, node in enumerate(graph.nodes):
            self._add(place, node)

    def _add(self, place: int, node: Node) -> None:
        self.place[node] = place
        if node.op == "output":
            for used in node.all_input_nodes:
                self.escaping |= self.roots[used]
        if node.op != "call_function":
            self.roots[node] = frozenset({node})
            return
        views, writes = alias_arguments(node.target)
        bases = [root for base in _nodes_at(node, views) for root in self.roots[base]]
        self.roots[node] = frozenset(bases) or frozenset({node})
        for target in _nodes_at(node, writes):
            for root in self.roots[target]:
                self.written.setdefault(root, []).append(place)

    def is_written(self, node: Node) -> bool:
        return any(root in self.written for root in self.roots[node])

    def escapes(self, node: Node) -> bool:
        return bool(self.roots[node] & self.escaping)

    def version(self, node: Node, reader: Node) -> int:
        before = self.place[reader]
        return sum(place < before for root in self.roots[node] for place in self.written.get(root, ()))


@lru_cache(maxsize=None)
def is_random(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


def is_pure(node: Node) -> bool:
    """Gives something, writes nothing, draws nothing: running it never, once or twice is the same to others."""
    return node.op == "call_function" and _is_pure_operator(node.target)


@lru_cache(maxsize=None)
def _is_pure_operator(op: Any) -> bool:
    return not alias_arguments(op)[1] and not is_random(op) and not _gives_nothing(op)


def _gives_nothing(op: Any) -> bool:
    """Such an operator is called for what it does: an assertion."""
    return isinstance(op, torch._ops.OpOverload) and not op._schema.returns


def copied(graph: Graph) -> Graph:
    """A copy whose nodes have the same names and metadata (of their own, one level deep)."""
    fresh, twins = Graph(), {}
    for node in graph.nodes:
        twin = make_node(fresh, node.op, node.target, *map_arg((node.args, node.kwargs), twins.__getitem__), node.name)
        twin.meta.update(node.meta)
        twins[node] = twin
    return fresh


def editable(graph: Graph, context: Context) -> Graph:
    """What a pass may change: `graph` itself where nobody needs it as it was, else a copy."""
    return graph if context.owns_graph else copied(graph)


def output_values(graph: Graph) -> list[tuple[int, Any]]:
    """Of each output the position where it stands first, and its value."""
    first: dict[int, int] = {}
    return [(first.setdefault(id(item), k), values(item)) for k, item in enumerate(graph.output_node().args[0])]


def replace(old: Node, new: Node) -> None:
    """All uses of `old` become uses of `new`; `old` goes. Sizes and dtype must agree, strides need not."""
    before, after = meta(old), meta(new)
    if isinstance(before, TensorMeta) and (before.sizes, before.dtype) != (after.sizes, after.dtype):
        raise CompilerBug("rewrite", f"{old.name}: {before} became {after}")
    users = list(old.users)
    old.replace_all_uses_with(new)
    old.graph.erase_node(old)
    mark_stale(new, users, before)


def mark_stale(node: Node, users: Iterable[Node], before: Any) -> None:
    """`users` of `node` were inferred when its metadata was `before`: if it differs they get inferred anew, or, where they read
    strides as such, a copy with the old layout."""
    if before == meta(node):
        return
    for user in users:
        if user.target in STRIDE_READERS and not same_layout(before, meta(node)):
            user.replace_input_with(node, restride(Emitter(user), node, before, viewed=True))
        elif user.op == "call_function":
            user.meta["stale"] = True


def apply_rules(graph: Graph, rules: Mapping[Any, Rule], context: Context) -> Graph:
    """Each rule at each node that it names, until none is left that a rule changes; nodes that a rule emits count too."""
    if not any(node.target in rules for node in graph.nodes if node.op == "call_function"):
        return graph
    fresh, wanted = editable(graph, context), output_values(graph)
    changed = False
    node = next(iter(fresh.nodes))
    while node.op != "output":
        before, following = node.prev, node.next
        if node.op == "call_function" and node.target in rules and _apply(rules[node.target], node, context):
            changed, following = True, before.next
        node = following
    return settled(fresh, wanted) if changed else graph


def _apply(rule: Rule, node: Node, context: Context) -> bool:
    emit = Emitter(node)
    result = None if node.meta.get("kept") else rule(emit, node, bind(node), context)
    if result is None:
        return False
    if isinstance(result, tuple):
        _replace_items(node, result)
    else:
        replace(node, result)
    return True


def _replace_items(node: Node, results: tuple[Node | None, ...]) -> None:
    for user in list(node.users):
        index = user.args[1] if user.target is operator.getitem else None
        if index is None or results[index] is None:
            raise CompilerBug("rewrite", f"{user.name} uses {node.name}, which gives several values, in a way that no rule covers")
        replace(user, results[index])
    node.graph.erase_node(node)


def settled(graph: Graph, wanted: list[tuple[int, Any]]) -> Graph:
    """After edits: unused nodes gone, metadata inferred anew where inputs changed, outputs with the layout `wanted`."""
    erase_unused(graph)
    repropagate(graph)
    restore_outputs(graph, wanted)
    return graph


def erase_unused(graph: Graph) -> bool:
    """Pure nodes without users go, but for those marked as kept."""
    changed = False
    for node in reversed(list(graph.nodes)):
        if not node.users and is_pure(node) and not node.meta.get("kept"):
            graph.erase_node(node)
            changed = True
    return changed


def repropagate(graph: Graph) -> None:
    """Infers the nodes marked stale again, and what follows from them. A view that the new strides do not allow gets a
    contiguous copy in front."""
    for node in list(graph.nodes):
        refresh(node)
    if any(node.meta.get("made_viewable") for node in graph.nodes):
        storages = Storages(graph)
        if any(node.meta.get("made_viewable") and storages.is_written(node) for node in graph.nodes):
            raise Unsupported("TW302", "a write through a view of a tensor whose layout was changed")


def refresh(node: Node) -> None:
    """Infers `node` again where it is stale; where its layout changes its users become stale."""
    if not node.meta.pop("stale", False):
        return
    before = meta(node)
    _make_viewable(node)
    node.meta["value"] = _infer_again(node)
    mark_stale(node, list(node.users), before)


def _infer_again(node: Node) -> Any:
    if node.target is operator.getitem:
        return meta(node.args[0])[node.args[1]]
    if not isinstance(meta(node), (TensorMeta, tuple, list)):
        return meta(node)
    return infer(node.target, values(node.args), values(node.kwargs))


def _make_viewable(node: Node) -> None:
    if node.target not in VIEWS_BY_SIZES or is_viewable(meta(node.args[0]), meta(node).sizes):
        return
    source = node.args[0]
    copy = Emitter(node)(aten.clone.default, source, memory_format=torch.contiguous_format)
    copy.meta["made_viewable"] = True
    node.replace_input_with(source, copy)


def restore_outputs(graph: Graph, wanted: list[tuple[int, Any]]) -> None:
    """Outputs get the layout `wanted`, by a copy where theirs differs. Those that were different tensors and became one are two again."""
    output = graph.output_node()
    items = _with_views_restored(output, list(output.args[0]), [layout for _, layout in wanted])
    given: dict[Node, int] = {}
    for i, (item, (first, layout)) in enumerate(zip(items, wanted, strict=True)):
        if isinstance(item, Node) and not same_layout(meta(item), layout):
            items[i] = restride(Emitter(output), item, layout)
        if isinstance(item, Node) and given.setdefault(items[i], first) != first:
            items[i] = Emitter(output)(aten.alias.default, items[i])
    output.args = (tuple(items),)


def _with_views_restored(output: Node, items: list[Any], layouts: list[Any]) -> list[Any]:
    """Outputs that live in one memory whose layout has changed: it is copied as it was laid out, and they become views of the copy."""
    outputs = [(item, layout) for item, layout in zip(items, layouts, strict=True) if isinstance(item, Node)]
    changed = [item for item, layout in outputs if not same_layout(meta(item), layout) or _memory(item) is not _memory(item, False)]
    if not changed or len(output.all_input_nodes) < 2:
        return items
    for root in dict.fromkeys(map(_memory, changed)):
        sharing = {item: layout for item, layout in outputs if _memory(item) is root}
        if len(sharing) == 1 or root.op == "placeholder":
            continue
        fits = (one for one in _dense_layouts(meta(root)) if all(same_layout(_over(one, root, item), layout) for item, layout in sharing.items()))
        if (before := next(fits, None)) is None:
            raise Unsupported("TW302", "several views of one tensor, whose layout was changed")
        remade = {root: restride(Emitter(output), root, before)}
        items = [_remade(Emitter(output), item, remade) if item in sharing else item for item in items]
    return items


def _base(node: Node, through: bool = True) -> Node | None:
    """What `node` is a view of, also (`through`) where a change of layout has put a copy in between."""
    if through and node.meta.get("made_viewable"):
        return node.args[0]
    bases = _nodes_at(node, alias_arguments(node.target)[0]) if node.op == "call_function" else []
    return bases[0] if bases else None


def _memory(node: Node, through: bool = True) -> Node:
    """The node that made the memory of `node`."""
    while (base := _base(node, through)) is not None:
        node = base
    return node


def _is_base(node: Node) -> bool:
    """Whether `node` is nothing but its base, written or copied."""
    return bool(node.meta.get("made_viewable") or alias_arguments(node.target)[1])


def _dense_layouts(value: TensorMeta) -> Iterator[TensorMeta]:
    for order in permutations(range(len(value.sizes))) if len(value.sizes) <= 5 else ():
        strides = dict(zip(order, contiguous_strides(tuple(value.sizes[d] for d in order))))
        yield replaced(value, strides=tuple(strides[d] for d in range(len(order))), offset=0)


def _over(layout: TensorMeta, root: Node, view: Node) -> Any:
    """What `view` of `root` would be if that had `layout`; None where it could not be."""
    if view is root:
        return layout
    base = _base(view)
    below = _over(layout, root, base)
    if below is None or _is_base(view):
        return below
    if view.target is operator.getitem:
        return below[view.args[1]]
    try:
        return infer(view.target, *(map_arg(tree, lambda node: below if node is base else meta(node)) for tree in (view.args, dict(view.kwargs))))
    except Unsupported:
        return None


def _remade(emit: Emitter, view: Node, remade: dict[Node, Node]) -> Node:
    if view not in remade:
        base = _base(view)
        below = _remade(emit, base, remade)
        if _is_base(view):
            remade[view] = below
        elif view.target is operator.getitem:
            remade[view] = emit.item(below, view.args[1])
        else:
            args, kwargs = (map_arg(tree, lambda node: below if node is base else node) for tree in (view.args, dict(view.kwargs)))
            remade[view] = emit(view.target, *args, **kwargs)
    return remade[view]


def restride(emit: Emitter, node: Node, layout: TensorMeta, viewed: bool = False) -> Node:
    """A copy of `node` with the strides of `layout`: dense in some order of dimensions, some of them expanded. `viewed`: by what would be a view
    of `node`. Unsupported where strides leave gaps."""
    broadcast = [d for d, (n, s) in enumerate(zip(layout.sizes, layout.strides, strict=True)) if s == 0 and n != 1]
    for d in broadcast:
        node = emit(aten.slice.Tensor, node, d, 0, 1)
    order = _dense_order(meta(node).sizes, layout.strides)
    if order is None:
        raise Unsupported("TW302", f"a copy with strides {layout.strides} of sizes {layout.sizes}")
    turned = order != sorted(order)
    node = emit(aten.permute.default, node, order) if turned else node
    node = emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    node.meta["made_viewable"] = viewed
    node = emit(aten.permute.default, node, [order.index(d) for d in range(len(order))]) if turned else node
    return emit.expand(node, layout.sizes)


def _dense_order(sizes: tuple[SizeLike, ...], strides: tuple[SizeLike, ...]) -> list[int] | None:
    """Dimensions from the outermost to the innermost of a tensor without gaps; None where there is no such order."""
    left, order, step = list(range(len(sizes))), [], 1
    for d in reversed([d for d in left if sizes[d] == 1]):
        left.remove(d)
        order.append(d)
    while left:
        inner = next((d for d in reversed(left) if strides[d] == step), None)
        if inner is None:
            return None
        left.remove(inner)
        order.append(inner)
        step = mul(step, sizes[inner])
    return order[::-1]
