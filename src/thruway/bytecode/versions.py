"""Every difference between the bytecodes of CPython 3.11 and 3.12 that decoding, assembling and interpreting must know."""

from __future__ import annotations

import dis
import opcode
import sys

VERSION = sys.version_info[:2]
CACHES: dict[str, int] = {name: opcode._inline_cache_entries[code] for name, code in opcode.opmap.items() if code < len(opcode._inline_cache_entries)}
JUMPS = frozenset(dis.opname[code] for code in dis.hasjrel)
FREE = frozenset(dis.opname[code] for code in dis.hasfree)
LOCALS = frozenset(dis.opname[code] for code in dis.haslocal)
CONSTS = frozenset(dis.opname[code] for code in dis.hasconst)
NAMES = frozenset(dis.opname[code] for code in dis.hasname)
BINARY_OPERATORS = tuple(symbol for _, symbol in opcode._nb_ops)
EXHAUSTED_SKIPS_END_FOR = VERSION >= (3, 12)     # FOR_ITER's target is an END_FOR that an exhausted loop steps over


def name_index(op: str, arg: int) -> tuple[int, bool]:
    """Index into co_names, and the flag in the low bits: a NULL is pushed (LOAD_GLOBAL) or a method is wanted (LOAD_ATTR)."""
    if op == "LOAD_GLOBAL":
        return arg >> 1, bool(arg & 1)
    if VERSION >= (3, 12):
        if op == "LOAD_ATTR":
            return arg >> 1, bool(arg & 1)
        if op == "LOAD_SUPER_ATTR":
            return arg >> 2, bool(arg & 1)
    return arg, False


def comparison(arg: int) -> str:
    """The operator of COMPARE_OP."""
    return dis.cmp_op[arg >> 4 if VERSION >= (3, 12) else arg]


def is_backward(op: str) -> bool:
    return "BACKWARD" in op
