"""Size expressions: integers in terms of input sizes and loop variables.

A size is a plain `int` or a `Size`: a polynomial with integer coefficients over atoms. An atom is a `Symbol` or one of
the opaque integer functions `FloorDiv`, `Mod`, `Max`, `Min`. Polynomials are kept in one canonical form, so equal
polynomials compare equal and hash alike. Nothing here needs sympy or torch.

`ranges` arguments map a Symbol to inclusive bounds `(low, high)`; a bound of None is unknown, and `high` may be a size over
other symbols. They let divisions and remainders of loop variables simplify: (n*i + j) // n = i where 0 <= j <= n - 1.
Divisors are taken to be nonzero: what divides by an empty dimension runs over no elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Union

from thruway.core.errors import Unsupported

SizeLike = Union[int, "Size"]
Bounds = tuple[int | None, int | None]
Ranges = Mapping["Symbol", tuple[int | None, Union[int, "Size", None]]]
Monomial = tuple["Atom", ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named unknown: the size of an input dimension or a loop variable. Size symbols are at least 0; a number read from a tensor may be
    negative (`low` is None)."""

    name: str
    low: int | None = 0

    def __hash__(self) -> int:
        return hash(self.name)


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

    def __reduce__(self) -> tuple[type[Size], tuple[dict[Monomial, int]]]:
        return Size, (self.terms,)           # without the hash, which another process computes otherwise

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


def symbol(name: str, low: int | None = 0) -> Size:
    """The size that is just the unknown `name`."""
    return Size({(Symbol(name, low),): 1})


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
            monomial = tuple(sorted(m1 + m2, key=_order)) if m1 and m2 else m1 or m2
            total[monomial] = total.get(monomial, 0) + c1 * c2
    return _canonical(total)


def _order(node: Atom) -> tuple[bool, str]:
    """Sorts the factors of a product: symbols by name, then the rest by text."""
    return (False, node.name) if isinstance(node, Symbol) else (True, _show_atom(node))


def product(sizes: Iterable[SizeLike]) -> SizeLike:
    result: SizeLike = 1
    for size in sizes:
        result = mul(result, size)
    return result


def floordiv(a: SizeLike, b: SizeLike, ranges: Ranges | None = None) -> SizeLike:
    """a // b, split into an exact part and a rest that is dropped where `ranges` show 0 <= rest < b."""
    _refuse_zero(b)
    if type(a) is int and type(b) is int:
        return a // b
    if b == 1 or a == 0:
        return a
    if is_within(a, b, ranges):
        return 0
    exact, rest = _split(a, b)
    if rest == 0 or is_within(rest, b, ranges):
        return exact
    common = _common(rest, b)
    if common > 1:
        return add(exact, floordiv(_quotient(rest, common), _quotient(b, common), ranges))
    inner = _only_atom(rest)
    if isinstance(inner, FloorDiv) and _are_positive(inner.right, b):
        return add(exact, floordiv(inner.left, mul(inner.right, b), ranges))
    return add(exact, atom(FloorDiv(rest, b)))


def mod(a: SizeLike, b: SizeLike, ranges: Ranges | None = None) -> SizeLike:
    """a % b, less every multiple of b."""
    _refuse_zero(b)
    if type(a) is int and type(b) is int:
        return a % b
    if b == 1 or a == 0:
        return 0
    if is_within(a, b, ranges):
        return a
    _, rest = _split(a, b)
    if rest == 0 or is_within(rest, b, ranges):
        return rest
    if type(rest) is int and type(b) is int:
        return rest % b
    common = _common(rest, b)
    if common > 1:
        return add(mul(mod(_quotient(rest, common), _quotient(b, common), ranges), common), _constant(rest) % common)
    inner = _only_atom(rest)
    if isinstance(inner, Mod) and _are_positive(inner.right, b) and _split(inner.right, b)[1] == 0:
        return mod(inner.left, b, ranges)
    return atom(Mod(rest, b))


def _refuse_zero(divisor: SizeLike) -> None:
    """Python raises here, and so does eager where the user's code divides."""
    if type(divisor) is int and divisor == 0:
        raise Unsupported("TW604", "a size divided by 0")


def _constant(size: SizeLike) -> int:
    return size if type(size) is int else size.terms.get((), 0)


def _common(rest: SizeLike, b: SizeLike) -> int:
    """The largest integer that divides the divisor `b` and every term of `rest` but its constant, whose rounding down is then exact."""
    if not _are_positive(b):
        return 1
    return gcd(*_terms(b).values(), *[c for m, c in _terms(rest).items() if m])


def _quotient(size: SizeLike, divisor: int) -> SizeLike:
    """floor(size / divisor), where `divisor` divides every term but the constant."""
    if type(size) is int:
        return size // divisor
    return _canonical({m: c // divisor for m, c in size.terms.items()})


def _only_atom(size: SizeLike) -> Atom | None:
    """The atom that `size` is, if it is just one."""
    if isinstance(size, Size) and len(size.terms) == 1:
        (monomial, coefficient), = size.terms.items()
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return None


def _are_positive(*divisors: SizeLike) -> bool:
    """Whether every divisor, which is not 0, is above it."""
    lows = [bounds(size)[0] for size in divisors]
    return all(low is not None and low >= 0 for low in lows)


def _split(a: SizeLike, b: SizeLike) -> tuple[SizeLike, SizeLike]:
    """(q, r) with a = q*b + r, q taking every term of `a` that `b` divides."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return _split_by_sum(a, b)
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


def _split_by_sum(a: SizeLike, b: Size) -> tuple[SizeLike, SizeLike]:
    """`_split` for a divisor of several terms: multiples of it are taken out as long as that leaves fewer terms."""
    lead = max(b.terms, key=len)
    quotient: SizeLike = 0
    shrinking = True
    while shrinking and a != 0:
        shrinking = False
        for monomial, coefficient in _terms(a).items():
            left = _without(monomial, lead)
            if left is None or coefficient % b.terms[lead]:
                continue
            part = _canonical({left: coefficient // b.terms[lead]})
            rest = add(a, mul(mul(part, b), -1))
            if len(_terms(rest)) < len(_terms(a)):
                quotient, a, shrinking = add(quotient, part), rest, True
                break
    return quotient, a


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """`monomial` less the factors of `part`, or None where it lacks one."""
    if not part:
        return monomial
    left = list(monomial)
    for factor in part:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def is_within(value: SizeLike, limit: SizeLike, ranges: Ranges | None) -> bool:
    """Whether 0 <= value < limit is certain."""
    low, high = bounds(value, ranges)
    if low is None or low < 0:
        return False
    if type(limit) is int and high is not None:
        return high < limit
    return is_negative(add(value, mul(limit, -1)), ranges)


def is_negative(size: SizeLike, ranges: Ranges | None) -> bool:
    """Whether size < 0 is certain; symbols with a symbolic upper bound are raised to it first, where that makes `size` larger."""
    high = bounds(size, ranges)[1]
    if high is not None and high < 0:
        return True
    for one in symbols(size) & ranges.keys() if ranges else ():
        limit = ranges[one][1]
        if isinstance(limit, Size) and _grows_with(size, one, ranges):
            return is_negative(substitute(size, {one: limit}), ranges)
    return False


def _grows_with(size: SizeLike, one: Symbol, ranges: Ranges) -> bool:
    """Whether `size` is sure not to fall as `one` rises: it stands only as a factor of terms that are otherwise at least 0."""
    for monomial, coefficient in _terms(size).items():
        if one not in symbols(Size({monomial: 1})):
            continue
        others = list(monomial)
        if coefficient < 0 or one not in others:
            return False
        others.remove(one)
        if any(one in symbols(atom(node)) or (_atom_bounds(node, ranges)[0] or 0) < 0 or _atom_bounds(node, ranges)[0] is None for node in others):
            return False
    return True


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
            low, high = ranges.get(node, (node.low, None)) if ranges else (node.low, None)
            return low, bounds(high)[1] if isinstance(high, Size) else high
        case Mod(left, right):
            low, high = bounds(right, ranges)
            if low is None or low < 0:
                return None, None
            left_low, left_high = bounds(left, ranges)
            limits = [x for x in (None if high is None else high - 1, left_high if left_low is not None and left_low >= 0 else None) if x is not None]
            return 0, min(limits) if limits else None
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
    alone = as_symbol(size)
    if alone is not None:
        return _recombine(values[alone], ranges) if alone in values else size
    total: SizeLike = 0
    for monomial, coefficient in size.terms.items():
        term: SizeLike = coefficient
        for node in monomial:
            term = mul(term, _substitute_atom(node, values, ranges))
        total = add(total, term)
    return _recombine(total, ranges)


def _recombine(size: SizeLike, ranges: Ranges | None) -> SizeLike:
    """`size` with b*(x // b) + x % b written as x."""
    for monomial, coefficient in _terms(size).items():
        for node in monomial:
            if not isinstance(node, Mod):
                continue
            factor = _canonical({_without(monomial, (node,)): coefficient})
            whole = mul(mul(factor, node.right), floordiv(node.left, node.right, ranges))
            if type(whole) is not int and all(size.terms.get(m) == c for m, c in whole.terms.items()):
                rest = add(add(size, mul(whole, -1)), mul(mul(factor, atom(node)), -1))
                return _recombine(add(rest, mul(factor, node.left)), ranges)
    return size


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
