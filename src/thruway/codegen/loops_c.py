"""Innermost loops: split by what conditions decide, vectorised, blocked where a fast function may have to be done again.

A loop over [lo, hi) whose body holds conditions becomes branches around loops and loops over parts of the range, so that no
element pays for a branch: this is how a concatenation or a padded edge turns into straight copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thruway.codegen.expressions import Emitter
from thruway.codegen.flatten import coefficient
from thruway.codegen.scope import block
from thruway.core import sizes
from thruway.core.sizes import SizeLike, Symbol
from thruway.loops.ir import Axis, Condition, Expr, Var, Within
from thruway.schedule.rewrite import children

MOST_SPLITS = 6
REDO_BLOCK = 1024
SIMD = "#pragma omp simd"


@dataclass(frozen=True, slots=True)
class Body:
    """What one innermost loop does: `emit` writes the statements; `roots` are the expressions in it; `accumulators` are
    (C variable, operator of the reduction clause)."""

    emit: Callable[[], None]
    roots: tuple[Expr, ...]
    accumulators: tuple[tuple[str, str], ...] = ()


def emit_range(e: Emitter, axis: Axis, lo: str, hi: str, body: Body, leaf: Callable[[str, str], None], depth: int = 0) -> None:
    """`leaf(lo, hi)` over the range, split at the first condition that is still open, then each part again."""
    condition = None if depth >= MOST_SPLITS else first_open(e, body.roots, Symbol(axis.name))
    if condition is None:
        leaf(lo, hi)
        return
    symbol = Symbol(axis.name)
    if symbol not in sizes.symbols(condition.left):
        _branch(e, axis, lo, hi, body, leaf, condition, depth)
        return
    first, second = (_clamped(e, x, lo, hi) for x in _true_range(condition, symbol))
    for start, end, truth in ((lo, first, False), (first, second, True), (second, hi, False)):
        if start == end or start.isdigit() and end.isdigit() and int(start) >= int(end):
            continue
        scope = e.push(guard=True)
        scope.known[condition] = truth
        emit_range(e, axis, start, end, body, leaf, depth + 1)
        e.pop()
        certain = start.isdigit() and end.isdigit()
        e.scope.lines.extend(block("" if certain else f"if ({start} < {end})", scope))


def _clamped(e: Emitter, size: SizeLike, lo: str, hi: str) -> str:
    """`size` brought into [lo, hi]: a number where all three are, else a constant of the current scope."""
    if type(size) is int and lo.isdigit() and hi.isdigit():
        return str(min(max(size, int(lo)), int(hi)))
    if type(size) is int and size <= 0 and lo == "0":
        return lo
    name = f"c{e.counter}"
    e.counter += 1
    e.scope.lines.append(f"const long {name} = tw_minl(tw_maxl({e.size(size)}, {lo}), {hi});")
    return name


def _branch(e: Emitter, axis: Axis, lo: str, hi: str, body: Body, leaf: Callable[[str, str], None], condition: Condition, depth: int) -> None:
    """Both branches are written after both are emitted: what the second hoists must not stand between them."""
    branches: list[str] = []
    for head, truth in ((f"if ({e.condition(condition)})", True), ("else", False)):
        scope = e.push(guard=True)
        scope.known[condition] = truth
        emit_range(e, axis, lo, hi, body, leaf, depth + 1)
        e.pop()
        branches += block(head, scope)
    e.scope.lines.extend(branches)


def _true_range(condition: Condition, symbol: Symbol) -> tuple[SizeLike, SizeLike]:
    """The half-open range of the axis in which the condition holds; its coefficient is 1 or -1."""
    rest = sizes.substitute(condition.left, {symbol: 0})
    if coefficient(condition.left, symbol) == 1:
        return sizes.mul(rest, -1), sizes.add(condition.right, sizes.mul(rest, -1))
    return sizes.add(sizes.add(rest, 1), sizes.mul(condition.right, -1)), sizes.add(rest, 1)


def first_open(e: Emitter, roots: Sequence[Expr], symbol: Symbol) -> Condition | None:
    """The first condition, in reading order, that is reached, undecided, and decided by a range of `symbol` or outside the loop."""
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        match expr:
            case Var(name) if name in e.lets:
                stack.append(e.lets[name])
            case Within(conditions, then, other, _):
                truths = [e.known(c) for c in conditions]
                if any(t is False for t in truths):
                    stack.append(other)
                    continue
                for c, t in zip(conditions, truths, strict=True):
                    if t is None and _splittable(e, c, symbol):
                        return c
                stack.append(then)
                if not all(truths):
                    stack.append(other)
            case _:
                stack.extend(reversed(children(expr)))
    return None


def _splittable(e: Emitter, condition: Condition, symbol: Symbol) -> bool:
    named = sizes.symbols(condition.left) | sizes.symbols(condition.right)
    if any(e.levels.get(s, 0) > e.scope.level and s != symbol for s in named) or symbol in sizes.symbols(condition.right):
        return False
    return symbol not in named or coefficient(condition.left, symbol) in (1, -1)


def emit_leaf(e: Emitter, axis: Axis, lo: str, hi: str, body: Body, text: str = "", simd: bool = True) -> None:
    """One loop over [lo, hi). Where it used sin or cos it goes block by block, and a block with a huge argument is done again exactly."""
    lines, big = _loop(e, axis, lo, hi, body, text, simd)
    if not big:
        e.scope.lines.extend(lines)
        return
    name = f"b{e.counter}"
    e.counter += 1
    outside = e.push(guard=False)
    end = f"tw_minl({name} + {REDO_BLOCK}, {hi})"
    lines, _ = _loop(e, axis, name, f"{name}_end", body, text, simd)
    e.exact = True
    again, _ = _loop(e, axis, name, f"{name}_end", body, text, False)
    e.exact = False
    e.pop()
    e.scope.lines.extend(line for line in outside.lines)
    saved = [f"const __typeof__({a}) {a}_saved = {a};" for a, _ in body.accumulators]
    restore = [f"{a} = {a}_saved;" for a, _ in body.accumulators]
    e.scope.lines += [f"for (long {name} = {lo}; {name} < {hi}; {name} += {REDO_BLOCK}) {{",
                      f"    const long {name}_end = {end};", "    int big = 0;", *(f"    {x}" for x in saved),
                      *_inside(lines), "    if (big) {", *(f"        {x}" for x in restore), *_inside(_inside(again)), "    }", "}"]


def _inside(lines: list[str]) -> list[str]:
    return [line if line.startswith("#") else "    " + line for line in lines]


def _loop(e: Emitter, axis: Axis, lo: str, hi: str, body: Body, text: str, simd: bool) -> tuple[list[str], bool]:
    symbol = Symbol(axis.name)
    before = e.texts.get(symbol), e.levels.get(symbol)
    scope = e.push(deeper=True)
    e.set_axis(symbol, text or axis.name, scope.level)
    body.emit()
    e.pop()
    _restore(e, symbol, *before)
    clauses: dict[str, list[str]] = {}
    for name, op in body.accumulators:
        clauses.setdefault(op, []).append(name)
    for flag in ("bad", "big"):
        if any(f"{flag} |=" in line for line in scope.lines):
            clauses.setdefault("|", []).append(flag)
    pragma = SIMD + "".join(f" reduction({op}:{', '.join(names)})" for op, names in clauses.items()) if simd else ""
    return block(f"for (long {axis.name} = {lo}; {axis.name} < {hi}; {axis.name}++)", scope, pragma), "big" in clauses.get("|", ())


def _restore(e: Emitter, symbol: Symbol, text: str | None, level: int | None) -> None:
    if text is None:
        e.texts.pop(symbol, None)
        e.levels[symbol] = e.scope.level + 1
    else:
        e.set_axis(symbol, text, level)
