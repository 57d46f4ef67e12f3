"""Recording effects: a step names Values; those made inside are built before it, as they are at that moment."""

from __future__ import annotations

from thruway.capture.breaks import unsupported
from thruway.capture.effects import Build, ExposeFirst, Write, each_step
from thruway.capture.state import State
from thruway.capture.values.base import (
    NULL, ArrayValue, CellValue, Constant, DictValue, FunctionValue, GeneratorValue, IteratorValue, ListValue, MethodValue, ObjectValue, PartialValue,
    SetValue, SizeValue, SliceValue, TensorValue, TextValue, TracebackValue, TransformedValue, TupleValue, Value, ViewValue,
)


def record(state: State, operation: str, *operands: object) -> None:
    """Adds a step behind everything recorded so far."""
    for operand in operands:
        if isinstance(operand, Value):
            expose(state, operand)
    state.effects.steps.append(Write(operation, operands, state.where()))


def expose(state: State, value: Value, inside: tuple[Value, ...] = ()) -> None:
    """Makes sure that `value` exists when the next step runs. An object that contains itself is created empty first."""
    if value.exposed or isinstance(value, (Constant, TensorValue, SizeValue, ArrayValue)):
        return
    if value in inside:
        _cut(state, value, inside[inside.index(value):])
        return
    parts = children(state, value)
    for part in parts:
        expose(state, part, (*inside, value))
    if isinstance(value, MUTABLE):
        if value.exposed:
            state.effects.steps.append(Write("fill", (value, contents(value)), None))
            return
        mark_exposed(state, value)
        state.effects.steps.append(Build(value, contents(value)))


def _cut(state: State, value: Value, circle: tuple[Value, ...]) -> None:
    """`circle` starts at `value` and leads back to it: the first member that can be created empty is; functions cannot."""
    empty = next(one for one in circle if not isinstance(one, FunctionValue | TupleValue | MethodValue | PartialValue))
    mark_exposed(state, empty)
    state.effects.steps.append(Build(empty, ()))
    expose(state, value)


def is_shown(state: State, root: object) -> bool:
    """Whether a call that waits looks at a tensor of the storage `root`: it must not be written before."""
    waiting: list[object] = [step.operands[1:] for step in each_step(state.effects.steps) if isinstance(step, Write) and step.operation == "call"]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        match one:
            case TensorValue() if one.known_trace is not None and one.trace.root is root:
                return True
            case tuple() | list():
                waiting += one
            case ListValue(items=list()) | TupleValue() | DictValue() | SetValue() | ObjectValue() if id(one) not in seen:
                seen.add(id(one))
                waiting += _inside(one)
            case _:
                pass
    return False


def _inside(value: Value) -> list[object]:
    match value:
        case ListValue() | TupleValue():
            return list(value.items)
        case DictValue():
            return [pair[1] for pair in value.items.values()]
        case SetValue():
            return list(value.items.values())
        case ObjectValue():
            return [value.attributes, value.storage, *value.slots.values()]
        case _:
            return []


MUTABLE = (ListValue, DictValue, SetValue, ObjectValue, FunctionValue, CellValue, IteratorValue, GeneratorValue, TransformedValue, TracebackValue)


def mark_exposed(state: State, value: Value) -> None:
    """From now on writes to the value, and to an object's attributes and builtin content, are steps."""
    if value.age < state.effects.oldest:
        raise ExposeFirst(value)
    parts = [value]
    if isinstance(value, ObjectValue | FunctionValue):
        parts += [part for part in (value.attributes, getattr(value, "storage", None)) if isinstance(part, MUTABLE)]
    for part in parts:
        part.exposed = True

    def undo() -> None:
        for part in parts:
            part.exposed = False
    state.effects.remember(undo, value.age)


def children(state: State, value: Value) -> list[Value]:
    """The Values that must exist before `value` can."""
    match value:
        case ListValue() | TupleValue():
            return list(value.items)
        case DictValue():
            return [part for pair in value.items.values() for part in pair] + ([value.factory] if value.factory else [])
        case SetValue():
            return list(value.items.values())
        case SliceValue():
            return [value.start, value.stop, value.step]
        case MethodValue():
            return [value.function, value.owner]
        case PartialValue():
            return [value.function, *value.args, *value.kwargs.values()]
        case TextValue():
            return [*value.args, *value.kwargs.values()]
        case TransformedValue():
            return [value.function, *value.options.values()]
        case TracebackValue():
            return [value.following]
        case ViewValue():
            return [value.mapping]
        case CellValue():
            return [value.content] if value.content is not None else []
        case IteratorValue() if hasattr(value, "built_from"):
            return value.built_from()
        case GeneratorValue():
            return _generator_children(state, value)
        case FunctionValue():
            return [*(value.defaults or ()), *(value.keyword_defaults or {}).values(), *(value.cells or ()),
                    *(children(state, value.attributes) if value.attributes else ())]
        case ObjectValue():
            return _object_children(state, value)
        case _:
            raise unsupported(state, "TW110", type(value).__name__.removesuffix("Value").lower())


def _generator_children(state: State, value: GeneratorValue) -> list[Value]:
    frame = value.frame
    if value.running or frame.handled:
        raise unsupported(state, "TW110", f"a generator that {'is running' if value.running else 'handles an exception'}")
    if value.plays is not None and not value.started:
        _, args, kwargs = value.plays
        return [*args, *kwargs.values()]
    return [] if value.finished else [one for one in (*frame.locals.values(), *frame.cells.values(), *frame.stack) if one is not NULL]


def _object_children(state: State, value: ObjectValue) -> list[Value]:
    if value.cls.source is None and "__del__" in vars(value.cls.value):
        raise unsupported(state, "TW110", value.cls.value.__name__)
    parts = [*value.slots.values(), *value.new_args]
    if value.attributes is not None:
        parts += children(state, value.attributes)
    if value.storage is not None:
        parts += [value.storage] if isinstance(value.storage, Constant | TensorValue) else children(state, value.storage)
    return parts


def contents(value: Value) -> tuple:
    """A snapshot of what is inside a mutable value."""
    match value:
        case ListValue():
            return tuple(value.items)
        case DictValue():
            return tuple(value.items.values())
        case SetValue():
            return tuple(value.items.values())
        case CellValue():
            return (value.content,)
        case FunctionValue() | IteratorValue() | GeneratorValue() | TransformedValue() | TracebackValue():
            return ()
        case ObjectValue():
            attributes = contents(value.attributes) if value.attributes is not None else ()
            storage = value.storage if value.storage is None or isinstance(value.storage, (Constant, TupleValue, TensorValue)) else contents(value.storage)
            return (attributes, tuple(value.slots.items()), storage)
        case _:
            raise TypeError(f"not a mutable value: {value!r}")
