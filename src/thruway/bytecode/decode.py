"""Code object → instructions. Jump targets and exception ranges are indices into the instruction list, never offsets.

EXTENDED_ARG and inline caches disappear here; `assemble` puts them back. Results are cached per code object.
"""

from __future__ import annotations

import opcode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from thruway.bytecode.versions import BINARY_OPERATORS, CACHES, CONSTS, FREE, JUMPS, LOCALS, NAMES, comparison, is_backward, name_index

Position = tuple[int | None, int | None, int | None, int | None]     # line, end line, column, end column


@dataclass(frozen=True, slots=True)
class Instruction:
    """`value` is what the argument names: a constant, name, operator symbol; `flag` the bit packed beside a name index;
    `target` the index of the instruction that a jump goes to."""

    op: str
    arg: int | None = None
    value: object = None
    flag: bool = False
    target: int | None = None
    position: Position = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class ExceptionRange:
    """Instructions start ≤ i < end are covered: the stack is cut to `depth`, the index pushed where `lasti`, and `target` runs."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Decoded:
    instructions: tuple[Instruction, ...]
    exceptions: tuple[ExceptionRange, ...]


@lru_cache(maxsize=4096)
def _decode_cached(key: _ByIdentity) -> Decoded:
    return _decode(key.code)


class _ByIdentity:
    """A code object compared by identity: equal code objects may differ in line tables."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType):
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.code is other.code


def decode(code: CodeType) -> Decoded:
    """Instructions and exception ranges of `code`, cached."""
    return _decode_cached(_ByIdentity(code))


def _decode(code: CodeType) -> Decoded:
    units = list(_units(code.co_code))
    index_at = {start: i for i, (start, _, _, _) in enumerate(units)}
    positions = list(code.co_positions())
    names = fast_names(code)
    instructions = []
    for _, offset, op, arg in units:
        value, flag = _argument(code, names, op, arg)
        target = index_at[_jump_offset(op, arg, offset)] if op in JUMPS else None
        shown = arg if opcode.opmap[op] >= opcode.HAVE_ARGUMENT else None
        instructions.append(Instruction(op, shown, value, flag, target, positions[offset // 2]))
    return Decoded(tuple(instructions), tuple(_ranges(code, index_at)))


def fast_names(code: CodeType) -> tuple[str, ...]:
    """Names of the fast locals by index: variables, then cells that are no variables, then free variables."""
    variables = set(code.co_varnames)
    return code.co_varnames + tuple(c for c in code.co_cellvars if c not in variables) + code.co_freevars


def _units(raw: bytes) -> Iterator[tuple[int, int, str, int]]:
    """(offset of the first EXTENDED_ARG or the opcode, offset of the opcode, name, whole argument)."""
    offset, extended, start = 0, 0, 0
    while offset < len(raw):
        op, arg = opcode.opname[raw[offset]], raw[offset + 1] | extended
        if op == "EXTENDED_ARG":
            extended = arg << 8
            offset += 2
            continue
        yield start, offset, op, arg
        offset += 2 + 2 * CACHES.get(op, 0)
        extended, start = 0, offset


def _jump_offset(op: str, arg: int, offset: int) -> int:
    after = offset + 2 + 2 * CACHES.get(op, 0)
    return after - 2 * arg if is_backward(op) else after + 2 * arg


def _argument(code: CodeType, names: tuple[str, ...], op: str, arg: int) -> tuple[object, bool]:
    if op in CONSTS:
        return code.co_consts[arg], False
    if op in NAMES:
        index, flag = name_index(op, arg)
        return code.co_names[index], flag
    if op in LOCALS or op in FREE:
        return names[arg], False
    if op == "COMPARE_OP":
        return comparison(arg), False
    if op == "BINARY_OP":
        return BINARY_OPERATORS[arg], False
    return None, False


def _ranges(code: CodeType, index_at: dict[int, int]) -> Iterator[ExceptionRange]:
    """The exception table: varints (start, length, target, depth * 2 + lasti), in code units."""
    table = iter(code.co_exceptiontable)
    index_at = index_at | {len(code.co_code): len(index_at)}
    for first in table:
        start = 2 * _varint(first, table)
        length, target, depth = (_varint(next(table), table) for _ in range(3))
        yield ExceptionRange(index_at[start], index_at[start + 2 * length], index_at[2 * target], depth >> 1, bool(depth & 1))


def _varint(byte: int, rest: Iterator[int]) -> int:
    """Six bits a byte, most significant first; bit 6 says that another byte follows."""
    value = byte & 63
    while byte & 64:
        byte = next(rest)
        value = value << 6 | byte & 63
    return value
