"""Symbolic sizes behind torch.SymInt: a node of ours that computes on `core.sizes` and answers comparisons by a hint.

A comparison whose answer the bounds do not settle is answered for the hint and recorded in `Facts`; the caller turns facts into guards.
The same object serves the rules (Python operators, giving plain ints where the result is one) and torch's C++ (named methods, giving
nodes). Nothing here needs sympy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

import torch

from thruway.core import sizes as core
from thruway.core.errors import Unsupported
from thruway.core.sizes import Size, SizeLike
from thruway.shapes.booleans import BoolNode, OpenNode
from thruway.shapes.floats import FloatNode, Truth
from thruway.shapes.meta import TensorMeta
from thruway.shapes.refuse import ELEMENTS, NO_RULE
from thruway.shapes.rules import strides as layouts

# Hints of symbols that were given none: unlike each other and unlike sizes that code compares with.
_UNNAMED_HINTS = (1031, 2053, 4099, 8209, 16411, 32771, 65537, 131101)
Layout = Callable[[tuple, tuple], bool]
Range = tuple[int | None, SizeLike | None]
MOST_POWER = 4              # of a size that stays symbolic
_TRACED = (2, 2**62)        # a traced size symbol is at least 2, since capture specialises 0 and 1, and fits an int64
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Fact:
    """`left operator right` holds for every call that may use what was traced. operator: ==, !=, <, <=."""

    left: SizeLike
    operator: str
    right: SizeLike


@dataclass(slots=True)
class Facts:
    """`hints`: a value for each symbol's name. `recorded`: what was assumed, in order, without repeats. `may_fix`: whether a size may
    become a constant, which needs true hints. `fixed`: sources of floats that became constants. `known`: facts that hold anyway.
    `truths`: by source, what must hold of a number. `numbers`: the sources of symbols that are numbers found outside.

    `unbacked`: what is known of numbers that depend on the elements of tensors; nothing more is ever assumed of them. `elements`: by name, the
    graph's nodes that read such numbers as they are; `used`: those of which sizes are made; `computed`: those that follow from others.
    `deferred`: how often eager's kernel, which then has to run, was left to decide or to check something; `checked`: how often it may raise."""

    hints: dict[str, int] = field(default_factory=dict)
    recorded: dict[Fact, None] = field(default_factory=dict)
    may_fix: bool = True
    fixed: dict[object, None] = field(default_factory=dict)
    truths: dict[object, dict[Truth, None]] = field(default_factory=dict)
    numbers: dict[str, object] = field(default_factory=dict)
    drawn: set[object] = field(default_factory=set)      # sources of numbers that random generators gave: never made constants
    known: frozenset[Fact] = frozenset()
    unbacked: dict[str, Range] = field(default_factory=dict)
    elements: dict[str, object] = field(default_factory=dict)
    used: set[object] = field(default_factory=set)
    computed: dict[object, Size] = field(default_factory=dict)
    deferred: int = 0
    checked: int = 0

    def fresh(self, low: int | None = 0, high: SizeLike | None = None) -> Size:
        """A number that a run of the graph makes known."""
        self.deferred += 1
        return self._number(low, high)

    def shared(self, key: object, high: SizeLike | None) -> Size:
        """As `fresh`; the same number for what is equal whenever `key` is."""
        self.deferred += 1
        if key not in self.computed:
            self.computed[key] = self.fresh(0, high)
        return self.computed[key]

    def _number(self, low: int | None, high: SizeLike | None) -> Size:
        name = f"u{len(self.unbacked)}"
        self.unbacked[name] = low, high
        return core.symbol(name, low)

    def name_of(self, node: object) -> Size:
        """The integer that the graph's `node` reads from a tensor."""
        made = self._number(None, None)
        self.elements[core.show(made)] = node
        return made

    def number_of(self, node: object) -> SizeNode:
        """The same, for rules."""
        name = next(name for name, known in self.elements.items() if known is node)
        return SizeNode(core.symbol(name, None), self)

    def size_of(self, node: object) -> SizeNode:
        """The same as a number that sizes are made of."""
        self.used.add(node)
        return self.number_of(node)

    def is_free(self, size: SizeLike) -> bool:
        """Whether `size` depends on the elements of a tensor."""
        return bool(self.unbacked) and any(s.name in self.unbacked for s in core.symbols(size))

    def surely(self, left: SizeLike, operator: str, right: SizeLike, least: int = 0) -> bool:
        """Whether that holds whatever tensors hold, as long as sizes are at least `least`."""
        ranges = self.unbacked
        if least:
            ranges = {name: (low if low is None else max(low, least), high) for name, (low, high) in ranges.items()}
        return _certain(core.add(left, core.mul(right, -1)), operator, ranges) is True

    def expect(self, left: SizeLike, operator: str, right: SizeLike) -> bool:
        """Whether that holds. Where only elements say so it is taken to: eager's kernel, which runs here, raises otherwise."""
        if not self.is_free(core.add(left, core.mul(right, -1))):
            return self.holds(left, operator, right)
        certain = _certain(core.add(left, core.mul(right, -1)), operator, self.unbacked)
        if certain is None:
            self.defer()
            self.raise_bound(*((left, right) if operator in (">=", ">") else (right, left)), operator in ("<", ">"))
        return certain is not False

    def ask(self, left: SizeLike, operator: str, right: SizeLike) -> BoolNode:
        """The answer for torch's C++ code."""
        difference = core.add(left, core.mul(right, -1))
        if self.is_free(difference) and _certain(difference, operator, self.unbacked) is None:
            return self.open(left, operator, right)
        return BoolNode(self.holds(left, operator, right))

    def open(self, *question: object) -> OpenNode:
        return OpenNode(partial(needs_elements, *question), self.defer, question)

    def defer(self) -> None:
        """Eager's kernel, which has to run, decides or checks something."""
        self.deferred += 1
        self.checked += 1

    def raise_bound(self, large: SizeLike, small: SizeLike, strictly: bool) -> None:
        """A lower bound of a number that is not read before the operator that checked it."""
        name = core.as_symbol(large)
        if type(small) is int and name is not None and name.name in self.unbacked:
            low, high = self.unbacked[name.name]
            least = small + strictly
            self.unbacked[name.name] = least if low is None else max(low, least), high

    def hint(self, size: SizeLike) -> int:
        if self.is_free(size):
            needs_elements(size)
        for s in core.symbols(size):
            if s.name not in self.hints:
                self.hints[s.name] = _UNNAMED_HINTS[len(self.hints) % len(_UNNAMED_HINTS)]
        return core.evaluate(size, self.hints)

    def holds(self, left: SizeLike, operator: str, right: SizeLike) -> bool:
        """Whether `left operator right`; recorded as a fact unless it is certain either way."""
        certain = _certain(core.add(left, core.mul(right, -1)), operator, self.unbacked)
        if certain is not None:
            return certain
        if self.is_free(left) or self.is_free(right):
            needs_elements(left, operator, right)
        answer = _compare(self.hint(left), operator, self.hint(right))
        fact = _fact(left, operator if answer else _OPPOSITE[operator], right)
        if fact not in self.known:
            self.recorded[fact] = None
        return answer

    def as_known(self) -> Facts:
        """The same hints, and what was recorded as known: for a stage that must assume no more."""
        return Facts(dict(self.hints), known=frozenset(self.recorded))

    def fix(self, size: SizeLike) -> int:
        """The hint as a plain number: whatever asks needs a constant, so the size becomes one."""
        if not self.may_fix:
            raise Unsupported(NO_RULE, f"the symbolic size {size} where a constant is needed")
        value = self.hint(size)
        self.holds(size, "==", value)
        return value


def _compare(a: int, operator: str, b: int) -> bool:
    match operator:
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case _:
            raise ValueError(f"not a comparison: {operator}")


def needs_elements(*question: object) -> NoReturn:
    """Python, or a rule, asks what only the elements of a tensor say."""
    raise Unsupported("TW103", f"the value of a tensor is needed in Python: {' '.join(map(str, question))}, where u… is read from a tensor", ELEMENTS)


def _certain(difference: SizeLike, operator: str, unbacked: Mapping[str, Range]) -> bool | None:
    """The answer where the bounds of left - right settle it."""
    if type(difference) is int:
        return _compare(difference, operator, 0)
    ranges = {s: unbacked.get(s.name, _TRACED) for s in core.symbols(difference)}
    if operator in ("==", "!="):
        apart = core.is_negative(difference, ranges) or core.is_negative(core.mul(difference, -1), ranges)
        return operator == "!=" if apart else None
    if operator in ("<=", ">"):
        difference = core.add(difference, -1)                       # a <= b is a - 1 < b
    is_below = core.is_negative(difference, ranges)
    is_at_least = not is_below and core.is_negative(core.add(core.mul(difference, -1), -1), ranges)
    return None if not is_below and not is_at_least else is_below == (operator in ("<", "<="))


def _fact(left: SizeLike, operator: str, right: SizeLike) -> Fact:
    if operator in (">", ">="):
        return Fact(right, "<" if operator == ">" else "<=", left)
    return Fact(left, operator, right)


class SizeNode:
    """A size with the facts it is compared under."""

    __slots__ = ("facts", "size")

    def __init__(self, size: SizeLike, facts: Facts):
        self.size, self.facts = size, facts

    def _of(self, size: SizeLike):
        """For the rules: a plain int where the result is one."""
        return size if type(size) is int else SizeNode(size, self.facts)

    @property
    def is_free(self) -> bool:
        return self.facts.is_free(self.size)

    def surely(self, operator: str, other: object, least: int = 0) -> bool:
        """Whether that holds, where it may depend on elements: without assuming anything."""
        return self.facts.surely(self.size, operator, bare(other), least)

    def expect(self, operator: str, other: object) -> bool:
        return self.facts.expect(self.size, operator, bare(other))

    def fresh(self, key: tuple, high: object = None) -> SizeNode:
        """Another number that only a run makes known: the same one for the same `key`, which says what it is computed from."""
        return SizeNode(self.facts.shared(tuple(map(bare, key)), bare(high)), self.facts)

    def smaller(self, other: object) -> object: return self._of(self._extreme(SizeNode(bare(other), self.facts), "<=", core.minimum).size)
    def larger(self, other: object) -> object: return self._of(self._extreme(SizeNode(bare(other), self.facts), ">=", core.maximum).size)

    def _divisor(self, size: SizeLike) -> SizeLike:
        """`size`, where it is sure not to be 0 whatever tensors hold."""
        if self.facts.is_free(size):
            self.facts.holds(size, "!=", 0)
        return size

    def _extreme(self, other: SizeNode, operator: str, function: Callable[[SizeLike, SizeLike], SizeLike]) -> SizeNode:
        """The smaller or larger of the two; both stay in it where only elements say which."""
        if not self.is_free and not other.is_free:
            return self if self.facts.holds(self.size, operator, other.size) else other
        if self.facts.surely(self.size, operator, other.size):
            return self
        return other if self.facts.surely(other.size, operator, self.size) else self._node(function(self.size, other.size))

    def __hash__(self): return hash(self.size)
    def __repr__(self): return core.show(self.size)
    def __add__(self, other): return self._of(core.add(self.size, bare(other)))
    def __sub__(self, other): return self._of(core.add(self.size, core.mul(bare(other), -1)))
    def __rsub__(self, other): return self._of(core.add(bare(other), core.mul(self.size, -1)))
    def __mul__(self, other): return self._of(core.mul(self.size, bare(other)))
    def __floordiv__(self, other): return self._of(core.floordiv(self.size, self._divisor(bare(other))))
    def __rfloordiv__(self, other): return self._of(core.floordiv(bare(other), self._divisor(self.size)))
    def __mod__(self, other): return self._of(core.mod(self.size, self._divisor(bare(other))))
    def __rmod__(self, other): return self._of(core.mod(bare(other), self._divisor(self.size)))
    def __neg__(self): return self._of(core.mul(self.size, -1))
    def __eq__(self, other): return _is_size(other) and self.facts.holds(self.size, "==", bare(other))
    def __ne__(self, other): return not _is_size(other) or self.facts.holds(self.size, "!=", bare(other))
    def __lt__(self, other): return self.facts.holds(self.size, "<", bare(other))
    def __le__(self, other): return self.facts.holds(self.size, "<=", bare(other))
    def __gt__(self, other): return self.facts.holds(self.size, ">", bare(other))
    def __ge__(self, other): return self.facts.holds(self.size, ">=", bare(other))
    def __bool__(self): return self.facts.holds(self.size, "!=", 0)
    def __int__(self): return self.facts.fix(self.size)
    def __index__(self): return self.facts.fix(self.size)
    __radd__, __rmul__ = __add__, __mul__

    # What torch's C++ and its Python SymInt ask of a node.
    def is_int(self): return True
    def is_float(self): return False
    def is_bool(self): return False
    def is_symbolic(self): return type(self.size) is not int
    def is_constant(self): return type(self.size) is int
    def is_nested_int(self): return False
    def nested_int(self): return None
    def has_hint(self): return not self.is_free
    def require_hint(self, fallback=None): return self.facts.hint(self.size)
    def maybe_as_int(self): return self.size if type(self.size) is int else None
    def constant_int(self): return self.maybe_as_int()
    def clone(self): return self
    def str(self): return core.show(self.size)
    def _graph_repr(self): return core.show(self.size)
    def guard_int(self, file, line): return self.facts.fix(self.size)
    def int_(self): return self.facts.fix(self.size)
    def expect_size(self, file, line): return self.facts.expect(self.size, ">=", 0)
    def wrap_int(self, value): return SizeNode(value, self.facts)
    def wrap_bool(self, value): return BoolNode(value)
    def _node(self, size: SizeLike) -> SizeNode: return SizeNode(size, self.facts)
    def add(self, other): return self._node(core.add(self.size, other.size))
    def sub(self, other): return self._node(core.add(self.size, core.mul(other.size, -1)))
    def mul(self, other): return self._node(core.mul(self.size, other.size))
    def floordiv(self, other): return self._node(core.floordiv(self.size, self._divisor(other.size)))
    def int_floordiv(self, other): return self.floordiv(other)
    def mod(self, other): return self._node(core.mod(self.size, self._divisor(other.size)))
    def neg(self): return self._node(core.mul(self.size, -1))
    def sym_min(self, other): return self._extreme(other, "<=", core.minimum)
    def sym_max(self, other): return self._extreme(other, ">=", core.maximum)
    def sym_sum(self, args): return self._node(sum((a.size for a in args), 0))
    def eq(self, other): return self.facts.ask(self.size, "==", other.size)
    def ne(self, other): return self.facts.ask(self.size, "!=", other.size)
    def lt(self, other): return self.facts.ask(self.size, "<", other.size)
    def le(self, other): return self.facts.ask(self.size, "<=", other.size)
    def gt(self, other): return self.facts.ask(self.size, ">", other.size)
    def ge(self, other): return self.facts.ask(self.size, ">=", other.size)
    def is_contiguous(self, sizes, strides): return _layout(sizes, strides, layouts.is_contiguous)
    def is_non_overlapping_and_dense(self, sizes, strides): return _layout(sizes, strides, layouts.is_dense)
    def is_channels_last_contiguous_2d(self, sizes, strides): return _channels_last(4, sizes, strides, layouts.is_channels_last)
    def is_channels_last_contiguous_3d(self, sizes, strides): return _channels_last(5, sizes, strides, layouts.is_channels_last)
    def is_channels_last_strides_2d(self, sizes, strides): return _channels_last(4, sizes, strides, layouts.suggests_channels_last)
    def is_channels_last_strides_3d(self, sizes, strides): return _channels_last(5, sizes, strides, layouts.suggests_channels_last)

    def sym_float(self): return FloatNode(self.size, float(self.facts.hint(self.size)), self.facts)
    def truediv(self, other): return self.sym_float().float_truediv(other.sym_float())
    def int_truediv(self, other): return self.truediv(other)

    def pow(self, other):
        if type(other.size) is not int or not 0 <= other.size <= MOST_POWER:
            raise Unsupported(NO_RULE, "a power of a symbolic size")
        return self._node(core.product([self.size] * other.size))

    def pow_by_natural(self, other): return self.pow(other)


def _channels_last(rank: int, sizes: list[SizeNode], strides: list[SizeNode], ask: Layout) -> BoolNode:
    return _layout(sizes, strides, ask) if len(sizes) == rank else BoolNode(False)


def _layout(sizes: list[SizeNode], strides: list[SizeNode], ask: Layout) -> BoolNode:
    """A layout whatever tensors hold; where they may say no, or yes, Python must not go by it."""
    answer = ask(_plain(sizes), _plain(strides))
    if not answer and any(n.is_free for n in (*sizes, *strides)):
        return sizes[0].facts.open("the layout of sizes", tuple(n.size for n in sizes))
    return BoolNode(answer)


def _plain(nodes: Iterable[SizeNode]) -> tuple:
    return tuple(n.size if type(n.size) is int else n for n in nodes)


def _is_size(value: object) -> bool:
    return isinstance(value, (int, Size, SizeNode))


def bare(value: object) -> SizeLike:
    """The size expression that a SizeNode or SymInt carries."""
    if type(value) is SizeNode:
        return value.size
    if type(value) is torch.SymInt:
        return as_node(value).size
    return value


def as_node(value: torch.SymInt) -> SizeNode:
    node = value.node
    if isinstance(node, FloatNode):
        return node.as_size()
    if type(node) is not SizeNode:
        raise Unsupported(NO_RULE, "a symbolic size that another tracer made")
    return node


def symint(size: object, facts: Facts | None = None) -> object:
    """What torch takes for `size`: a SymInt where it is symbolic."""
    if type(size) is SizeNode:
        return torch.SymInt(size)
    if type(size) is Size:
        return torch.SymInt(SizeNode(size, facts or Facts()))
    return size


def is_symbolic(meta: TensorMeta | SizeLike) -> bool:
    if not isinstance(meta, TensorMeta):
        return type(meta) is not int
    return any(type(n) is not int for n in meta.sizes) or any(type(n) is not int for n in meta.strides) or type(meta.offset) is not int


def comparable(meta: TensorMeta, facts: Facts) -> TensorMeta:
    """`meta` with sizes that rules can compare."""
    def one(n):
        return SizeNode(n, facts) if type(n) is Size else n
    return replace(meta, sizes=tuple(map(one, meta.sizes)), strides=tuple(map(one, meta.strides)), offset=one(meta.offset))


def bare_meta(meta: TensorMeta) -> TensorMeta:
    """`meta` with plain size expressions."""
    return replace(meta, sizes=tuple(map(bare, meta.sizes)), strides=tuple(map(bare, meta.strides)), offset=bare(meta.offset))


def has_symbols(value: object) -> bool:
    """Whether a plain symbolic size stands anywhere in arguments of an operator."""
    kind = type(value)
    if kind is TensorMeta:
        return any(type(n) is Size for n in value.sizes) or any(type(n) is Size for n in value.strides) or type(value.offset) is Size
    if issubclass(kind, (tuple, list)):
        return any(has_symbols(v) for v in value)
    return kind is Size


def comparable_value(value: object, facts: Facts) -> object:
    """Arguments of an operator with every symbolic size made comparable."""
    match value:
        case TensorMeta():
            return comparable(value, facts)
        case Size():
            return SizeNode(value, facts)
        case list() | tuple():
            return type(value)(comparable_value(v, facts) for v in value)
        case dict():
            return {k: comparable_value(v, facts) for k, v in value.items()}
        case _:
            return value


def bare_value(value: object) -> object:
    """A rule's result with plain size expressions."""
    match value:
        case TensorMeta():
            return bare_meta(value) if is_symbolic(value) else value
        case list() | tuple():
            return type(value)(bare_value(v) for v in value)
        case _:
            return bare(value)
