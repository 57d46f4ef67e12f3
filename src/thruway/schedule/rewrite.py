"""Walking and rebuilding loop expressions: substitution of axes, of loads, and what an expression reads and costs.

Expressions are shared graphs after inlining, so every walk remembers what it has seen by identity and stays linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from thruway.core import sizes
from thruway.core.sizes import Ranges, SizeLike, Symbol
from thruway.loops.ir import Cast, CheckIndex, Condition, Expr, Index, IndexValue, Literal, Load, Op, Reduce, Var, Within

SizeMap = Callable[[SizeLike], SizeLike]
LoadMap = Callable[[Load], Expr]

# Relative cost of an operator on one element; an addition is 1.
COSTS = {
    "div": 3, "sqrt": 3, "rsqrt": 4, "reciprocal": 3, "exp": 10, "exp2": 10, "expm1": 12, "log": 12, "log2": 14, "log10": 14, "log1p": 14,
    "sin": 12, "cos": 12, "tan": 20, "asin": 20, "acos": 20, "atan": 20, "sinh": 24, "cosh": 20, "tanh": 14, "asinh": 24, "acosh": 24,
    "atanh": 24, "erf": 16, "erfc": 30, "erfinv": 60, "lgamma": 80, "digamma": 80, "sigmoid": 13, "pow": 40, "atan2": 40, "hypot": 20,
    "fmod": 30, "mod": 20, "floordiv": 20, "truncdiv": 20, "nextafter": 8, "ldexp": 8,
}


UNKNOWN_SIZE = 32  # stands for a symbolic size where two sizes are weighed against each other


def weigh(size: SizeLike) -> int:
    """`size` as an integer, every symbol taken as UNKNOWN_SIZE."""
    return size if type(size) is int else sizes.evaluate(size, {s.name: UNKNOWN_SIZE for s in sizes.symbols(size)})


def is_size(index: Index) -> bool:
    return type(index) is int or isinstance(index, (int, sizes.Size))


def rewrite(expr: Expr, on_size: SizeMap, on_load: LoadMap | None = None, seen: dict[int, Expr] | None = None) -> Expr:
    """`expr` with each size mapped by `on_size`, and each load, its index mapped already, by `on_load`."""
    seen = {} if seen is None else seen
    key = id(expr)
    if key not in seen:
        seen[key] = _rewrite(expr, on_size, on_load, seen)
    return seen[key]


def map_expressions(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `change` applied to every part, inside out."""
    seen: dict[int, Expr] = {}

    def again(x: Expr) -> Expr:
        if id(x) not in seen:
            seen[id(x)] = change(_with_children(x, tuple(again(c) for c in children(x))))
        return seen[id(x)]

    return again(expr)


def _with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    match expr:
        case Literal() | Var() | IndexValue():
            return expr
        case Load(_, index, _):
            rest = iter(new)
            return replace(expr, index=tuple(i if is_size(i) else next(rest) for i in index))
        case Op():
            return replace(expr, args=new)
        case Within():
            return replace(expr, then=new[0], other=new[1])
        case _:
            return replace(expr, x=new[0])


def _rewrite(expr: Expr, on_size: SizeMap, on_load: LoadMap | None, seen: dict[int, Expr]) -> Expr:
    def again(x: Expr) -> Expr:
        return rewrite(x, on_size, on_load, seen)

    match expr:
        case Literal() | Var():
            return expr
        case Load(buffer, index, dtype):
            load = Load(buffer, tuple([on_size(i) if is_size(i) else again(i) for i in index]), dtype)
            return on_load(load) if on_load else load
        case IndexValue(size, dtype):
            return IndexValue(on_size(size), dtype)
        case Op(name, args, dtype):
            return Op(name, tuple([again(a) for a in args]), dtype)
        case Cast(x, dtype):
            return Cast(again(x), dtype)
        case Within(conditions, then, other, dtype):
            return Within(tuple(Condition(on_size(c.left), on_size(c.right)) for c in conditions), again(then), again(other), dtype)
        case Reduce(op, axes, x, dtype):
            return Reduce(op, axes, again(x), dtype)
        case CheckIndex(x, size, wrap, dtype):
            return CheckIndex(again(x), on_size(size), wrap, dtype)
        case _:
            raise TypeError(f"not a loop expression: {expr!r}")


def substitute(expr: Expr, values: Mapping[Symbol, SizeLike], ranges: Ranges | None = None) -> Expr:
    """`expr` with axis symbols replaced by sizes."""
    return rewrite(expr, substitution(values, ranges)) if values else expr


def substitution(values: Mapping[Symbol, SizeLike], ranges: Ranges | None = None) -> SizeMap:
    """`sizes.substitute` with these values as a function of the size. It remembers: repeated blocks of a model ask the same again and again."""
    known = _known(tuple(values.items()), None if ranges is None else tuple(ranges.items()))

    def on_size(size: SizeLike) -> SizeLike:
        if type(size) is int:
            return size
        result = known.get(size)
        if result is None:
            result = known[size] = sizes.substitute(size, values, ranges)
        return result

    return on_size


@lru_cache(maxsize=2048)
def _known(values: tuple[object, ...], ranges: tuple[object, ...] | None) -> dict[SizeLike, SizeLike]:
    return {}


def children(expr: Expr) -> tuple[Expr, ...]:
    below = _CHILDREN.get(type(expr))
    if below is None:
        raise TypeError(f"not a loop expression: {expr!r}")
    return below(expr)


# A table, not a `match`: every pass walks all expressions, several times over.
_CHILDREN: dict[type, Callable[..., tuple[Expr, ...]]] = {
    Literal: lambda expr: (), Var: lambda expr: (), IndexValue: lambda expr: (),
    Load: lambda expr: tuple([i for i in expr.index if not is_size(i)]),
    Op: lambda expr: expr.args,
    Cast: lambda expr: (expr.x,), CheckIndex: lambda expr: (expr.x,), Reduce: lambda expr: (expr.x,),
    Within: lambda expr: (expr.then, expr.other),
}


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every distinct expression below `roots`, parents first."""
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        expr = stack.pop()
        if id(expr) not in seen:
            seen.add(id(expr))
            yield expr
            stack.extend(children(expr))


def loads(*roots: Expr) -> list[Load]:
    return [x for x in walk(*roots) if type(x) is Load]


def own_sizes(expr: Expr) -> tuple[SizeLike, ...]:
    """The sizes that stand in `expr` itself, not below it."""
    match expr:
        case Load(_, index, _):
            return tuple(i for i in index if is_size(i))
        case IndexValue(size, _) | CheckIndex(_, size, _):
            return (size,)
        case Within(conditions, _, _, _):
            return tuple(s for c in conditions for s in (c.left, c.right))
        case Reduce(_, axes, _, _):
            return tuple(a.extent for a in axes)
        case _:
            return ()


def symbols(*roots: Expr) -> frozenset[Symbol]:
    """Every symbol, of axes and of sizes, that `roots` mention."""
    found: set[Symbol] = set()
    for expr in walk(*roots):
        for size in own_sizes(expr):
            found |= sizes.symbols(size)
    return frozenset(found)


def cost(*roots: Expr) -> int:
    """Operators of one element, weighted; loads and casts are almost free."""
    total = 0
    for expr in walk(*roots):
        match expr:
            case Op(name, _, _):
                total += COSTS.get(name, 1)
            case Cast(x, dtype) if x.dtype != dtype:
                total += 1
            case Within() | CheckIndex():
                total += 2
    return total


def strip_reduce(value: Expr) -> tuple[Reduce | None, str | None]:
    """The Reduce at the top of a value and the dtype of the Cast above it, or None for each."""
    match value:
        case Reduce():
            return value, None
        case Cast(Reduce() as reduce, dtype):
            return reduce, dtype
        case _:
            return None, None
