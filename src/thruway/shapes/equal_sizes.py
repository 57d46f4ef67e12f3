"""Sizes that guards hold equal become one expression, so that stages that compare sizes without facts see them as equal too.

`s1 == s0 + 1` replaces s1 by s0 + 1 everywhere. A symbol is replaced only by symbols that stay the size of some input by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

from thruway.core.sizes import Size, SizeLike, Symbol, add, as_symbol, mul, substitute, symbols
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import Fact, Facts

Solution = dict[Symbol, SizeLike]


def unite(metas: Sequence[Any], facts: Facts) -> tuple[list[Any], Facts]:
    """`metas` (of tensors, and sizes) and what is known of their symbols, with those that are equal made one."""
    solution = solve(facts.known, _placed(metas))
    if not solution:
        return list(metas), facts
    known = frozenset(Fact(substitute(fact.left, solution), fact.operator, substitute(fact.right, solution)) for fact in facts.known)
    return [_replaced(meta, solution) for meta in metas], replace(facts, known=known)


def solve(facts: Iterable[Fact], placed: frozenset[Symbol]) -> Solution:
    """Values for symbols that follow from the equalities among `facts`; `placed` symbols may stay."""
    solution: Solution = {}
    for fact in sorted((one for one in facts if one.operator == "=="), key=str):
        difference = _reduced(substitute(add(fact.left, mul(fact.right, -1)), solution))
        for one in sorted(_linear(difference), key=lambda one: (one in placed, one.name)):
            value = mul(add(difference, mul(Size({(one,): 1}), -difference.terms[one,])), -difference.terms[one,])
            if symbols(value) <= placed - {one} - solution.keys():
                solution = {name: substitute(known, {one: value}) for name, known in solution.items()} | {one: value}
                break
    return solution


def _reduced(difference: SizeLike) -> SizeLike:
    """`difference`, which is 0, without the number that divides all its terms: 16 * s0 == 16 * s1 says s0 == s1."""
    if type(difference) is int:
        return difference
    common = gcd(*difference.terms.values())
    return Size({monomial: coefficient // common for monomial, coefficient in difference.terms.items()})


def _linear(difference: SizeLike) -> list[Symbol]:
    """The symbols that the equation difference == 0 can be solved for in whole numbers."""
    if type(difference) is int:
        return []
    alone = [monomial[0] for monomial, coefficient in difference.terms.items() if len(monomial) == 1 and abs(coefficient) == 1]
    rest = [node for monomial in difference.terms for node in monomial if len(monomial) > 1 or not isinstance(node, Symbol)]
    used = frozenset().union(*(symbols(Size({(node,): 1})) for node in rest))
    return [one for one in alone if isinstance(one, Symbol) and one not in used]


def _placed(metas: Sequence[Any]) -> frozenset[Symbol]:
    """Symbols that are the size of an input by themselves."""
    sizes = [size for meta in metas for size in (meta.sizes if isinstance(meta, TensorMeta) else (meta,))]
    return frozenset(found for size in sizes if (found := as_symbol(size)) is not None)


def _replaced(meta: Any, solution: Solution) -> Any:
    if not isinstance(meta, TensorMeta):
        return substitute(meta, solution) if isinstance(meta, Size) else meta
    sizes, strides = (tuple(substitute(one, solution) for one in each) for each in (meta.sizes, meta.strides))
    return replace(meta, sizes=sizes, strides=strides, offset=substitute(meta.offset, solution))
