"""The one instruction that runs in plain Python at a break, as a tiny function on the user's line.

A row: how many values it takes from the stack, the expression over p0, p1, … (bottom first), and how the result is used:
"push" one value, "drop" it, "branch" on it, "spread" its items, "next" (a loop's step: a jump where it is exhausted), or "never" (it raises).
"""

from __future__ import annotations

import ast
import builtins
import functools
import operator
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thruway.bytecode.decode import Instruction, decode
from thruway.capture.state import Frame
from thruway.capture.values.base import Constant, Null, Value
from thruway.frame.skip import mark_own

EXHAUSTED = object()


@dataclass(frozen=True, slots=True)
class PlainStep:
    """`pops` operands; `text` (an expression, or statements) over p0 …; `use` says what becomes of the result."""

    pops: int
    text: str
    use: str = "push"


def plain_step(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep | None:
    """How to run `ins` in plain Python; None where that is not known. `names` are a call's keyword names."""
    row = ROWS.get(ins.op)
    return row(frame, ins, names) if row is not None else None


def asks_frame(operands: list[Value], count: int) -> bool:
    """Whether the call, with NULL or the callable in front, asks for the names of the frame that it is made in."""
    null, function = operands[:2]
    return isinstance(null, Null) and isinstance(function, Constant) and count < FRAME_CALLS.get(function.value, 0)


FRAME_CALLS: dict[Any, int] = {globals: 1, locals: 1, vars: 1, dir: 1, eval: 2, exec: 2}         # with fewer arguments than this


def _call(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep | None:
    """Operands: NULL or callable, callable or first argument, arguments. NULL is passed as nothing by the emitter."""
    count = ins.arg
    if asks_frame(frame.stack[-count - 2:], count):
        return None
    args = [f"p{i + 2}" for i in range(count - len(names))]
    args += [f"{name}=p{i + 2 + count - len(names)}" for i, name in enumerate(names)]
    return PlainStep(count + 2, "{call}" + f"({', '.join(args)})")


def _call_ex(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    return PlainStep(4, "p1(*p2, **p3)") if ins.arg & 1 else PlainStep(3, "p1(*p2)")


def _build_map(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    return PlainStep(2 * ins.arg, "{" + ", ".join(f"p{2 * i}: p{2 * i + 1}" for i in range(ins.arg)) + "}")


def _build_set(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    return PlainStep(ins.arg, "{" + ", ".join(f"p{i}" for i in range(ins.arg)) + "}")


def _format_value(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    shown = ("p0", "str(p0)", "repr(p0)", "ascii(p0)")[ins.arg & 3]
    return PlainStep(2, f"format({shown}, p1)") if ins.arg & 4 else PlainStep(1, f"format({shown})")


def _binary(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    symbol: str = ins.value
    if symbol.endswith("="):
        return PlainStep(2, f"operator.{IN_PLACE_NAMES[symbol]}(p0, p1)")
    return PlainStep(2, f"p0 {symbol} p1")


IN_PLACE_NAMES = {
    "+=": "iadd", "-=": "isub", "*=": "imul", "/=": "itruediv", "//=": "ifloordiv", "%=": "imod", "**=": "ipow", "@=": "imatmul", "&=": "iand",
    "|=": "ior", "^=": "ixor", "<<=": "ilshift", ">>=": "irshift",
}


def _fixed(pops: int, text: str, use: str = "push") -> Callable[..., PlainStep]:
    step = PlainStep(pops, text, use)
    return lambda frame, ins, names: step


def _with_name(pops: int, text: str, use: str = "push") -> Callable[..., PlainStep]:
    return lambda frame, ins, names: PlainStep(pops, text.format(name=ins.value), use)


def _into(method: str) -> Callable[..., PlainStep | None]:
    """What a display takes in by a star, where the container stands next to it."""
    step = PlainStep(2, f"(p0, p0.{method}(p1))[0]")
    return lambda frame, ins, names: step if ins.arg == 1 else None


def _attribute(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    text = f"getattr(p0, {ins.value!r})"
    return PlainStep(1, text, "push_method" if ins.flag or ins.op == "LOAD_METHOD" else "push")


def _unpack(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    return _unpacked([f"x{i}" for i in range(ins.arg)])


def _unpack_ex(frame: Frame, ins: Instruction, names: tuple[str, ...]) -> PlainStep:
    before, after = ins.arg & 0xFF, ins.arg >> 8
    return _unpacked([*(f"x{i}" for i in range(before)), "*rest", *(f"y{i}" for i in range(after))])


def _unpacked(targets: list[str]) -> PlainStep:
    """Python's own assignment: it takes from an iterator no more than it needs, and its errors have their own words."""
    found = ", ".join(targets).replace("*", "")
    return PlainStep(1, f"[{', '.join(targets)}] = p0; return [{found}]", "spread")


def enter(manager: Any) -> tuple:
    """The bound exit and what entering gives."""
    cls = type(manager)
    leave = types.MethodType(cls.__exit__, manager) if isinstance(cls.__exit__, types.FunctionType) else cls.__exit__.__get__(manager, cls)
    return leave, cls.__enter__(manager)


_JUMPS_TRUE = ("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE")
ROWS: dict[str, Callable[[Frame, Instruction, tuple[str, ...]], PlainStep | None]] = {
    "CALL": _call, "CALL_FUNCTION_EX": _call_ex, "BINARY_OP": _binary,
    "COMPARE_OP": lambda frame, ins, names: PlainStep(2, f"p0 {ins.value} p1"),
    "IS_OP": lambda frame, ins, names: PlainStep(2, "p0 is not p1" if ins.arg else "p0 is p1"),
    "CONTAINS_OP": lambda frame, ins, names: PlainStep(2, "p0 not in p1" if ins.arg else "p0 in p1"),
    "UNARY_NOT": _fixed(1, "not p0"), "UNARY_NEGATIVE": _fixed(1, "-p0"), "UNARY_POSITIVE": _fixed(1, "+p0"), "UNARY_INVERT": _fixed(1, "~p0"),
    "BINARY_SUBSCR": _fixed(2, "p0[p1]"), "STORE_SUBSCR": _fixed(3, "operator.setitem(p1, p2, p0)", "drop"),
    "DELETE_SUBSCR": _fixed(2, "operator.delitem(p0, p1)", "drop"), "BINARY_SLICE": _fixed(3, "p0[p1:p2]"),
    "STORE_SLICE": _fixed(4, "operator.setitem(p1, slice(p2, p3), p0)", "drop"),
    "LOAD_ATTR": _attribute, "LOAD_METHOD": _attribute,
    "STORE_ATTR": _with_name(2, "setattr(p1, {name!r}, p0)", "drop"), "DELETE_ATTR": _with_name(1, "delattr(p0, {name!r})", "drop"),
    "GET_ITER": _fixed(1, "iter(p0)"), "FOR_ITER": _fixed(1, "next(p0, EXHAUSTED)", "next"),
    "UNPACK_SEQUENCE": _unpack, "UNPACK_EX": _unpack_ex,
    "BEFORE_WITH": _fixed(1, "enter(p0)", "spread_forward"),
    **{name: _fixed(1, "bool(p0)", "branch") for name in _JUMPS_TRUE},
    **{name.replace("TRUE", "FALSE"): _fixed(1, "not p0", "branch") for name in _JUMPS_TRUE},
    "JUMP_IF_TRUE_OR_POP": _fixed(1, "bool(p0)", "branch_keep"), "JUMP_IF_FALSE_OR_POP": _fixed(1, "not p0", "branch_keep"),
    "IMPORT_NAME": lambda frame, ins, names: PlainStep(2, f"__import__({ins.value!r}, GLOBALS, None, p1, p0)"),
    "RAISE_VARARGS": lambda frame, ins, names: PlainStep(ins.arg, ("raise", "raise p0", "raise p0 from p1")[ins.arg], "never"),
    "RERAISE": _fixed(1, "raise p0", "never"),
    "BUILD_MAP": _build_map, "BUILD_SET": _build_set, "FORMAT_VALUE": _format_value,
    "LIST_TO_TUPLE": _fixed(1, "tuple(p0)"), "LIST_EXTEND": _into("extend"), "SET_UPDATE": _into("update"), "DICT_UPDATE": _into("update"),
    "GET_LEN": _fixed(1, "(p0, len(p0))", "spread_forward"),
}
NAMESPACE = {"operator": operator, "builtins": builtins, "enter": enter, "EXHAUSTED": EXHAUSTED, "sys": sys}


def step_function(frame: Frame, step: PlainStep, text: str, ins: Instruction) -> types.FunctionType:
    """A function of the operands that computes `text`, at the user's line and columns, under the user's function name."""
    parameters = ", ".join(f"p{i}" for i in range(step.pops))
    tree = ast.parse(f"def step({parameters}): {text if text.startswith('raise') or '; return ' in text else f'return {text}'}")
    _place(tree, ins, frame.code)
    space = NAMESPACE | {"GLOBALS": frame.namespace.real, "__builtins__": builtins}
    exec(compile(tree, frame.code.co_filename, "exec"), space)
    made: types.FunctionType = space["step"]
    made.__code__ = mark_own(made.__code__).replace(co_name=frame.code.co_name, co_qualname=frame.code.co_qualname)
    return made


CALLING = "def caller(inner, *rest): return inner(*rest)"
LANDING = "def caller(result, jump, kind):\n while kind(result) is jump: result = result.function(*result.arguments)\n return result"


def caller_function(frame: Frame, index: int, jump: type | None = None) -> types.FunctionType:
    """A function that shows in tracebacks as `frame` at instruction `index`, a call: what runs below an inlined call is called through it,
    as `caller(inner, *rest)`. With `jump`, `caller(result)` makes the jumps of that type until there is a result."""
    code = _caller_code(frame.code, index, jump is not None)
    return types.FunctionType(code, frame.namespace.real, frame.code.co_name, None if jump is None else (jump, type))


def _place(tree: ast.AST, ins: Instruction, code: types.CodeType) -> None:
    """Puts all of `tree` where the instruction of `code` stands in the user's file."""
    line, end, start, stop = ins.position
    line = line or code.co_firstlineno
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = line, end or line, start or 0, stop or 0


@functools.lru_cache(maxsize=4096)
def _caller_code(code: types.CodeType, index: int, is_landing: bool) -> types.CodeType:
    tree = ast.parse(LANDING if is_landing else CALLING)
    _place(tree, decode(code).instructions[index], code)
    space: dict[str, Any] = {}
    exec(compile(tree, code.co_filename, "exec"), space)
    made: types.CodeType = space["caller"].__code__
    return mark_own(made).replace(co_name=code.co_name, co_qualname=code.co_qualname)
