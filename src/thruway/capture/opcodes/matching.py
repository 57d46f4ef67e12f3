"""The match statement."""

from __future__ import annotations

import collections.abc

from thruway.bytecode.decode import Instruction
from thruway.capture.values.compare import boolean
from thruway.capture.state import Frame, State
from thruway.capture.values.attribute import find_attribute
from thruway.capture.values.base import NONE, TupleValue, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.errors import raise_error
from thruway.capture.values.find import find_item
from thruway.capture.values.length import length_of
from thruway.capture.values.instance import is_instance
from thruway.capture.values.types_ import python_type

SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def get_len(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(run_inline(state, length_of(state, frame.stack[-1])))


def match_sequence(state: State, frame: Frame, ins: Instruction) -> None:
    cls = python_type(frame.stack[-1])
    frame.stack.append(boolean(issubclass(cls, collections.abc.Sequence) and not issubclass(cls, str | bytes | bytearray)))


def match_mapping(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(boolean(issubclass(python_type(frame.stack[-1]), collections.abc.Mapping)))


def match_keys(state: State, frame: Frame, ins: Instruction) -> None:
    """[subject, keys] → [subject, keys, values or None]."""
    subject, keys = frame.stack[-2], frame.stack[-1]
    found = [find_item(state, subject, key) for key in keys.items]
    frame.stack.append(NONE if any(one is None for one in found) else TupleValue(tuple(found)))


def match_class(state: State, frame: Frame, ins: Instruction) -> None:
    """[subject, class, keyword names] → [attributes or None]."""
    names, cls, subject = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    frame.stack.append(_attributes(state, subject, cls.value, ins.arg, tuple(n.value for n in names.items)))


def _attributes(state: State, subject: Value, cls: type, count: int, names: tuple[str, ...]) -> Value:
    if not is_instance(state, subject, cls):
        return NONE
    found: list[Value | None] = []
    if count and cls in SELF_MATCHING:
        found.append(subject)
    elif count:
        positional = getattr(cls, "__match_args__", ())
        if len(positional) < count:
            raise_error(state, TypeError, f"{cls.__name__}() accepts {len(positional)} positional sub-patterns ({count} given)")
        names = (*positional[:count], *names)
    found += [find_attribute(state, subject, name) for name in names]
    return NONE if any(one is None for one in found) else TupleValue(tuple(found))


HANDLERS = {
    "GET_LEN": get_len, "MATCH_SEQUENCE": match_sequence, "MATCH_MAPPING": match_mapping, "MATCH_KEYS": match_keys, "MATCH_CLASS": match_class,
}
