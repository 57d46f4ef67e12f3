"""Exact simplification: the result has the same value bit for bit at every point where the expression was defined.

Sizes lose divisions that axis ranges decide; constants fold through the reference arithmetic; conversions there and back go;
Within and where lose branches that are never or always taken; equal Computes are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from thruway.core import sizes
from thruway.core.dtypes import COMPLEX, FLOATS, INTEGERS
from thruway.core.sizes import Ranges, Size, SizeLike, Symbol, add, bounds, is_negative, is_within, mul
from thruway.loops.arithmetic import NUMPY, apply, convert
from thruway.loops.expressions import literal, loads, references, rename_loads, with_children
from thruway.loops.ir import (
    Axis,
    Cast,
    CheckIndex,
    Compute,
    Condition,
    Expr,
    Extern,
    Index,
    IndexValue,
    Literal,
    Load,
    Node,
    Op,
    Program,
    Reduce,
    Scan,
    Update,
    Var,
    Within,
)

# Operators whose result on constants every target gives to the last bit.
FOLDABLE = frozenset({
    "add", "sub", "mul", "div", "min", "max", "bitand", "bitor", "bitxor", "bitnot", "eq", "ne", "lt", "le", "gt", "ge",
    "and", "or", "xor", "not", "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt", "isnan", "isinf", "where",
})
# dtype → dtypes that hold each of its values exactly.
HELD_BY = {
    "bool": frozenset(NUMPY) - {"bool"},
    "uint8": frozenset({"int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"}),
    "int8": frozenset({"int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"}),
    "int16": frozenset({"int32", "int64", "float32", "float64"}), "int32": frozenset({"int64", "float64"}), "int64": frozenset(),
    "float16": frozenset({"float32", "float64"}), "bfloat16": frozenset({"float32", "float64"}), "float32": frozenset({"float64"}),
}


def simplify(program: Program) -> Program:
    """The program with simpler expressions and without repeated Computes."""
    nodes, gone = merge_equal([simplify_node(node) for node in program.nodes], program)
    buffers = {name: buffer for name, buffer in program.buffers.items() if name not in gone}
    return replace(program, buffers=buffers, nodes=nodes, derived=tuple([simplify_node(node) for node in program.derived]))


def simplify_node(node: Node) -> Node:
    match node:
        case Compute(axes=axes) | Scan(axes=axes):
            return replace(node, value=simplify_expr(node.value, ranges_of(axes)))
        case Update(axes=axes):
            ranges = ranges_of(axes)
            return replace(node, index=_index(node.index, ranges), value=simplify_expr(node.value, ranges))
        case Extern():
            return node
        case _:
            raise TypeError(f"not a node of a program: {node!r}")


def ranges_of(axes: Sequence[Axis]) -> dict[Symbol, tuple[int, SizeLike]]:
    """Inclusive bounds of loop variables, symbolic where their extents are."""
    return {Symbol(axis.name): (0, add(axis.extent, -1)) for axis in axes}


def simplify_expr(x: Expr, ranges: Ranges) -> Expr:
    """`x` simplified where its axes run over `ranges`."""
    return _simplify(x, ranges, {})


def _index(index: Sequence[Index], ranges: Ranges) -> tuple[Index, ...]:
    return tuple([_size(at, ranges) if isinstance(at, (int, Size)) else simplify_expr(at, ranges) for at in index])


def _size(size: SizeLike, ranges: Ranges) -> SizeLike:
    """Only sizes with divisions, minima or maxima can get simpler."""
    if type(size) is int or all(isinstance(node, Symbol) for monomial in size.terms for node in monomial):
        return size
    return sizes.simplify(size, ranges)


def _simplify(x: Expr, ranges: Ranges, seen: dict[int, tuple[Expr, Expr]]) -> Expr:
    """Bottom-up; `seen` keeps each expression alive beside its result, so that identities stay unique."""
    if id(x) not in seen:
        seen[id(x)] = (x, _step(x, ranges, seen))
    return seen[id(x)][1]


def _step(x: Expr, ranges: Ranges, seen: dict) -> Expr:
    match x:
        case Literal() | Var():
            return x
        case Load(buffer, index, dtype):
            new = tuple([_size(at, ranges) if isinstance(at, (int, Size)) else _simplify(at, ranges, seen) for at in index])
            return x if all(a is b for a, b in zip(new, index)) else Load(buffer, new, dtype)
        case IndexValue(size, dtype):
            size = _size(size, ranges)
            return _constant(np.asarray(size, np.int64), "int64", dtype) if type(size) is int else IndexValue(size, dtype)
        case Op(_, args):
            new = tuple([_simplify(a, ranges, seen) for a in args])
            return _operator(x if all(a is b for a, b in zip(new, args)) else replace(x, args=new), ranges)
        case Cast(inner, dtype):
            return _cast(_simplify(inner, ranges, seen), dtype)
        case Within(conditions, then, other):
            return _within(x, ranges)
        case Reduce(op, axes, inner, dtype):
            return Reduce(op, axes, _simplify(inner, {**ranges, **ranges_of(axes)}, {}), dtype)
        case CheckIndex(inner):
            return _check(with_children(x, (_simplify(inner, ranges, seen),)), ranges)
        case _:
            raise TypeError(f"not a loop expression: {x!r}")


def _constant(value: np.ndarray, old: str, dtype: str) -> Literal:
    with np.errstate(all="ignore"):
        return literal(convert(value, old, dtype).item(), dtype)


def _operator(x: Op, ranges: Ranges) -> Expr:
    if x.name in FOLDABLE and all(isinstance(a, Literal) and a.dtype not in COMPLEX for a in x.args):
        return _fold(x)
    match x:
        case Op("where", (Literal(value), then, other)):
            return then if value else other
        case Op("where", (_, then, other)) if then == other:
            return then
        case Op("not", (Op("not", (inner,)),)) if inner.dtype == "bool":
            return inner
        case Op("and" | "or", (left, right)) if left.dtype == "bool":
            return _logic(x, left, right)
        case Op("lt" | "le" | "gt" | "ge" | "eq" | "ne", (IndexValue() | Literal(), IndexValue() | Literal())):
            return _compare(x, ranges)
        case Op("mul" | "div", (left, Literal(value))) if value == 1 and x.dtype != "bool":
            return left
        case Op("mul", (Literal(value), right)) if value == 1 and x.dtype != "bool":
            return right
        case Op("sub", (left, Literal(value))) if repr(value) in ("0", "0.0") and x.dtype != "bool":
            return left
        case Op("add", (left, Literal(value))) if repr(value) == ("0" if x.dtype in INTEGERS else "-0.0"):
            return left
        case _:
            return x


def _fold(x: Op) -> Expr:
    """The constant that `x` is, in the reference arithmetic; a division by zero of integers stays."""
    if x.name == "div" and x.dtype not in FLOATS:
        return x
    arrays = [convert(np.asarray(a.value), "float64" if isinstance(a.value, float) else "int64", a.dtype) for a in x.args]
    with np.errstate(all="ignore"):
        return literal(apply(x.name, arrays, x.dtype, x.args[-1].dtype).item(), x.dtype)


def _logic(x: Op, left: Expr, right: Expr) -> Expr:
    """`and` and `or` with one constant side."""
    for constant, rest in ((left, right), (right, left)):
        if isinstance(constant, Literal):
            return rest if bool(constant.value) == (x.name == "and") else Literal(x.name == "or", "bool")
    return x


def _compare(x: Op, ranges: Ranges) -> Expr:
    """Integer comparisons of axes that ranges decide."""
    if x.args[0].dtype not in INTEGERS:
        return x
    left, right = [a.size if isinstance(a, IndexValue) else a.value for a in x.args]
    if x.name in ("gt", "ge"):
        left, right = right, left
    strict = x.name in ("lt", "gt")
    if x.name in ("eq", "ne"):
        apart = is_negative(add(left, mul(right, -1)), ranges) or is_negative(add(right, mul(left, -1)), ranges)
        return Literal(x.name == "ne", "bool") if apart else Literal(x.name == "eq", "bool") if left == right else x
    difference = add(left, mul(right, -1))
    if is_negative(difference if strict else add(difference, -1), ranges):
        return Literal(True, "bool")
    if is_negative(add(mul(difference, -1), -1 if strict else 0), ranges):
        return Literal(False, "bool")
    return x


def _cast(x: Expr, dtype: str) -> Expr:
    if x.dtype == dtype:
        return x
    if isinstance(x, Literal) and dtype not in COMPLEX and x.dtype not in COMPLEX:
        held = _constant(np.asarray(x.value), "float64" if isinstance(x.value, float) else "int64", x.dtype)
        if _has_one_meaning(held.value, dtype):
            return _constant(np.asarray(held.value), x.dtype, dtype)
    if isinstance(x, Cast) and x.dtype in HELD_BY.get(x.x.dtype, ()) and dtype not in COMPLEX:
        return _cast(x.x, dtype)
    return Cast(x, dtype)


def _has_one_meaning(value: float | int | bool, dtype: str) -> bool:
    """Whether every target converts `value` alike: not so for NaN and what is out of range on the way to an integer."""
    return dtype not in INTEGERS or value == value and np.iinfo(NUMPY[dtype]).min <= value <= np.iinfo(NUMPY[dtype]).max


def _within(x: Within, ranges: Ranges) -> Expr:
    """Each branch under its own knowledge; conditions that always hold go, and one that never holds decides."""
    conditions: list[Condition] = []
    for one in x.conditions:
        one = Condition(_size(one.left, ranges), _size(one.right, ranges))
        if is_within(one.left, one.right, ranges):
            continue
        high = bounds(one.left, ranges)[1]
        if high is not None and high < 0 or is_negative(add(add(one.right, mul(one.left, -1)), -1), ranges):
            return simplify_expr(x.other, ranges)
        conditions.append(one)
    then = simplify_expr(x.then, ranges)
    if not conditions:
        return then
    other = simplify_expr(x.other, ranges)
    return then if then == other and not loads(then) else Within(tuple(conditions), then, other, x.dtype)


def _check(x: CheckIndex, ranges: Ranges) -> Expr:
    """A check that axis ranges decide is none."""
    if isinstance(x.x, IndexValue) and is_within(x.x.size, x.size, ranges):
        return x.x
    if isinstance(x.x, Literal) and type(x.size) is int and 0 <= x.x.value < x.size:
        return x.x
    return x


def merge_equal(nodes: Sequence[Node], program: Program) -> tuple[tuple[Node, ...], frozenset[str]]:
    """The nodes less every Compute that an earlier one equals, whose readers now read that one, and the names that went. What is written
    in place, seen from outside or by name in a library call stays as it is."""
    changing = {name for node in nodes for changed in _changed(node) for name in _storage(changed, program)}
    fixed = {b.alias for b in program.buffers.values() if b.alias} | set(program.outputs) | changing | _named_elsewhere(nodes)
    renamed: dict[str, str] = {}
    first: dict[tuple, str] = {}
    kept: list[Node] = []
    for node in nodes:
        node = _renamed(node, renamed)
        if isinstance(node, Compute) and node.out not in fixed and not any(read.buffer in changing for read in loads(node.value)):
            same = first.setdefault((node.axes, node.value, program.buffers[node.out].strides), node.out)
            if same != node.out:
                renamed[node.out] = same
                continue
        kept.append(node)
    return tuple(kept), frozenset(renamed)


def _storage(name: str, program: Program) -> list[str]:
    """All buffers that share memory with `name`."""
    def owner(one: str) -> str:
        alias = program.buffers[one].alias
        return one if alias is None else owner(alias)

    return [one for one in program.buffers if owner(one) == owner(name)]


def _changed(node: Node) -> tuple[str, ...]:
    return (node.target,) if isinstance(node, Update) else node.mutates if isinstance(node, Extern) else ()


def _named_elsewhere(nodes: Sequence[Node]) -> set[str]:
    """Buffers read in the index of an Update or as arguments of an Extern."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, Extern):
            names.update(references((*node.args, *[value for _, value in node.kwargs])))
        elif isinstance(node, Update):
            names.update(read.buffer for at in node.index if not isinstance(at, (int, Size)) for read in loads(at))
    return names


def _renamed(node: Node, renamed: dict[str, str]) -> Node:
    if not renamed or isinstance(node, Extern):
        return node
    value = node.value
    for read in loads(value):
        if read.buffer in renamed:
            value = rename_loads(value, read.buffer, renamed[read.buffer])
    return node if value is node.value else replace(node, value=value)
