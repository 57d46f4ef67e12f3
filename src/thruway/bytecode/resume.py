"""A function's code entered in the middle: parameters are the values on the stack and the bound locals, cells are free variables."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import CodeType

from thruway.bytecode.assemble import assemble
from thruway.bytecode.decode import ExceptionRange, Instruction, decode
from thruway.bytecode.versions import FREE, LOCALS

CO_VARARGS, CO_VARKEYWORDS, CO_GENERATOR, CO_NESTED = 4, 8, 0x20, 0x10


@functools.lru_cache(maxsize=4096)
def resume_code(code: CodeType, index: int, stack: tuple[bool, ...], names: tuple[str, ...]) -> CodeType:
    """Code that continues `code` at instruction `index`.

    `stack` says for each place of the stack whether a value stands there (else a NULL); `names` are the bound locals. The parameters
    are the stack's values from the bottom, then those locals. Free variables are the code's own cells, then its free variables.
    """
    decoded = decode(code)
    slots = tuple(f".s{i}" for i, is_value in enumerate(stack) if is_value)
    cells = code.co_cellvars + code.co_freevars
    others = tuple(v for v in code.co_varnames if v not in names and v not in code.co_cellvars)
    variables = (*slots, *names, *others)
    indices = {name: i for i, name in enumerate((*variables, *cells))}
    prefix = _prefix(stack, len(cells), indices, decoded.instructions[index].position)
    shift = len(prefix) + 1
    body = [_moved(one, indices, shift) for one in decoded.instructions]
    jump = Instruction("JUMP_FORWARD", 0, target=index + shift, position=prefix[0].position)
    ranges = [ExceptionRange(r.start + shift, r.end + shift, r.target + shift, r.depth, r.lasti) for r in decoded.exceptions]
    return assemble(
        code, [*prefix, jump, *body], ranges,
        co_argcount=len(slots) + len(names), co_posonlyargcount=0, co_kwonlyargcount=0, co_nlocals=len(variables), co_varnames=variables,
        co_cellvars=(), co_freevars=cells, co_flags=code.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR) | (CO_NESTED if cells else 0),
        co_stacksize=code.co_stacksize + len(stack) + 1,
    )


def _prefix(stack: tuple[bool, ...], cells: int, indices: dict[str, int], position) -> list[Instruction]:
    made = [Instruction("COPY_FREE_VARS", cells, position=position)] if cells else []
    made.append(Instruction("RESUME", 0, position=position))
    for i, is_value in enumerate(stack):
        if is_value:
            made.append(Instruction("LOAD_FAST", indices[f".s{i}"], position=position))
        else:
            made.append(Instruction("PUSH_NULL", position=position))
    return made


def _moved(one: Instruction, indices: dict[str, int], shift: int) -> Instruction:
    target = None if one.target is None else one.target + shift
    arg = indices.get(one.value, one.arg) if one.op in LOCALS or one.op in FREE else one.arg
    return replace(one, arg=arg, target=target)
