"""A function's code entered in the middle: parameters are the values on the stack and the bound locals, cells are free variables."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, NoReturn

from thruway.bytecode.assemble import assemble
from thruway.bytecode.decode import ExceptionRange, Instruction, Position, decode
from thruway.bytecode.versions import FREE, LOCALS, VERSION

CO_VARARGS, CO_VARKEYWORDS, CO_GENERATOR, CO_NESTED = 4, 8, 0x20, 0x10


@dataclass(frozen=True, slots=True)
class Origin:
    """The last constant of a continuation's code: what it continues, and by how much its instructions are moved."""

    code: CodeType
    shift: int


def origin_of(code: CodeType) -> Origin:
    """Where a continuation comes from; of other code, itself."""
    last = code.co_consts[-1] if code.co_consts else None
    return last if isinstance(last, Origin) else Origin(code, 0)


@functools.lru_cache(maxsize=4096)
def resume_code(code: CodeType, index: int, stack: tuple[Any, ...], names: tuple[str, ...], is_generator: bool = False,
                empty: tuple[str, ...] = ()) -> CodeType:
    """Code that continues `code` at instruction `index`.

    `stack` says for each place of the stack what stands there: True a value, False a NULL, (function, layouts…) the result of a call on
    further places; see `handle` as well. `names` are the bound locals. The parameters are the stack's values from the bottom, those locals, and the cells
    (the code's own, then its free variables): CPython's cell instructions take a cell from any local, so that one function serves every
    closure. Only the cell of `__class__` stays a free variable where `super()` will look for it, and those in `empty` stay some, of which
    Python says in the words for free variables that they have no value.
    A generator's code gives a generator that stands at a yield of its own, as if at that before `index`, once `next()` has been called.
    """
    decoded = decode(code)
    slots = tuple(f".s{i}" for i in range(_count(stack)))
    free = (*free_cells(code), *empty)
    cells = tuple(name for name in code.co_cellvars + code.co_freevars if name not in free)
    leading = leading_parameter(code)
    others = tuple(v for v in code.co_varnames if v not in names and v not in code.co_cellvars and v not in leading)
    parameters = (*(f".{name}" if name in cells else name for name in leading), *slots, *names, *cells)
    variables = (*parameters, *others)
    indices = {name: i for i, name in enumerate((*variables, *free))}
    constants = list(code.co_consts)
    position = decoded.instructions[index].position
    prefix = _prefix(stack, len(free), len(leading), constants, position, is_generator)
    if is_generator:
        constants.append(None)
        yielding = Instruction("YIELD_VALUE", decoded.instructions[index - 1].arg, position=position)
        prefix += [Instruction("LOAD_CONST", len(constants) - 1, position=position), yielding]
    shift = len(prefix) + 1
    body = [_moved(one, indices, shift) for one in decoded.instructions]
    jump = Instruction("JUMP_FORWARD", 0, target=index + shift, position=prefix[0].position)
    first = next((r for r in decoded.exceptions if r.start < index <= r.end), None) if is_generator else None
    ranges = [ExceptionRange(shift - 2, shift - 1, first.target + shift, first.depth, first.lasti)] if first else []
    ranges += [ExceptionRange(r.start + shift, r.end + shift, r.target + shift, r.depth, r.lasti) for r in decoded.exceptions]
    return assemble(
        code, [*prefix, jump, *body], ranges,
        co_argcount=len(parameters), co_posonlyargcount=0, co_kwonlyargcount=0, co_nlocals=len(variables), co_varnames=variables,
        co_cellvars=(), co_freevars=free, co_flags=_flags(code, is_generator) | (CO_NESTED if free else 0),
        co_consts=(*constants, Origin(code, shift)), co_stacksize=code.co_stacksize + 4 * len(slots) + len(stack) + 4,
    )


def handle(error: BaseException) -> NoReturn:
    """The layout (handle, True) says: from here on `error` is the exception being handled, and what POP_EXCEPT puts back stands on the stack."""
    raise TypeError("a layout, not to be called")


def _flags(code: CodeType, is_generator: bool) -> int:
    return code.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS | (0 if is_generator else CO_GENERATOR))


def plain_parameters(code: CodeType) -> CodeType:
    """The same code, taking what was bound to its parameters one by one."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS))


def free_cells(code: CodeType) -> tuple[str, ...]:
    """Cells that a continuation has as free variables: that of `__class__` where the code may call `super()` without arguments."""
    return ("__class__",) if "__class__" in code.co_freevars and "super" in code.co_names else ()


def leading_parameter(code: CodeType) -> tuple[str, ...]:
    """The parameter that must stay first, since `super()` takes the first one for its object."""
    return code.co_varnames[:1] if free_cells(code) else ()


def _count(layouts: Iterable[Any]) -> int:
    """Values that fill the layouts."""
    return sum(int(one) if isinstance(one, bool) else _count(one[1:]) for one in layouts)


def _prefix(stack: tuple[Any, ...], cells: int, first_slot: int, constants: list[object], position: Position,
            is_generator: bool) -> list[Instruction]:
    made = [Instruction("COPY_FREE_VARS", cells, position=position)] if cells else []
    if is_generator:
        made += [Instruction("RETURN_GENERATOR", position=position), Instruction("POP_TOP", position=position)]
    made.append(Instruction("RESUME", 0, position=position))
    slots = itertools.count(first_slot)
    for one in stack:
        made += _place(one, slots, constants, position)
    return made


def _place(layout: Any, slots: Iterator[int], constants: list[object], position: Position) -> list[Instruction]:
    """Instructions that put one place of the stack there; slots are the first parameters, in order."""
    if layout is False:
        return [Instruction("PUSH_NULL", position=position)]
    if layout is True:
        return [Instruction("LOAD_FAST", next(slots), position=position)]
    function, *parts = layout
    if function is handle:
        return [*_place(parts[0], slots, constants, position), Instruction("PUSH_EXC_INFO", position=position), Instruction("POP_TOP", position=position)]
    constants.append(function)
    made = [Instruction("PUSH_NULL", position=position), Instruction("LOAD_CONST", len(constants) - 1, position=position)]
    for part in parts:
        made += _place(part, slots, constants, position)
    if VERSION < (3, 12):
        made.append(Instruction("PRECALL", len(parts), position=position))
    return [*made, Instruction("CALL", len(parts), position=position)]


def _moved(one: Instruction, indices: dict[str, int], shift: int) -> Instruction:
    target = None if one.target is None else one.target + shift
    arg = indices.get(one.value, one.arg) if one.op in LOCALS or one.op in FREE else one.arg
    return replace(one, arg=arg, target=target)
