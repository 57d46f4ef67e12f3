"""Making and unpacking containers, and strings."""

from __future__ import annotations

from thruway.bytecode.decode import Instruction
from thruway.capture.breaks import unsupported
from thruway.capture.opcodes.stack import push
from thruway.capture.state import Frame, Inline, State
from thruway.capture.values.base import NONE, Constant, DictValue, ListValue, SetValue, SliceValue, TextValue, TupleValue, Value, known_text
from thruway.capture.values.binary import unary
from thruway.capture.values.errors import raise_error
from thruway.capture.values.held_text import joined
from thruway.capture.values.iterate import items_of
from thruway.capture.values.keys import key_of
from thruway.capture.values.mapping import write_key
from thruway.capture.values.mutate import add_member, append_item, extend_list, update_set
from thruway.capture.values.text import format_value
from thruway.capture.values.types_ import python_type
from thruway.capture.values.unpack import mapping_items, shown_callee, starred_items


def take(frame: Frame, count: int) -> list[Value]:
    if not count:
        return []
    taken = frame.stack[-count:]
    del frame.stack[-count:]
    return taken


def build_tuple(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(TupleValue(tuple(take(frame, ins.arg))))


def build_list(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(ListValue(take(frame, ins.arg)))


def build_set(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack.append(SetValue({key_of(state, item): item for item in take(frame, ins.arg)}))


def build_map(state: State, frame: Frame, ins: Instruction) -> None:
    parts = take(frame, 2 * ins.arg)
    frame.stack.append(DictValue({key_of(state, k): (k, v) for k, v in zip(parts[::2], parts[1::2])}))


def build_const_key_map(state: State, frame: Frame, ins: Instruction) -> None:
    keys = frame.stack.pop()
    frame.stack.append(DictValue({key_of(state, k): (k, v) for k, v in zip(keys.items, take(frame, ins.arg))}))


def build_slice(state: State, frame: Frame, ins: Instruction) -> None:
    parts = take(frame, ins.arg)
    frame.stack.append(SliceValue(parts[0], parts[1], parts[2] if len(parts) == 3 else NONE))


def build_string(state: State, frame: Frame, ins: Instruction) -> None:
    parts = take(frame, ins.arg)
    if any(isinstance(part, TextValue) for part in parts):
        frame.stack.append(TextValue(joined, tuple(parts), {}))
    else:
        frame.stack.append(Constant("".join(part.value for part in parts)))


def format_op(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    """FORMAT_VALUE: bits 0-1 the conversion (str, repr, ascii), bit 2 says that a format follows on the stack."""
    spec = frame.stack.pop().value if ins.arg & 4 else ""
    return push(frame, format_value(state, frame.stack.pop(), (None, "s", "r", "a")[ins.arg & 3], spec))


def list_append(state: State, frame: Frame, ins: Instruction) -> None:
    value = frame.stack.pop()
    append_item(state, frame.stack[-ins.arg], value)


def set_add(state: State, frame: Frame, ins: Instruction) -> None:
    value = frame.stack.pop()
    add_member(state, frame.stack[-ins.arg], value)


def map_add(state: State, frame: Frame, ins: Instruction) -> None:
    value, key = frame.stack.pop(), frame.stack.pop()
    write_key(state, frame.stack[-ins.arg], key_of(state, key), key, value)


def list_extend(state: State, frame: Frame, ins: Instruction) -> None:
    values = starred_items(state, frame.stack.pop(), lambda: "Value")
    extend_list(state, frame.stack[-ins.arg], values)


def set_update(state: State, frame: Frame, ins: Instruction) -> None:
    values = items_of(state, frame.stack.pop())
    update_set(state, frame.stack[-ins.arg], values)


def dict_update(state: State, frame: Frame, ins: Instruction) -> None:
    value = frame.stack.pop()
    pairs = mapping_items(state, value, lambda: f"'{python_type(value).__name__}' object is not a mapping")
    for key, value in pairs:
        write_key(state, frame.stack[-ins.arg], key_of(state, key), key, value)


def dict_merge(state: State, frame: Frame, ins: Instruction) -> None:
    """`f(**a, **b)`: a key given twice is an error."""
    value, target, function = frame.stack.pop(), frame.stack[-ins.arg], frame.stack[-ins.arg - 2]
    pairs = mapping_items(state, value, lambda: f"{shown_callee(state, function)} argument after ** must be a mapping, not {python_type(value).__name__}")
    for key, value in pairs:
        if key_of(state, key) in target.items:
            name = known_text(key)
            if not isinstance(name, Constant):
                raise unsupported(state, "TW105", f"a keyword of type {python_type(name).__name__}")
            raise_error(state, TypeError, f"{shown_callee(state, function)} got multiple values for keyword argument '{name.value}'")
        write_key(state, target, key_of(state, key), key, value)


def list_to_tuple(state: State, frame: Frame, ins: Instruction) -> None:
    frame.stack[-1] = TupleValue(tuple(frame.stack[-1].items))


def unpack_sequence(state: State, frame: Frame, ins: Instruction) -> None:
    items = items_of(state, frame.stack.pop())
    if len(items) < ins.arg:
        raise_error(state, ValueError, f"not enough values to unpack (expected {ins.arg}, got {len(items)})")
    if len(items) > ins.arg:
        raise_error(state, ValueError, f"too many values to unpack (expected {ins.arg})")
    frame.stack.extend(reversed(items))


def unpack_ex(state: State, frame: Frame, ins: Instruction) -> None:
    before, after = ins.arg & 0xFF, ins.arg >> 8
    items = items_of(state, frame.stack.pop())
    if len(items) < before + after:
        raise_error(state, ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    end = len(items) - after
    frame.stack.extend(reversed([*items[:before], ListValue(items[before:end]), *items[end:]]))


def intrinsic_1(state: State, frame: Frame, ins: Instruction) -> Inline | None:
    """3.12's CALL_INTRINSIC_1."""
    match ins.arg:
        case 5:
            return push(frame, unary(state, "+", frame.stack.pop()))
        case 6:
            return list_to_tuple(state, frame, ins)
        case 3:
            return None
        case _:
            raise unsupported(state, "TW100", f"CALL_INTRINSIC_1 {ins.arg}")


HANDLERS = {
    "BUILD_TUPLE": build_tuple, "BUILD_LIST": build_list, "BUILD_SET": build_set, "BUILD_MAP": build_map, "BUILD_SLICE": build_slice,
    "BUILD_CONST_KEY_MAP": build_const_key_map, "BUILD_STRING": build_string, "FORMAT_VALUE": format_op, "LIST_APPEND": list_append,
    "SET_ADD": set_add, "MAP_ADD": map_add, "LIST_EXTEND": list_extend, "SET_UPDATE": set_update, "DICT_UPDATE": dict_update,
    "DICT_MERGE": dict_merge, "LIST_TO_TUPLE": list_to_tuple, "UNPACK_SEQUENCE": unpack_sequence, "UNPACK_EX": unpack_ex,
    "CALL_INTRINSIC_1": intrinsic_1,
}
