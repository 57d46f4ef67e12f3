"""Operators, comparisons and subscripts."""

from __future__ import annotations

from thruway.bytecode.decode import Instruction
from thruway.capture.opcodes.stack import push, run_for_effect
from thruway.capture.state import Frame, Inline, State
from thruway.capture.values.base import NONE, SliceValue
from thruway.capture.values.binary import binary, unary
from thruway.capture.values.compare import boolean, compare, contains, identical
from thruway.capture.values.numbers import condition_of, negated, truth_value
from thruway.capture.values.subscript import delete_item, get_item, set_item
from thruway.capture.values.truth import truth


def binary_op(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    right, left = frame.stack.pop(), frame.stack.pop()
    return push(frame, binary(state, ins.value, left, right))


def compare_op(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    right, left = frame.stack.pop(), frame.stack.pop()
    return push(frame, compare(state, ins.value, left, right))


def is_op(state: State, frame: Frame, ins: Instruction) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    frame.stack.append(boolean(identical(state, left, right) != bool(ins.arg)))


def contains_op(state: State, frame: Frame, ins: Instruction) -> None:
    container, item = frame.stack.pop(), frame.stack.pop()
    frame.stack.append(boolean(contains(state, container, item) != bool(ins.arg)))


def unary_not(state: State, frame: Frame, ins: Instruction) -> None:
    condition = condition_of(state, frame.stack[-1])
    frame.stack[-1] = boolean(not truth(state, frame.stack[-1])) if condition is None else truth_value(state, negated(state, condition))


def _unary(symbol: str):
    def handler(state: State, frame: Frame, ins: Instruction) -> Inline | None:
        return push(frame, unary(state, symbol, frame.stack.pop()))
    return handler


def binary_subscr(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    key, owner = frame.stack.pop(), frame.stack.pop()
    return push(frame, get_item(state, owner, key))


def store_subscr(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    key, owner, value = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    return run_for_effect(set_item(state, owner, key, value))


def delete_subscr(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    key, owner = frame.stack.pop(), frame.stack.pop()
    return run_for_effect(delete_item(state, owner, key))


def binary_slice(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    stop, start, owner = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    return push(frame, get_item(state, owner, SliceValue(start, stop, NONE)))


def store_slice(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    stop, start, owner, value = (frame.stack.pop() for _ in range(4))
    return run_for_effect(set_item(state, owner, SliceValue(start, stop, NONE), value))


HANDLERS = {
    "BINARY_OP": binary_op, "COMPARE_OP": compare_op, "IS_OP": is_op, "CONTAINS_OP": contains_op, "UNARY_NOT": unary_not,
    "UNARY_NEGATIVE": _unary("-"), "UNARY_POSITIVE": _unary("+"), "UNARY_INVERT": _unary("~"), "BINARY_SUBSCR": binary_subscr,
    "STORE_SUBSCR": store_subscr, "DELETE_SUBSCR": delete_subscr, "BINARY_SLICE": binary_slice, "STORE_SLICE": store_slice,
}
