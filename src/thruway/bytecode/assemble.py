"""Instructions, exception ranges and positions → code object: the inverse of `decode`.

Formats: CPython's Objects/exception_handling_notes.txt and Objects/locations.md (3.11; unchanged in 3.12).
"""

from __future__ import annotations

import opcode
from collections.abc import Iterable, Sequence
from types import CodeType

from thruway.bytecode.decode import ExceptionRange, Instruction, Position
from thruway.bytecode.versions import CACHES, is_backward


def assemble(template: CodeType, instructions: Sequence[Instruction], exceptions: Iterable[ExceptionRange], **changes: object) -> CodeType:
    """`template` with these instructions; `changes` are further fields of `CodeType.replace` (names, constants, stack size, …)."""
    arguments, offsets = _resolve_jumps(instructions)
    code = b"".join(_encode(one.op, arg) for one, arg in zip(instructions, arguments))
    units = [(b - a) // 2 for a, b in zip(offsets, offsets[1:])]
    return template.replace(
        co_code=code,
        co_exceptiontable=_exception_table(exceptions, offsets),
        co_linetable=_line_table([one.position for one in instructions], units, changes.get("co_firstlineno", template.co_firstlineno)),
        **changes,
    )


def _resolve_jumps(instructions: Sequence[Instruction]) -> tuple[list[int], list[int]]:
    """Arguments, and offsets of every instruction and the end. Sizes only grow, so the loop ends."""
    arguments = [one.arg or 0 for one in instructions]
    sizes = [_size(one.op, arg) for one, arg in zip(instructions, arguments)]
    while True:
        offsets = _running_sum(sizes)
        for i, one in enumerate(instructions):
            if one.target is not None:
                distance = offsets[one.target] - offsets[i + 1]
                arguments[i] = (-distance if is_backward(one.op) else distance) // 2
                if arguments[i] < 0:
                    raise ValueError(f"{one.op} at {i} cannot reach {one.target}")
        grown = [max(size, _size(one.op, arg)) for one, arg, size in zip(instructions, arguments, sizes)]
        if grown == sizes:
            return arguments, offsets
        sizes = grown


def _running_sum(sizes: list[int]) -> list[int]:
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    return offsets


def _extensions(arg: int) -> int:
    return (arg > 0xFF) + (arg > 0xFFFF) + (arg > 0xFFFFFF)


def _size(op: str, arg: int) -> int:
    return 2 * (1 + _extensions(arg) + CACHES.get(op, 0))


def _encode(op: str, arg: int) -> bytes:
    extension = opcode.opmap["EXTENDED_ARG"]
    prefix = b"".join(bytes((extension, arg >> shift & 0xFF)) for shift in (24, 16, 8) if arg >> shift)
    return prefix + bytes((opcode.opmap[op], arg & 0xFF)) + bytes(2 * CACHES.get(op, 0))


def _exception_table(exceptions: Iterable[ExceptionRange], offsets: list[int]) -> bytes:
    out = bytearray()
    for one in exceptions:
        start, end, target = (offsets[i] // 2 for i in (one.start, one.end, one.target))
        if start == end:
            continue
        entry = _big_varint(start) + _big_varint(end - start) + _big_varint(target) + _big_varint(one.depth << 1 | one.lasti)
        out += bytes((entry[0] | 128,)) + entry[1:]
    return bytes(out)


def _big_varint(value: int) -> bytes:
    """Six bits a byte, most significant first; bit 6 set on all but the last."""
    digits = [value & 63]
    while value := value >> 6:
        digits.append(value & 63 | 64)
    return bytes(reversed(digits))


def _line_table(positions: Sequence[Position], units: Sequence[int], first_line: int) -> bytes:
    out = bytearray()
    line = first_line
    runs: list[list] = []
    for position, count in zip(positions, units):
        if runs and runs[-1][0] == position:
            runs[-1][1] += count
        else:
            runs.append([position, count])
    for position, count in runs:
        while count:
            step = min(count, 8)
            out += _location(position, step, line)
            if position[0] is not None:
                line = position[0]
            count -= step
    return bytes(out)


def _location(position: Position, units: int, line: int) -> bytes:
    """One entry: code 15 has no location, 13 a line only, 14 line, end line and columns."""
    start, end, column, end_column = position
    if start is None:
        return bytes((0x80 | 15 << 3 | units - 1,))
    delta = _signed_varint(start - line)
    if column is None or end_column is None or end is None:
        return bytes((0x80 | 13 << 3 | units - 1,)) + delta
    return bytes((0x80 | 14 << 3 | units - 1,)) + delta + _varint(end - start) + _varint(column + 1) + _varint(end_column + 1)


def _varint(value: int) -> bytes:
    """Six bits a byte, least significant first; bit 6 says that another byte follows."""
    out = bytearray()
    while value > 63:
        out.append(value & 63 | 64)
        value >>= 6
    out.append(value)
    return bytes(out)


def _signed_varint(value: int) -> bytes:
    return _varint(-value << 1 | 1 if value < 0 else value << 1)
