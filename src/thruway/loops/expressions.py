"""Small constructors of loop expressions, and walks over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from thruway.core.dtypes import COMPLEX, FLOATS, INTEGERS, ITEMSIZE
from thruway.core.errors import Unsupported
from thruway.core.sizes import Size
from thruway.loops.ir import BufferRef, Cast, CheckIndex, Condition, Expr, IndexValue, Literal, Load, Op, Reduce, Var, Within

BOOLEAN_OPS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "isnan", "isinf", "signbit"})


def literal(value: bool | int | float, dtype: str) -> Literal:
    """The number as a constant of `dtype`, held as Python's own kind for it. Integers wrap around, as eager's do."""
    if dtype in FLOATS:
        return Literal(float(value), dtype)
    if dtype in INTEGERS:
        return Literal(_wrapped(int(value), 8 * ITEMSIZE[dtype], dtype.startswith("u")), dtype)
    if dtype in COMPLEX:
        raise Unsupported("TW505", "arithmetic on complex tensors in a generated kernel")
    return Literal(bool(value) if dtype == "bool" else value, dtype)


def _wrapped(value: int, bits: int, is_unsigned: bool) -> int:
    low = 0 if is_unsigned else -(1 << bits - 1)
    return (value - low) % (1 << bits) + low


def cast(x: Expr, dtype: str) -> Expr:
    if x.dtype == dtype:
        return x
    if x.dtype in COMPLEX or dtype in COMPLEX:
        raise Unsupported("TW505", "arithmetic on complex tensors in a generated kernel")
    return Cast(x, dtype)


def op(name: str, *args: Expr) -> Op:
    """`name` of `args`, in the dtype that they share (the last one's, so that `where` works), or bool for comparisons."""
    return Op(name, args, "bool" if name in BOOLEAN_OPS else args[-1].dtype)


def where(condition: Expr, then: Expr, other: Expr) -> Op:
    return Op("where", (condition, then, other), then.dtype)


def children(x: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside `x`, those in index positions too."""
    match x:
        case Literal() | IndexValue() | Var():
            return ()
        case Load(_, index):
            return tuple([at for at in index if not isinstance(at, (int, Size))])
        case Op(_, args):
            return args
        case Cast(inner) | CheckIndex(inner) | Reduce(_, _, inner):
            return (inner,)
        case Within(_, then, other):
            return (then, other)
        case _:
            raise TypeError(f"not a loop expression: {x!r}")


def with_children(x: Expr, new: tuple[Expr, ...]) -> Expr:
    """`x` with `new` in the place of `children(x)`."""
    match x:
        case Literal() | IndexValue() | Var():
            return x
        case Load(_, index):
            rest = iter(new)
            return replace(x, index=tuple([at if isinstance(at, (int, Size)) else next(rest) for at in index]))
        case Op():
            return replace(x, args=new)
        case Cast() | CheckIndex() | Reduce():
            return replace(x, x=new[0])
        case Within():
            return replace(x, then=new[0], other=new[1])
        case _:
            raise TypeError(f"not a loop expression: {x!r}")


def rewrite(x: Expr, change: Callable[[Expr], Expr], seen: dict[int, Expr] | None = None) -> Expr:
    """`x` with `change` applied bottom-up. Expressions are graphs: what is shared is changed once and stays shared."""
    seen = {} if seen is None else seen
    if id(x) not in seen:
        old = children(x)
        new = tuple([rewrite(child, change, seen) for child in old])
        seen[id(x)] = change(x if all(a is b for a, b in zip(old, new)) else with_children(x, new))
    return seen[id(x)]


def walk(x: Expr) -> Iterator[Expr]:
    """`x` and each distinct expression in it, outside in."""
    seen: set[int] = set()
    stack = [x]
    while stack:
        x = stack.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            stack.extend(children(x))


def loads(x: Expr, buffer: str | None = None) -> list[Load]:
    """Every Load in `x` (of `buffer`)."""
    return [part for part in walk(x) if isinstance(part, Load) and buffer in (None, part.buffer)]


def rename_loads(x: Expr, old: str, new: str) -> Expr:
    """`x` reading buffer `new` instead of `old`."""
    return rewrite(x, lambda part: replace(part, buffer=new) if isinstance(part, Load) and part.buffer == old else part)


def references(values: Iterable[object]) -> list[str]:
    """The buffers that arguments of a library call name, tuples included."""
    found: list[str] = []
    for value in values:
        if isinstance(value, BufferRef):
            found.append(value.name)
        elif isinstance(value, tuple):
            found.extend(references(value))
    return found


def within(conditions: tuple[Condition, ...], then: Expr, other: Expr) -> Expr:
    return Within(conditions, then, other, then.dtype) if conditions else then
