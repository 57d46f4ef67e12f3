"""Size expressions: integers in terms of input sizes and loop variables.

A size is a plain `int` or a `Size`: a polynomial with integer coefficients over atoms. An atom is a `Symbol` or one of
the opaque integer functions `FloorDiv`, `Mod`, `Max`, `Min`. Polynomials are kept in one canonical form, so equal
polynomials compare equal and hash alike. Nothing here needs sympy or torch.

`ranges` arguments map a Symbol to inclusive bounds `(low, high)`; a bound of None is unknown. They let divisions and
remainders of loop variables simplify, for instance (4*i + j) // 4 = i where 0 <= j < 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Union

SizeLike = Union[int, "Size"]
Bounds = tuple[int | None, int | None]
Ranges = Mapping["Symbol", Bounds]
Monomial = tuple["Atom", ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named unknown: the size of an input dimension or a loop variable. Size symbols are at least 0."""

    name: str


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """left // right with Python's rounding (toward minus infinity)."""

    left: SizeLike
    right: SizeLike


@dataclass(frozen=True, slots=True)
class Mod:
    """left % right with Python's sign (that of the divisor)."""

    left: SizeLike
    right: SizeLike


@dataclass(frozen=True, slots=True)
class Max:
    left: SizeLike
    right: SizeLike


@dataclass(frozen=True, slots=True)
class Min:
    left: SizeLike
    right: SizeLike


Atom = Symbol | FloorDiv | Mod | Max | Min


class Size:
    """A polynomial: sum of coefficient × product of atoms, the constant under the empty product. Immutable."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: dict[Monomial, int]):
        self.terms = terms
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __add__(self, other: SizeLike) -> SizeLike:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: SizeLike) -> SizeLike:
        return add(self, mul(other, -1))

    def __rsub__(self, other: SizeLike) -> SizeLike:
        return add(other, mul(self, -1))

    def __neg__(self) -> SizeLike:
        return mul(self, -1)

    def __mul__(self, other: SizeLike) -> SizeLike:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: SizeLike) -> SizeLike:
        return floordiv(self, other)

    def __rfloordiv__(self, other: SizeLike) -> SizeLike:
        return floordiv(other, self)

    def __mod__(self, other: SizeLike) -> SizeLike:
        return mod(self, other)

    def __rmod__(self, other: SizeLike) -> SizeLike:
        return mod(other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of the symbolic size {self} is not known; compare it through shapes, which records a guard")

    def __repr__(self) -> str:
        return show(self)


def symbol(name: str) -> Size:
    """The size that is just the unknown `name`."""
    return Size({(Symbol(name),): 1})


def atom(node: Atom) -> Size:
    return Size({(node,): 1})


def as_symbol(size: SizeLike) -> Symbol | None:
    """The Symbol that `size` is, if it is just one."""
    if isinstance(size, Size) and len(size.terms) == 1:
        (monomial, coefficient), = size.terms.items()
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
            return monomial[0]
    return None


def _terms(size: SizeLike) -> dict[Monomial, int]:
    if isinstance(size, Size):
        return size.terms
    return {(): int(size)} if size else {}


def _canonical(terms: dict[Monomial, int]) -> SizeLike:
    terms = {m: c for m, c in terms.items() if c}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Size(terms)


def add(a: SizeLike, b: SizeLike) -> SizeLike:
    if type(a) is int and type(b) is int:
        return a + b
    total = dict(_terms(a))
    for monomial, coefficient in _terms(b).items():
        total[monomial] = total.get(monomial, 0) + coefficient
    return _canonical(total)


def mul(a: SizeLike, b: SizeLike) -> SizeLike:
    if type(a) is int and type(b) is int:
        return a * b
    total: dict[Monomial, int] = {}
    for m1, c1 in _terms(a).items():
        for m2, c2 in _terms(b).items():
            monomial = tuple(sorted(m1 + m2, key=repr)) if m1 and m2 else m1 or m2
            total[monomial] = total.get(monomial, 0) + c1 * c2
    return _canonical(total)


def product(sizes) -> SizeLike:
    result: SizeLike = 1
    for size in sizes:
        result = mul(result, size)
    return result


def floordiv(a: SizeLike, b: SizeLike, ranges: Ranges | None = None) -> SizeLike:
    """a // b, split into an exact part and a rest that is dropped where `ranges` show 0 <= rest < b."""
    if type(a) is int and type(b) is int:
        return a // b
    if b == 1:
        return a
    if a == 0:
        return 0
    exact, rest = _split(a, b)
    if rest == 0 or _within(rest, b, ranges):
        return exact
    return add(exact, atom(FloorDiv(rest, b)))


def mod(a: SizeLike, b: SizeLike, ranges: Ranges | None = None) -> SizeLike:
    """a % b, less every multiple of b."""
    if type(a) is int and type(b) is int:
        return a % b
    if b == 1 or a == 0:
        return 0
    _, rest = _split(a, b)
    if rest == 0 or _within(rest, b, ranges):
        return rest
    if type(rest) is int and type(b) is int:
        return rest % b
    return atom(Mod(rest, b))


def _split(a: SizeLike, b: SizeLike) -> tuple[SizeLike, SizeLike]:
    """(q, r) with a = q*b + r, q taking every term of `a` that `b` divides; b an int or a single term."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return (1, 0) if a == b else (0, a)
    (db, cb), = divisor.items()
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(a).items():
        left = _without(monomial, db)
        if left is not None and coefficient % cb == 0:
            quotient[left] = quotient.get(left, 0) + coefficient // cb
        elif left == () and not db:                                   # a constant over a constant: keep the remainder small
            quotient[()] = quotient.get((), 0) + coefficient // cb
            rest[()] = coefficient % cb
        else:
            rest[monomial] = coefficient
    return _canonical(quotient), _canonical(rest)


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """`monomial` less the factors of `part`, or None where it lacks one."""
    left = list(monomial)
    for factor in part:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _within(value: SizeLike, limit: SizeLike, ranges: Ranges | None) -> bool:
    """Whether 0 <= value < limit is certain."""
    low, _ = bounds(value, ranges)
    _, slack = bounds(add(value, mul(limit, -1)), ranges)
    return low is not None and low >= 0 and slack is not None and slack < 0


def maximum(a: SizeLike, b: SizeLike) -> SizeLike:
    if type(a) is int and type(b) is int:
        return max(a, b)
    return a if a == b else atom(Max(a, b))


def minimum(a: SizeLike, b: SizeLike) -> SizeLike:
    if type(a) is int and type(b) is int:
        return min(a, b)
    return a if a == b else atom(Min(a, b))


def bounds(size: SizeLike, ranges: Ranges | None = None) -> Bounds:
    """Inclusive bounds of `size`; None where unknown. A Symbol without an entry in `ranges` is at least 0."""
    if type(size) is int:
        return size, size
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in size.terms.items():
        lo, hi = _monomial_bounds(monomial, ranges)
        if coefficient < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + coefficient * lo
        high = None if high is None or hi is None else high + coefficient * hi
    return low, high


def _monomial_bounds(monomial: Monomial, ranges: Ranges | None) -> Bounds:
    if not monomial:
        return 1, 1
    each = [_atom_bounds(a, ranges) for a in monomial]
    if len(each) == 1:
        return each[0]
    if any(lo is None or lo < 0 for lo, _ in each):
        return None, None
    high = None if any(hi is None for _, hi in each) else prod(hi for _, hi in each)
    return prod(lo for lo, _ in each), high


def _atom_bounds(node: Atom, ranges: Ranges | None) -> Bounds:
    match node:
        case Symbol():
            return ranges.get(node, (0, None)) if ranges else (0, None)
        case Mod(_, right):
            low, high = bounds(right, ranges)
            return (0, None if high is None else high - 1) if low is not None and low > 0 else (None, None)
        case FloorDiv(left, right) if type(right) is int and right > 0:
            low, high = bounds(left, ranges)
            return None if low is None else low // right, None if high is None else high // right
        case FloorDiv(left, right):
            low, _ = bounds(left, ranges)
            right_low, _ = bounds(right, ranges)
            return (0 if low is not None and low >= 0 and right_low is not None and right_low >= 0 else None), None
        case Max(left, right):
            (l1, h1), (l2, h2) = bounds(left, ranges), bounds(right, ranges)
            known = [x for x in (l1, l2) if x is not None]
            return max(known) if known else None, None if h1 is None or h2 is None else max(h1, h2)
        case Min(left, right):
            (l1, h1), (l2, h2) = bounds(left, ranges), bounds(right, ranges)
            known = [x for x in (h1, h2) if x is not None]
            return None if l1 is None or l2 is None else min(l1, l2), min(known) if known else None
        case _:
            raise TypeError(f"not an atom of a size: {node!r}")


def substitute(size: SizeLike, values: Mapping[Symbol, SizeLike], ranges: Ranges | None = None) -> SizeLike:
    """`size` with each Symbol in `values` replaced; the others stay."""
    if type(size) is int:
        return size
    total: SizeLike = 0
    for monomial, coefficient in size.terms.items():
        term: SizeLike = coefficient
        for node in monomial:
            term = mul(term, _substitute_atom(node, values, ranges))
        total = add(total, term)
    return total


def _substitute_atom(node: Atom, values: Mapping[Symbol, SizeLike], ranges: Ranges | None) -> SizeLike:
    if isinstance(node, Symbol):
        return values.get(node, atom(node))
    left, right = substitute(node.left, values, ranges), substitute(node.right, values, ranges)
    match node:
        case FloorDiv():
            return floordiv(left, right, ranges)
        case Mod():
            return mod(left, right, ranges)
        case Max():
            return maximum(left, right)
        case Min():
            return minimum(left, right)
        case _:
            raise TypeError(f"not an atom of a size: {node!r}")


def simplify(size: SizeLike, ranges: Ranges) -> SizeLike:
    """`size` with divisions and remainders reduced by what `ranges` say."""
    return substitute(size, {}, ranges)


def symbols(size: SizeLike) -> frozenset[Symbol]:
    """Every Symbol in `size`, inside divisions too."""
    if type(size) is int:
        return frozenset()
    found: set[Symbol] = set()
    for monomial in size.terms:
        for node in monomial:
            if isinstance(node, Symbol):
                found.add(node)
            else:
                found |= symbols(node.left) | symbols(node.right)
    return frozenset(found)


def evaluate(size: SizeLike, values: Mapping[str, int]) -> int:
    """The integer that `size` is where each symbol's name has a value. KeyError names a missing one."""
    result = substitute(size, {s: values[s.name] for s in symbols(size)})
    if type(result) is not int:
        raise TypeError(f"{size} did not come down to an integer: {result}")
    return result


def show(size: SizeLike, print_atom: Callable[[Atom], str] | None = None) -> str:
    """Python text of `size`; `print_atom` prints an atom in another language."""
    if type(size) is int:
        return str(size)
    one = print_atom or _show_atom
    parts = []
    for monomial, coefficient in sorted(size.terms.items(), key=lambda t: (-len(t[0]), repr(t[0]))):
        factors = [one(node) for node in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        parts.append("*".join(factors))
    return " + ".join(parts).replace("+ -", "- ")


def _show_atom(node: Atom) -> str:
    match node:
        case Symbol(name):
            return name
        case FloorDiv(left, right):
            return f"(({show(left)})//({show(right)}))"
        case Mod(left, right):
            return f"(({show(left)})%({show(right)}))"
        case Max(left, right):
            return f"max({show(left)}, {show(right)})"
        case Min(left, right):
            return f"min({show(left)}, {show(right)})"
        case _:
            raise TypeError(f"not an atom of a size: {node!r}")
