"""Control flow over decoded code: successors, and which fast locals are live where."""

from __future__ import annotations

import functools
from types import CodeType

from thruway.bytecode.decode import Decoded, Instruction, decode
from thruway.bytecode.versions import EXHAUSTED_SKIPS_END_FOR, FREE, LOCALS

ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


def successors(decoded: Decoded, index: int) -> list[int]:
    """Indices that may run after `index`, exception handlers included."""
    one = decoded.instructions[index]
    after = [] if one.op in ENDS or index + 1 >= len(decoded.instructions) else [index + 1]
    if one.target is not None:
        after.append(one.target + (EXHAUSTED_SKIPS_END_FOR and one.op == "FOR_ITER"))
    handler = handler_at(decoded, index)
    return after + ([handler] if handler is not None else [])


def handler_at(decoded: Decoded, index: int) -> int | None:
    """Where an exception at `index` goes."""
    return next((r.target for r in decoded.exceptions if r.start <= index < r.end), None)


@functools.lru_cache(maxsize=1024)
def live_locals(code: CodeType) -> tuple[frozenset[str], ...]:
    """Names of the fast locals that may be read before they are written, from each instruction on."""
    decoded = decode(code)
    count = len(decoded.instructions)
    after = [successors(decoded, i) for i in range(count)]
    live: list[frozenset[str]] = [frozenset()] * count
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            behind = frozenset().union(*(live[j] for j in after[i])) if after[i] else frozenset()
            now = _before(decoded.instructions[i], behind)
            if now != live[i]:
                live[i], changed = now, True
    return tuple(live)


def _before(one: Instruction, behind: frozenset[str]) -> frozenset[str]:
    name: str = one.value
    if one.op in FREE:                                  # in a continuation the cell is a local
        return behind | {name}
    if one.op not in LOCALS:
        return behind
    if one.op.startswith("STORE"):
        return behind - {name}
    return behind | {name}
