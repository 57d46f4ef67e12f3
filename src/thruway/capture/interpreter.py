"""The loop: one instruction of the innermost symbolic frame after the other. Frames are an explicit list; calls push, returns pop."""

from __future__ import annotations

from types import CodeType
from typing import Any, NoReturn

from thruway.bytecode.decode import decode
from thruway.capture.breaks import unsupported
from thruway.capture.opcodes import HANDLERS
from thruway.capture.state import Frame, Inline, Marker, Return, State, UserRaise, Yield
from thruway.capture.values.base import NONE, RAISED_BARE, TRUE, Constant, GeneratorValue, ObjectValue, TextValue, Thrown, Value
from thruway.capture.values.attribute import is_attribute_error, set_slot
from thruway.capture.values.call import call
from thruway.capture.values.errors import make_error, raise_error
from thruway.capture.values.traceback import TRACEBACK, longer_traceback
from thruway.core.errors import Unsupported

TOO_DEEP = "RecursionError: calls within calls, more than the recursion limit allows"
KEPT = 4096
_PROGRAMS: dict[int, tuple[CodeType, Any]] = {}


def program(code: CodeType) -> tuple[tuple, tuple]:
    """(handler, instruction) pairs and exception ranges of a code object, cached."""
    known = _PROGRAMS.get(id(code))
    if known is None:
        if len(_PROGRAMS) >= KEPT:                     # of code that programs made and threw away
            _PROGRAMS.clear()
        decoded = decode(code)
        pairs = tuple((HANDLERS.get(ins.op, _unknown), ins) for ins in decoded.instructions)
        known = _PROGRAMS[id(code)] = code, (pairs, decoded.exceptions)
    return known[1]


def _unknown(state: State, frame: Frame, ins: Any) -> None:
    raise unsupported(state, "TW100", ins.op)


def run(state: State, first: Frame, raised: UserRaise | None = None) -> Value:
    """Runs `first` and all that it calls until it returns; UserRaise where it raises. `raised` is thrown where it stands."""
    frames = state.frames
    base = len(frames)
    frames.append(first)
    try:
        if raised is not None:
            _unwind(state, base, raised)
        while True:
            frame = frames[-1]
            handler, ins = frame.program[frame.pc]
            if base == 0:
                state.marker.set(state, frame)
            frame.pc += 1
            try:
                outcome = handler(state, frame, ins)
            except UserRaise as raised:
                outcome = _unwind(state, base, raised)
            while outcome is not None:
                if type(outcome) is Inline:
                    if len(frames) >= state.deepest:
                        raise unsupported(state, "TW107", TOO_DEEP)
                    outcome.frame.caller = frames[-1]
                    frames.append(outcome.frame)
                    break
                frame = frames.pop()
                if len(frames) == base:
                    return _leave(first, outcome)
                try:
                    outcome = _deliver(state, frames[-1], frame, outcome.value)
                except UserRaise as raised:
                    outcome = _unwind(state, base, raised)
    finally:
        del frames[base:]


def _leave(frame: Frame, outcome: Return | Yield) -> Value:
    if frame.generator is not None and type(outcome) is Return:
        frame.generator.finished = True
    return outcome.value


def _deliver(state: State, caller: Frame, frame: Frame, value: Value) -> Inline | None:
    """Hands a result to the caller."""
    if frame.then is None:
        caller.stack.append(value)
        return None
    return frame.then(state, caller, value)


def _unwind(state: State, base: int, raised: UserRaise) -> Return | None:
    """Looks for a handler in the frames above `base`, innermost first; leaves the loop with UserRaise where there is none. Gives what the
    innermost frame left returns where it is a getter whose attribute then counts as missing."""
    frames = state.frames
    _link(state, raised.value)
    while len(frames) > base:
        if base == 0 and not any(frame.handler() or frame.missing for frame in frames):
            raise unsupported(state, "TW107", describe(raised.value))
        frame = frames[-1]
        at = frame.pc - 1
        if (longer := longer_traceback(state, raised.value, frame)) is not None:
            set_slot(state, raised.value, TRACEBACK, longer)
        found = frame.handler()
        if found is not None:
            del frame.stack[found.depth:]
            if found.lasti:
                frame.stack.append(Constant(at))
            frame.stack.append(raised.value)
            frame.pc = found.target
            return None
        frames.pop()
        if frame.generator is not None:
            frame.generator.finished = True
        if frame.missing is not None and is_attribute_error(raised):
            try:
                value = frame.missing.ask()
            except UserRaise as instead:
                raised = instead
            else:
                frames.append(frame)
                return Return(value)
    raise raised


def _link(state: State, error: Value) -> None:
    """An error raised while another is handled names that one as its context."""
    handled = next((frame.handled[-1] for frame in reversed(state.frames) if frame.handled), None)
    if not isinstance(error, ObjectValue) or "__context__" in error.slots:
        return
    if handled is None:
        if error.real is None and not error.exposed:
            set_slot(state, error, RAISED_BARE, TRUE)
        return
    link = handled
    while isinstance(link, ObjectValue):
        if link is error:
            return
        link = link.slots.get("__context__")
    set_slot(state, error, "__context__", handled)


def describe(error: Value) -> str:
    """An exception value in words."""
    args = getattr(error, "new_args", ())
    text = ", ".join("…" if isinstance(a, TextValue) else str(getattr(a, "value", "…")) for a in args)
    return error.cls.value.__name__ + (f": {text}" if text else "")


class BreakHere(Exception):
    """Capture of the compiled frame stops: the frames as they stood before the instruction that raised `error`."""

    def __init__(self, error: Unsupported, frames: tuple[Frame, ...], index: int, keyword_names: tuple[str, ...]):
        super().__init__()
        self.error, self.frames, self.index, self.keyword_names = error, frames, index, keyword_names


def run_top(state: State, first: Frame) -> Value:
    """`run` for the compiled frame: before each instruction its state is marked, and what cannot be captured raises BreakHere."""
    state.marker = marker = Marker()
    try:
        return _run_in_limit(state, first)
    except Unsupported as error:
        if marker.frame is None:
            raise
        if error.reason.where is None:
            error = Unsupported(error.reason.code, error.reason.what, error.reason.hint, state.line_of(marker.frame))
        frames = marker.restore(state)
        raise BreakHere(error, frames, frames[-1].pc, marker.keyword_names) from error


def _run_in_limit(state: State, first: Frame) -> Value:
    try:
        return run(state, first)
    except RecursionError:                                       # of protocols, whose calls run nested
        raise unsupported(state, "TW107", TOO_DEEP) from None


class _Sink:
    """Takes the result of a frame that runs nested."""

    __slots__ = ("stack",)

    def __init__(self) -> None:
        self.stack: list[Value] = []


def finish_inline(state: State, result: Inline) -> Value:
    """Runs an inlined frame now and gives what it would have pushed."""
    while True:
        frame = result.frame
        value = run(state, frame)
        if frame.then is None:
            return value
        sink = _Sink()
        following = frame.then(state, sink, value)
        if following is None:
            return sink.stack.pop() if sink.stack else value
        result = following


def run_call(state: State, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result = call(state, function, args, kwargs)
    return finish_inline(state, result) if isinstance(result, Inline) else result


def _remember(state: State, generator: GeneratorValue) -> None:
    """How the generator stands, for a break while it runs: it is then run again by Python, from here."""
    frame, flags = generator.frame, (generator.started, generator.finished)
    stack, pc, variables, cells, handled = frame.stack.copy(), frame.pc, dict(frame.locals), dict(frame.cells), frame.handled.copy()

    def undo() -> None:
        frame.stack, frame.pc, frame.locals, frame.cells, frame.handled = stack, pc, variables, cells, handled
        generator.started, generator.finished = flags
    state.effects.remember(undo, generator.age)


def resume_generator(state: State, generator: GeneratorValue, sent: Value, thrown: bool) -> Value:
    """Runs the generator to its next yield; StopIteration with the returned value at its end."""
    frame = generator.frame
    _remember(state, generator)
    if generator.started and not thrown:
        frame.stack.append(sent)
    if isinstance(sent, Thrown):
        frame.pc -= 2                                            # the step of `yield from` again, which passes the error on
    generator.started = generator.running = True
    try:
        value = run(state, frame, UserRaise(sent) if thrown else None)
    except UserRaise as raised:
        if issubclass(raised.value.cls.value, StopIteration):
            _refuse_to_stop(state, raised.value)
        raise
    finally:
        generator.running = False
    if generator.finished:
        raise_error(state, StopIteration, *(() if value is NONE else (value,)))
    return value


def _refuse_to_stop(state: State, error: ObjectValue) -> NoReturn:
    """A generator ends by returning: a StopIteration that leaves its code is an error."""
    made = make_error(state, RuntimeError, Constant("generator raised StopIteration"))
    for name in ("__cause__", "__context__"):
        set_slot(state, made, name, error)
    raise UserRaise(made)
