"""Jumps, loops and returns."""

from __future__ import annotations

from collections.abc import Callable

from thruway.bytecode.decode import Instruction
from thruway.bytecode.versions import EXHAUSTED_SKIPS_END_FOR
from thruway.capture.branches import count_turn
from thruway.capture.links import Reconsider
from thruway.capture.loops import branch
from thruway.capture.opcodes.stack import constant
from thruway.capture.state import Frame, Return, State
from thruway.capture.values.base import Constant
from thruway.capture.values.iterate import Exhausted, RangeIterator, iterator_of, next_value
from thruway.capture.values.numbers import condition_of
from thruway.capture.values.truth import truth
from thruway.core.errors import Unsupported


def jump(state: State, frame: Frame, ins: Instruction) -> None:
    frame.pc = ins.target


def counted(handler: Callable[[State, Frame, Instruction], Return | None]) -> Callable[[State, Frame, Instruction], Return | None]:
    """A jump back."""
    def jump_back(state: State, frame: Frame, ins: Instruction) -> Return | None:
        count_turn(state)
        return handler(state, frame, ins)
    return jump_back


def _is_none(frame: Frame) -> bool:
    value = frame.stack.pop()
    return isinstance(value, Constant) and value.value is None


def jump_if_true(state: State, frame: Frame, ins: Instruction) -> Return | None:
    if (condition := condition_of(state, frame.stack[-1])) is not None:
        rest = frame.stack[:-1]
        return branch(state, frame, condition, (ins.target, rest), (frame.pc, rest))
    if truth(state, frame.stack[-1]):
        frame.pc = ins.target
    frame.stack.pop()
    return None


def jump_if_false(state: State, frame: Frame, ins: Instruction) -> Return | None:
    if (condition := condition_of(state, frame.stack[-1])) is not None:
        rest = frame.stack[:-1]
        return branch(state, frame, condition, (frame.pc, rest), (ins.target, rest))
    if not truth(state, frame.stack[-1]):
        frame.pc = ins.target
    frame.stack.pop()
    return None


def jump_if_none(state: State, frame: Frame, ins: Instruction) -> None:
    if _is_none(frame):
        frame.pc = ins.target


def jump_if_not_none(state: State, frame: Frame, ins: Instruction) -> None:
    if not _is_none(frame):
        frame.pc = ins.target


def jump_if_true_or_pop(state: State, frame: Frame, ins: Instruction) -> Return | None:
    if (condition := condition_of(state, frame.stack[-1])) is not None:
        return branch(state, frame, condition, (ins.target, frame.stack), (frame.pc, frame.stack[:-1]))
    if truth(state, frame.stack[-1]):
        frame.pc = ins.target
    else:
        frame.stack.pop()
    return None


def jump_if_false_or_pop(state: State, frame: Frame, ins: Instruction) -> Return | None:
    if (condition := condition_of(state, frame.stack[-1])) is not None:
        return branch(state, frame, condition, (frame.pc, frame.stack[:-1]), (ins.target, frame.stack))
    if truth(state, frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.pc = ins.target
    return None


def get_iter(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack[-1] = iterator_of(state, frame.stack[-1])


def for_iter(state: State, frame: Frame, ins: Instruction) -> Return | None:
    """Exhausted: the iterator is popped and the loop left; 3.12's target is an END_FOR that is stepped over."""
    iterator, behind = frame.stack[-1], ins.target + EXHAUSTED_SKIPS_END_FOR
    if isinstance(iterator, RangeIterator) and (held := iterator.held(state)) is not None:
        condition, item, following = held
        rest = frame.stack[:-1]
        try:
            return branch(state, frame, condition, (frame.pc, [*rest, following, item]), (behind, rest))
        except Unsupported:
            if iterator.site is None:
                raise
            raise Reconsider({iterator.site}) from None             # the number is read where the range is made
    try:
        frame.stack.append(next_value(state, frame.stack[-1]))
    except Exhausted:
        frame.stack.pop()
        frame.pc = behind
    return None


def return_value(state: State, frame: Frame, ins: Instruction) -> Return:
    return Return(frame.stack.pop())


def return_const(state: State, frame: Frame, ins: Instruction) -> Return:
    return Return(constant(state, ins.value))


_TRUE = ("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE")
_CONDITIONAL = {"TRUE": jump_if_true, "FALSE": jump_if_false, "NONE": jump_if_none, "NOT_NONE": jump_if_not_none}
HANDLERS = {
    "JUMP_FORWARD": jump, "JUMP_BACKWARD": counted(jump), "JUMP_BACKWARD_NO_INTERRUPT": counted(jump), "GET_ITER": get_iter, "FOR_ITER": for_iter,
    "JUMP_IF_TRUE_OR_POP": jump_if_true_or_pop, "JUMP_IF_FALSE_OR_POP": jump_if_false_or_pop, "RETURN_VALUE": return_value,
    "RETURN_CONST": return_const,
    **{name.replace("TRUE", kind): counted(handler) if "BACKWARD" in name else handler for name in _TRUE for kind, handler in _CONDITIONAL.items()},
}
