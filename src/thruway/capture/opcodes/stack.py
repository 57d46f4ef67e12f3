"""Moves between stack, locals, cells, globals and constants."""

from __future__ import annotations

from typing import NoReturn

from thruway.bytecode.decode import Instruction
from thruway.bytecode.resume import origin_of
from thruway.capture.locals import LazyLocals
from thruway.capture.state import Frame, Inline, State
from thruway.capture.values.answers import guard_empty
from thruway.capture.values.attribute import delete_attribute, get_attribute, set_attribute
from thruway.capture.values.base import FALSE, NONE, NULL, TRUE, CellValue, Constant, SuperValue, Value
from thruway.capture.values.constants import from_python
from thruway.capture.values.errors import raise_error
from thruway.capture.values.mutate import write_cell
from thruway.capture.values.namespace import read_global, write_global
from thruway.capture.wrap import content_source, wrap


def nothing(state: State, frame: Frame, ins: Instruction) -> None:
    pass


def load_const(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(constant(state, ins.value))


def constant(state: State, obj: object) -> Value:
    if obj is None:
        return NONE
    if obj is True:
        return TRUE
    if obj is False:
        return FALSE
    return from_python(state, obj) if isinstance(obj, tuple | frozenset) else Constant(obj)


def load_fast(state: State, frame: Frame, ins: Instruction) -> None:
    value = frame.locals.get(ins.value)
    if value is None:
        value = frame.cells.get(ins.value)
        if value is None:
            raise_unbound(state, ins.value)
    frame.stack.append(value)


def load_fast_and_clear(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(frame.locals.pop(ins.value, NULL))


def store_fast(state: State, frame: Frame, ins: Instruction) -> None:
    value = frame.stack.pop()
    if value is NULL:
        frame.locals.pop(ins.value, None)
    else:
        frame.locals[ins.value] = value


def delete_fast(state: State, frame: Frame, ins: Instruction) -> None:
    if isinstance(frame.locals, LazyLocals) and frame.locals.forget(ins.value):
        return
    if frame.locals.pop(ins.value, None) is None:
        raise_unbound(state, ins.value)


def make_cell(state: State, frame: Frame, ins: Instruction) -> None:
    frame.cells[ins.value] = CellValue(frame.locals.pop(ins.value, None))


def load_closure(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(cell_of(frame, ins.value))


def cell_of(frame: Frame, name: str) -> CellValue:
    """The cell of a name; in a continuation it is an argument."""
    cell = frame.cells.get(name)
    return frame.locals.get(name) if cell is None else cell


def cell_content(state: State, cell: CellValue, name: str, is_own: bool = False) -> Value:
    """What a cell holds; read through its source where it was found outside. `is_own`: of a variable of the reading function itself."""
    if cell.content is None and cell.real is not None:
        try:
            cell.content = wrap(state, cell.real.cell_contents, content_source(cell))
        except ValueError:
            guard_empty(state, cell)
    if cell.content is None and is_own:
        raise_unbound(state, name)
    if cell.content is None:
        raise_error(state, NameError, f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope")
    return cell.content


def load_deref(state: State, frame: Frame, ins: Instruction) -> None:
    is_own = ins.value in origin_of(frame.code).code.co_cellvars
    frame.stack.append(cell_content(state, cell_of(frame, ins.value), ins.value, is_own))


def raise_unbound(state: State, name: str) -> NoReturn:
    raise_error(state, UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")


def store_deref(state: State, frame: Frame, ins: Instruction) -> None:
    write_cell(state, cell_of(frame, ins.value), frame.stack.pop())


def delete_deref(state: State, frame: Frame, ins: Instruction) -> None:
    load_deref(state, frame, ins)                # it raises where the cell is empty
    frame.stack.pop()
    write_cell(state, cell_of(frame, ins.value), None)


def load_global(state: State, frame: Frame, ins: Instruction) -> None:
    if ins.flag:
        frame.stack.append(NULL)
    frame.stack.append(read_global(state, frame.namespace, ins.value))


def store_global(state: State, frame: Frame, ins: Instruction) -> None:
    write_global(state, frame.namespace, ins.value, frame.stack.pop())


def load_attr(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    """3.12 sets the flag for method calls: a NULL goes under the callable, which is as good as the unbound pair."""
    owner = frame.stack.pop()
    if ins.flag:
        frame.stack.append(NULL)
    return push(frame, get_attribute(state, owner, ins.value))


def load_method(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    owner = frame.stack.pop()
    frame.stack.append(NULL)
    return push(frame, get_attribute(state, owner, ins.value))


def load_super_attr(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    owner, cls = frame.stack.pop(), frame.stack.pop()
    frame.stack.pop()
    if ins.flag:
        frame.stack.append(NULL)
    return push(frame, get_attribute(state, SuperValue(cls.value, owner), ins.value))


def push(frame: Frame, result: Value | Inline) -> Inline | None:
    if isinstance(result, Inline):
        return result
    frame.stack.append(result)
    return None


def drop(state: State, frame: Frame, result: Value) -> None:
    """`then` of a frame whose result means nothing."""


def run_for_effect(result: Value | Inline | None) -> Inline | None:
    if isinstance(result, Inline):
        result.frame.then = drop
        return result
    return None


def store_attr(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    owner, value = frame.stack.pop(), frame.stack.pop()
    return run_for_effect(set_attribute(state, owner, ins.value, value))


def delete_attr(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    return run_for_effect(delete_attribute(state, frame.stack.pop(), ins.value))


def pop_top(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.pop()


def push_null(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(NULL)


def copy(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(frame.stack[-ins.arg])


def swap(state: State, frame: Frame, ins: Instruction) -> None:
    stack = frame.stack
    stack[-1], stack[-ins.arg] = stack[-ins.arg], stack[-1]


def end_for(state: State, frame: Frame, ins: Instruction) -> None:
    del frame.stack[-2:]


def load_assertion_error(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(Constant(AssertionError))


HANDLERS = {
    "RESUME": nothing, "NOP": nothing, "COPY_FREE_VARS": nothing, "PRECALL": nothing, "CACHE": nothing,
    "LOAD_CONST": load_const, "LOAD_FAST": load_fast, "LOAD_FAST_CHECK": load_fast, "LOAD_FAST_AND_CLEAR": load_fast_and_clear,
    "STORE_FAST": store_fast, "DELETE_FAST": delete_fast, "MAKE_CELL": make_cell, "LOAD_CLOSURE": load_closure, "LOAD_DEREF": load_deref,
    "STORE_DEREF": store_deref, "DELETE_DEREF": delete_deref, "LOAD_GLOBAL": load_global, "STORE_GLOBAL": store_global, "LOAD_ATTR": load_attr,
    "LOAD_METHOD": load_method, "LOAD_SUPER_ATTR": load_super_attr, "STORE_ATTR": store_attr, "DELETE_ATTR": delete_attr, "POP_TOP": pop_top,
    "PUSH_NULL": push_null, "COPY": copy, "SWAP": swap, "END_FOR": end_for, "LOAD_ASSERTION_ERROR": load_assertion_error,
}
