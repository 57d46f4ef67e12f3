"""Prints loop expressions as C statements: one constant per distinct computation, in the outermost loop where it can stand.

What stands under a `Within` is evaluated only where its condition holds; a condition that the surrounding block has decided
picks its branch in the text. Loads of a buffer that the kernel also writes stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from thruway.codegen.ctypes_c import FROM_MEMORY, ROUND, TO_MEMORY, convert, literal, register_type, size_text
from thruway.codegen.operators import BLOCKWISE, may_fault, operator
from thruway.codegen.roundings import is_held
from thruway.codegen.scope import Scope
from thruway.core import sizes
from thruway.core.dtypes import INTEGERS, is_float
from thruway.core.errors import CompilerBug
from thruway.core.sizes import Ranges, SizeLike, Symbol
from thruway.loops.ir import Cast, CheckIndex, Condition, Expr, IndexValue, Literal, Load, Op, Var, Within
from thruway.schedule.rewrite import children, is_size, own_sizes

CONSTANT = re.compile(r"\bt\d+\b")


class Emitter:
    """`pointers` names each buffer's C pointer, `levels` says at which loop depth each axis symbol runs, `texts` what it is called."""

    def __init__(self, pointers: Mapping[str, str], ranges: Ranges, pinned: frozenset[str], float_rows: frozenset[str] = frozenset()):
        self.pointers, self.ranges, self.pinned, self.float_rows = pointers, dict(ranges), pinned, float_rows
        self.stack: list[Scope] = [Scope(0)]
        self.levels: dict[Symbol, int] = {}
        self.texts: dict[Symbol, str] = {}
        self.lane_rows: dict[str, int] = {}     # scratch with one row of so many lanes per inner point
        self.turn: Callable[[str, tuple], bool] | None = None           # which loads come from turned copies (see tiles_c)
        self.turned: dict[tuple[str, SizeLike], str] | None = None      # their names, by buffer and offset
        self.turned_place = ""
        self.lets: dict[str, Expr] = {}
        self.vars: dict[str, tuple[str, int]] = {}
        self.kept: dict[str, tuple[tuple, Expr]] = {}       # what each scratch row holds: at which index, which value
        self.maxima: dict[str, Expr] = {}       # the value whose maximum over a row each of these is
        self.rounding, self.storing = ROUND, TO_MEMORY      # the functions that round to a dtype, in registers and into memory
        self.counter = 0
        self.exact = False          # sin and cos by the C library, for a block that the fast ones cannot do
        self.uses_big = False
        self.uses_bad = False
        self._level_cache: dict[int, int] = {}
        self._fixed_cache: dict[int, bool] = {}
        self._alive: list[Expr] = []
        self._declared: dict[str, Scope] = {}           # where each constant stands

    # scopes

    @property
    def scope(self) -> Scope:
        return self.stack[-1]

    def push(self, guard: bool = False, deeper: bool = False) -> Scope:
        self.stack.append(Scope(self.scope.level + deeper, guard))
        return self.scope

    def pop(self) -> Scope:
        return self.stack.pop()

    def set_axis(self, symbol: Symbol, text: str, level: int) -> None:
        self.texts[symbol] = text
        self.levels[symbol] = level
        self._level_cache.clear()

    def known(self, condition: Condition) -> bool | None:
        """Whether the condition holds here, where ranges or a surrounding block say so."""
        low, high = sizes.bounds(condition.left, self.ranges)
        least, most = sizes.bounds(sizes.add(condition.left, sizes.mul(condition.right, -1)), self.ranges)
        if high is not None and high < 0 or least is not None and least >= 0:
            return False
        if low is not None and low >= 0 and most is not None and most < 0:
            return True
        for scope in reversed(self.stack):
            if condition in scope.known:
                return scope.known[condition]
        return None

    # values

    def size(self, size: SizeLike) -> str:
        return size_text(size, self.texts, self.ranges)

    def emit(self, expr: Expr, lazy: bool = False) -> str:
        """The name or constant that holds `expr`; statements that compute it go into the scopes."""
        expr = self.resolved(expr)
        if isinstance(expr, Var):
            return self.vars[expr.name][0]
        if isinstance(expr, Literal):
            return literal(expr.value, expr.dtype)
        for scope in reversed(self.stack):
            if id(expr) in scope.values:
                return scope.values[id(expr)]
        if isinstance(expr, Within):
            return self._within(expr, lazy)
        text, fixed = self._text(expr, lazy)
        return self._hold(expr, text, lazy and fixed, self.level(expr))

    def _hold(self, expr: Expr, text: str, lazy: bool, level: int) -> str:
        """A constant for `text` in the outermost scope that knows what it depends on."""
        scope = self._home(level, lazy, text)
        name = self._seen(text, scope)
        if name is None:
            if text.replace("_", "").replace(".", "").isalnum():
                name = text
            else:
                name = self._declare(scope)
                scope.lines.append(f"const {register_type(expr.dtype)} {name} = {_bare(text)};")
                scope.values[text] = name
        scope.values[id(expr)] = name
        self._alive.append(expr)
        return name

    def _seen(self, text: str, home: Scope) -> str | None:
        for scope in self.stack[: self.stack.index(home) + 1]:
            if text in scope.values:
                return scope.values[text]
        return None

    def _declare(self, scope: Scope) -> str:
        """A new constant's name, which stands in `scope`."""
        name = f"t{self.counter}"
        self.counter += 1
        self._declared[name] = scope
        return name

    def _home(self, level: int, lazy: bool, text: str = "") -> Scope:
        """The outermost scope that knows `level` and the constants in `text`; a branch's values stay in the branch."""
        named = [self._declared[name] for name in CONSTANT.findall(text) if name in self._declared]
        first = max((k for k, scope in enumerate(self.stack) if any(scope is each for each in named)), default=0)
        for position, scope in enumerate(self.stack):
            if position >= first and scope.level >= level and not (lazy and any(s.guard for s in self.stack[position + 1:])):
                return scope
        return self.scope

    def level(self, expr: Expr) -> int:
        """The loop depth at which everything in `expr` is known."""
        key = id(expr)
        if key not in self._level_cache:
            self._alive.append(expr)
            self._level_cache[key] = self._find_level(expr)
        return self._level_cache[key]

    def _find_level(self, expr: Expr) -> int:
        match expr:
            case Var(name):
                return self.level(self.lets[name]) if name in self.lets else self.vars[name][1]
            case Load(buffer, _, _) if buffer in self.pinned:
                return self.scope.level
        found = [self.level(x) for x in children(expr)]
        found += [self.levels.get(s, 0) for size in own_sizes(expr) for s in sizes.symbols(size)]
        return max(found, default=0)

    def _text(self, expr: Expr, lazy: bool) -> tuple[str, bool]:
        """C text of one expression over held arguments, and whether it must not run where its guard does not hold."""
        match expr:
            case Load(buffer, index, dtype):
                return self.load(buffer, index, dtype, lazy), True
            case IndexValue(size, dtype):
                return convert(f"({self.size(size)})", "int64", dtype), False
            case Cast(x, dtype):
                text = self.emit(x, lazy)
                kept = dtype in FROM_MEMORY and is_held(x, dtype, self.resolved)
                return text if kept else self._converted(text, x, dtype), self._fixed(x)
            case CheckIndex(x, _, _, _):
                return self._check(expr, self.emit(x, lazy), lazy), True
            case Op(name, args, dtype):
                texts = [self.emit(a, lazy) for a in args]
                return self._operator(expr, texts, lazy), may_fault(expr) or any(self._fixed(a) for a in args)
            case _:
                raise CompilerBug("codegen", f"cannot print {type(expr).__name__} inside a kernel")

    def _converted(self, text: str, x: Expr, dtype: str) -> str:
        """A float made an integer and a float again: gcc would only truncate it, which keeps -0 and what no integer holds."""
        inner = self.resolved(x)
        lost = is_float(dtype) and x.dtype in INTEGERS and isinstance(inner, Cast) and is_float(inner.x.dtype)
        return convert(f"({text} | tw_zero())" if lost else text, x.dtype, dtype, self.rounding)

    def _fixed(self, expr: Expr) -> bool:
        """Whether the value rests on a load or check that only its guard makes legal."""
        key = id(expr)
        if key not in self._fixed_cache:
            self._alive.append(expr)
            self._fixed_cache[key] = self._find_fixed(expr)
        return self._fixed_cache[key]

    def _find_fixed(self, expr: Expr) -> bool:
        match expr:
            case Load() | CheckIndex() | Within():
                return True
            case Var(name):
                return name in self.lets and self._fixed(self.lets[name])
            case Op() if may_fault(expr):
                return True
            case _:
                return any(self._fixed(x) for x in children(expr))

    def _operator(self, op: Op, texts: list[str], lazy: bool) -> str:
        if may_fault(op):
            self.uses_bad = True
            self._home(self.level(op), lazy, texts[1]).lines.append(f"bad |= ({texts[1]} == 0);")
        if op.name in BLOCKWISE and op.dtype != "float64":
            if self.exact or self._home(self.level(op), lazy, texts[0]) is not self.scope:
                return f"tw_{op.name}_exact({texts[0]})"
            self.uses_big = True
            flag = f"big |= TW_BIG({texts[0]});"
            if flag not in self.scope.lines:
                self.scope.lines.append(flag)
        if op.name == "exp" and op.dtype == "float32" and self._is_below_its_maximum(op.args[0]):
            return f"tw_exp_neg({texts[0]})"
        return operator(op, texts)

    def _is_below_its_maximum(self, x: Expr) -> bool:
        """Whether `x` is a value less the row's maximum of that value: the argument of a softmax's exp."""
        x = self.resolved(x)
        if not (isinstance(x, Op) and x.name == "sub"):
            return False
        value, most = (self.resolved(a) for a in x.args)
        if not isinstance(most, Var) or most.name not in self.maxima:
            return False
        if isinstance(value, Load) and self.kept.get(value.buffer, ((), value))[0] == value.index:
            value = self.resolved(self.kept[value.buffer][1])
        return self.resolved(self.maxima[most.name]) == value

    def resolved(self, expr: Expr) -> Expr:
        """What a Let's name stands for."""
        while isinstance(expr, Var) and expr.name in self.lets:
            expr = self.lets[expr.name]
        return expr

    def _check(self, expr: CheckIndex, text: str, lazy: bool) -> str:
        self.uses_bad = True
        size = self.size(expr.size)
        wrapped = f"({text} < 0 ? {text} + ({size}) : {text})" if expr.wrap else text
        home = self._home(self.level(expr), lazy, wrapped)
        name = self._declare(home)
        home.lines.append(f"const long long {name} = {_bare(wrapped)};")
        home.lines.append(f"bad |= ((unsigned long long){name} >= (unsigned long long)({size}));")
        return f"((unsigned long long){name} >= (unsigned long long)({size}) ? 0 : {name})"

    def _within(self, expr: Within, lazy: bool) -> str:
        truths = [self.known(c) for c in expr.conditions]
        if all(t is True for t in truths):
            return self.emit(expr.then, True)
        if any(t is False for t in truths):
            return self.emit(expr.other, True)
        open_ = [self.condition(c) for c, t in zip(expr.conditions, truths, strict=True) if t is None]
        name = self._declare(self.scope)
        lines = [f"{register_type(expr.dtype)} {name};"]
        for head, branch in ((f"if ({' & '.join(open_)})", expr.then), ("else", expr.other)):
            scope = self.push(guard=True)
            text = self.emit(branch, True)
            self.pop()
            lines.append(f"{head} {{ {' '.join([*scope.lines, f'{name} = {text};'])} }}")
        self.scope.lines.extend(lines)
        self.scope.values[id(expr)] = name
        self._alive.append(expr)
        return name

    def condition(self, condition: Condition) -> str:
        left, right = condition.left, condition.right
        low = sizes.bounds(left, self.ranges)[0]
        high = sizes.bounds(sizes.add(left, sizes.mul(right, -1)), self.ranges)[1]
        parts = []
        if low is None or low < 0:
            parts.append(f"({self.size(left)} >= 0)")
        if high is None or high >= 0:
            parts.append(f"({self.size(left)} < {self.size(right)})")
        return " & ".join(parts) or "1"

    # memory

    def to_memory(self, value: Expr, dtype: str) -> str:
        """`value` as it is stored; a rounding at the top and the conversion to memory are one step."""
        if dtype not in TO_MEMORY:
            return self.emit(value)
        inner = value.x if isinstance(value, Cast) and value.x.dtype == "float32" else value
        if dtype == "bfloat16" and is_held(inner, dtype, self.resolved):
            return f"tw_f2b_held({self.emit(inner)})"
        return f"{self.storing[dtype]}({self.emit(inner)})"

    def offset(self, index: tuple, lazy: bool = False) -> str:
        """The element offset that is the sum of `index`."""
        return " + ".join(self.size(i) if is_size(i) else self.emit(i, lazy) for i in index) or "0"

    def element(self, buffer: str, index: tuple, lazy: bool = False) -> str:
        if self.turn is not None and self.turned is not None and self.turn(buffer, index):
            return self.turned.setdefault((buffer, index[0]), f"turned{len(self.turned)}") + self.turned_place
        offset = self.offset(index, lazy)
        if buffer in self.lane_rows:
            offset = f"({offset})*{self.lane_rows[buffer]} + j"
        return f"{self.pointers[buffer]}[{offset}]"

    def load(self, buffer: str, index: tuple, dtype: str, lazy: bool) -> str:
        element = self.element(buffer, index, lazy)
        if buffer in self.float_rows:
            return element
        return f"{FROM_MEMORY[dtype]}({element})" if dtype in FROM_MEMORY else element


def _bare(text: str) -> str:
    """`text` without parentheses around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
