"""Calls. A method stands on the stack as NULL and a bound method; CPython's other form (callable, first argument) is understood too."""

from __future__ import annotations

from thruway.bytecode.decode import Instruction
from thruway.capture.opcodes.build import take
from thruway.capture.opcodes.stack import push
from thruway.capture.state import Frame, Inline, State
from thruway.capture.values.base import NULL
from thruway.capture.values.call import call
from thruway.capture.values.unpack import keyword, mapping_items, shown_callee, starred_items


def kw_names(state: State, frame: Frame, ins: Instruction) -> None:
    frame.keyword_names = ins.value


def call_op(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    names, frame.keyword_names = frame.keyword_names, ()
    args = take(frame, ins.arg)
    second, first = frame.stack.pop(), frame.stack.pop()
    if first is not NULL:
        args.insert(0, second)
        second = first
    kwargs = {}
    if names:
        kwargs = dict(zip(names, args[-len(names):]))
        del args[-len(names):]
    return push(frame, call(state, second, args, kwargs))


def call_function_ex(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    named = mapping_items(state, frame.stack.pop()) if ins.arg & 1 else []
    found, function = frame.stack.pop(), frame.stack.pop()
    args = starred_items(state, found, lambda: f"{shown_callee(state, function)} argument")
    if frame.stack and frame.stack[-1] is NULL:
        frame.stack.pop()
    return push(frame, call(state, function, args, {keyword(state, key, function): value for key, value in named}))


HANDLERS = {"KW_NAMES": kw_names, "CALL": call_op, "CALL_FUNCTION_EX": call_function_ex}
