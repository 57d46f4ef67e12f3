"""A break: `finish` ends the graph, runs one instruction in plain Python, and carries on in a continuation per frame, innermost first.

A continuation is the frame's own code entered behind the instruction (`bytecode.resume`), itself a compiled callable. An exception
raised meanwhile goes on in the frame's handler, if it stands in a `try` or `with` there. A continuation does not call the next one but
gives it back as a `Jump`, so that a break in a loop makes the stack no deeper.
"""

from __future__ import annotations

import random
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from thruway.bytecode.decode import Instruction, decode
from thruway.bytecode.flow import live_locals
from thruway.bytecode.resume import Origin, free_cells, leading_parameter, origin_of, resume_code
from thruway.bytecode.versions import EXHAUSTED_SKIPS_END_FOR
from thruway.capture.breaks import OF_NAMES, unsupported
from thruway.capture.emit import Emitter
from thruway.capture.locals import LazyLocals
from thruway.capture.opcodes.stack import cell_of, drop
from thruway.capture.state import Frame, State
from thruway.capture.steps import EXHAUSTED, PlainStep, caller_function, plain_step, step_function
from thruway.capture.values.answers import Empty
from thruway.capture.values.base import NULL, CellValue, Constant, ListValue, MethodValue, ObjectValue, Value
from thruway.capture.values.call import Made
from thruway.capture.values.effect import expose
from thruway.capture.values.iterators import layout_of, layout_parts
from thruway.capture.wrap import is_drawn
from thruway.core.errors import BreakReason, Unsupported

CompileFunction = Callable[[types.FunctionType], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Break:
    """Where capture stopped: the frames as they stood before the instruction at `index` of the innermost one."""

    frames: tuple[Frame, ...]
    index: int
    reason: BreakReason
    keyword_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A place to continue a frame: instruction `index` with `stack` (values that stood there, texts of new ones, None for NULL)."""

    index: int
    stack: tuple[str | Value | None, ...]


class BreakEmitter(Emitter):
    """An Emitter that ends in a break instead of a return."""

    def __init__(self, state: State, function: types.FunctionType, broken: Break, compile_function: CompileFunction):
        super().__init__(state, function)
        self.broken, self.compile_function = broken, compile_function
        self.constants |= {
            "EXHAUSTED": EXHAUSTED, "Jump": Jump, "land": land, "handling": handling, "shorten": shorten, "make_function": types.FunctionType,
        }
        self.last = len(broken.frames) - 1
        self.step_row = self._step_row()
        self.draws = self._instruction().op == "CALL" and any(map(draws_numbers, broken.frames[-1].stack[-self.step_row.pops:][:2]))
        self.holders = Counter(value for frame in broken.frames for value in [*frame.stack, *dict.values(frame.locals)])
        if self.step_row.use == "next":                      # the step advances the iterator itself
            self.holders[broken.frames[-1].stack[-1]] += 1

    def _step_row(self) -> PlainStep:
        frame = self.broken.frames[-1]
        ins = self._instruction()
        row = plain_step(frame, ins, self.broken.keyword_names)
        if row is None:
            reason = self.broken.reason
            raise Unsupported(reason.code, reason.what, OF_NAMES if ins.op == "CALL" else reason.hint, reason.where)
        return row

    def _instruction(self) -> Instruction:
        return decode(self.broken.frames[-1].code).instructions[self.broken.index]

    def expose_frames(self) -> None:
        """Everything that a continuation needs is built before it."""
        for frame in self.broken.frames:
            for value in [*frame.stack, *frame.handled, *self._cells(frame), *self._live(frame).values(), *self._leading(frame).values()]:
                if value is not NULL and isinstance(value, Value):
                    self._expose(value)
            if frame.then is not None and isinstance(frame.then, Made):
                expose(self.state, frame.then.made)
            if frame.missing is not None:
                expose(self.state, frame.missing.owner)

    @staticmethod
    def _cells(frame: Frame) -> list[Value]:
        code = origin_of(frame.code).code
        return [*frame.cells.values(), *(cell_of(frame, name) for name in code.co_cellvars + code.co_freevars if name not in frame.cells)]

    def _expose(self, value: Value) -> None:
        """Iterators that only one place holds are taken apart instead: the continuation then knows what is left of them."""
        if layout_of(value) is True or self.holders[value] > 1:
            expose(self.state, value)
        else:
            for part in layout_parts(value):
                expose(self.state, part)

    def _live(self, frame: Frame) -> dict[str, Value]:
        """Bound locals that the rest of the frame may read; those of the compiled function that were never read stay arguments."""
        live = live_locals(frame.code)
        wanted = live[self.broken.index] | live[min(self.broken.index + 1, len(live) - 1)] if frame is self.broken.frames[-1] else live[frame.pc]
        handler = decode(frame.code)
        extra = frozenset().union(*(live[r.target] for r in handler.exceptions if r.start <= max(frame.pc - 1, 0) < r.end))
        instruction = decode(frame.code).instructions[self.broken.index] if frame is self.broken.frames[-1] else None
        if instruction is not None and instruction.target is not None:
            extra |= live[min(instruction.target + EXHAUSTED_SKIPS_END_FOR, len(live) - 1)] | live[instruction.target]
        names = wanted | extra
        found = {name: value for name, value in dict.items(frame.locals) if name in names and name not in frame.cells}
        if isinstance(frame.locals, LazyLocals):
            found |= {name: source for name, (_, source) in frame.locals.pending.items() if name in names and name not in frame.cells}
        return found

    # -- continuations ---------------------------------------------------------------------------------------------------------------

    def continuation(self, frame: Frame, at: Position) -> str:
        """The Jump that continues `frame` there."""
        origin = self._origin(frame, at.index)
        code = origin.code
        cells = code.co_cellvars + code.co_freevars
        live = {name: value for name, value in self._live(frame).items() if name not in cells}
        leading = self._leading(frame)
        layout, arguments = [], [self.value(value) for value in leading.values()]
        names = tuple(name for name in code.co_varnames if name in live and name not in leading)
        for item in at.stack:
            shape, texts = self._place(item)
            layout.append(shape)
            arguments += texts
        resumed = resume_code(code, at.index - origin.shift, tuple(layout), names, empty=self._empty_cells(frame, code))
        drawn = self._drawn([*leading.values(), *at.stack], layout, len(leading)) | {len(arguments) + i for i, n in enumerate(names) if self._is_drawn(live[n])}
        arguments += [self.value(v) if isinstance(v := live[name], Value) else self.source(v) for name in names]
        function = self._function(frame, resumed, frozenset(drawn))
        arguments += [self.value(cell_of(frame, name)) for name in cells if name not in resumed.co_freevars]
        return f"Jump({function}, ({''.join(one + ', ' for one in arguments)}))"

    @staticmethod
    def _origin(frame: Frame, index: int) -> Origin:
        """Continuations continue the code that the user wrote, not each other, so that there are only so many."""
        origin = origin_of(frame.code)
        return origin if index >= origin.shift else Origin(frame.code, 0)

    def _leading(self, frame: Frame) -> dict[str, Value]:
        """The object that `super()` takes from the first parameter, which may be in a cell."""
        original = origin_of(frame.code).code
        found = {name: self._first_argument(frame) for name in leading_parameter(original)}
        if None in found.values():
            raise unsupported(self.state, "TW110", "the object of super()")
        return found

    @staticmethod
    def _first_argument(frame: Frame) -> Value | None:
        name = frame.code.co_varnames[0]
        return frame.cells[name].content if name in frame.cells else frame.locals.get(name)

    def _place(self, item: str | Value | None) -> tuple[Any, list[str]]:
        """The layout of one place of the stack, and the arguments that fill it."""
        if item is None or item is NULL:
            return False, []
        if isinstance(item, str):
            return True, [item]
        shape = layout_of(item)
        if shape is True or self.holders[item] > 1:
            return True, [self.value(item)]
        return shape, [self.value(part) for part in layout_parts(item)]

    def _drawn(self, items: list[Any], layout: list[Any], leading: int) -> set[int]:
        """The parameters for places of the stack that hold what random generators gave."""
        found, at = set(), leading
        for item, shape in zip(items[leading:], layout):
            if shape is True and self._is_drawn(item):
                found.add(at)
            at += 1 if shape is True else 0 if shape is False else _count_places(shape)
        return found

    def _is_drawn(self, item: Any) -> bool:
        if isinstance(item, str):
            return self.draws and item in ("t", "r")
        source = item.source if isinstance(item, Value) else item
        return is_drawn(self.state, source) or self.draws and isinstance(item, ListValue) and item in self.broken.frames[-1].stack

    def _function(self, frame: Frame, code: types.CodeType, drawn: frozenset[int]) -> str:
        space = self.constant(frame.namespace.real)
        if not code.co_freevars:
            made = types.FunctionType(code, frame.namespace.real, frame.code.co_name)
            made.__dict__[DRAWN] = drawn
            return self.constant(self.compile_function(made))
        cells = "".join(self.value(cell_of(frame, name)) + ", " for name in code.co_freevars)
        return f"{self.constant(self.compile_function)}(make_function({self.constant(code)}, {space}, {frame.code.co_name!r}, None, ({cells})))"

    def stack_items(self, frame: Frame, count: int) -> tuple[Value, ...]:
        return tuple(frame.stack[:count])

    @staticmethod
    def _empty_cells(frame: Frame, code: types.CodeType) -> tuple[str, ...]:
        """Free variables that have no value at the break, or that the code itself deletes."""
        deleted = {one.value for one in decode(code).instructions if one.op == "DELETE_DEREF"}
        return tuple(name for name in code.co_freevars if name not in free_cells(code) and (name in deleted or is_empty(cell_of(frame, name))))

    # -- text ------------------------------------------------------------------------------------------------------------------------

    def lines_of(self, k: int) -> list[str]:
        """Lines that set `r` to what frame `k` returns, or to a Jump where this is a continuation's own frame."""
        lines = self._jump_lines(k)
        if k == 0:
            return lines if self.state.is_continuation else [*lines, "r = land(r)"]
        landing = self.constant(caller_function(self.broken.frames[k - 1], self.broken.frames[k - 1].pc - 1, Jump))
        lines.append(f"r = {self._called(k - 1, [landing, 'r'], self.broken.frames[:k])}")
        missing = self.broken.frames[k].missing
        if missing is None:
            return lines
        asked = [self.constant(missing.hook), self.value(missing.owner), repr(missing.name)]
        return ["try:", *indented(lines), "except AttributeError:", "    r = EXHAUSTED", "if r is EXHAUSTED:",
                f"    r = {self._called(k - 1, asked, self.broken.frames[:k])}"]

    def _called(self, k: int, call: list[str], handlers: tuple[Frame, ...]) -> str:
        """A call below functions that show as the first `k` frames at their calls: inlined, they would be missing in a traceback.
        Meanwhile the errors are being handled that the frames in `handlers` are handling."""
        call = [*(self.constant(caller_function(frame, frame.pc - 1)) for frame in self.broken.frames[:k]), *call]
        for error in reversed([each for one in handlers for each in one.handled]):
            call = ["handling", self.value(error), *call]
        return f"{call[0]}({', '.join(call[1:])})"

    def _jump_lines(self, k: int) -> list[str]:
        frame = self.broken.frames[k]
        inner = self._step_lines() if k == self.last else self.lines_of(k + 1)
        after = self._after_step() if k == self.last else [f"r = {self._after_call(frame, k)}"]
        at = self.broken.index if k == self.last else frame.pc - 1
        handler = next((r for r in frame.exceptions if r.start <= at < r.end), None)
        if handler is None:
            return inner + after
        stack = list(self.stack_items(frame, handler.depth)) + ([str(at)] if handler.lasti else []) + ["e"]
        caught = self.continuation(frame, Position(handler.target, tuple(stack)))
        return ["try:", *indented(inner), "except BaseException as e:", f"    shorten(e, {k + 1})", f"    r = {caught}", "else:", *indented(after)]

    def _after_call(self, frame: Frame, k: int) -> str:
        """Frame `k` goes on with what frame `k + 1` returned in `r`."""
        stack = self.stack_items(frame, len(frame.stack))
        match self.broken.frames[k + 1].then:
            case None:
                stack += ("r",)
            case Made(made=made):
                stack += (self.value(made),)
            case _:
                pass
        return self.continuation(frame, Position(frame.pc, stack))

    def _step_lines(self) -> list[str]:
        frame, row = self.broken.frames[-1], self.step_row
        values = frame.stack[len(frame.stack) - row.pops:] if row.pops else []
        text = row.text
        if text == "raise":
            values = [frame.handled[-1]] if frame.handled else []
            text = "raise p0" if values else text
            row = replace(row, pops=len(values))
        if "{call}" in text:
            bound = values[0] is NULL
            text = text.replace("{call}", "p1" if bound else "p0")
            if not bound:
                text = text.replace("(", "(p1, ", 1) if not text.endswith("()") else text.replace("()", "(p1)")
        function = self.constant(step_function(frame, row, text, self._instruction()))
        call = [function, *("None" if value is NULL else self.value(value) for value in values)]
        return [f"t = {self._called(self.last, call, self.broken.frames)}"]

    def _after_step(self) -> list[str]:
        """Goes on behind the instruction with its result `t`."""
        frame, row, ins = self.broken.frames[-1], self.step_row, self._instruction()
        below = len(frame.stack) - row.pops
        rest = self.stack_items(frame, below)
        following = self.broken.index + 1

        def go(index: int, *pushed: str | Value | None) -> str:
            return f"r = {self.continuation(frame, Position(index, (*rest, *pushed)))}"
        match row.use:
            case "push":
                return [go(following, "t")]
            case "push_method":
                return [go(following, None, "t")]
            case "drop":
                return [go(following)]
            case "never":
                return ["r = None"]
            case "spread":
                count = ins.arg if ins.op == "UNPACK_SEQUENCE" else (ins.arg & 0xFF) + 1 + (ins.arg >> 8)
                return [go(following, *(f"t[{i}]" for i in reversed(range(count))))]
            case "spread_forward":
                return [go(following, "t[0]", "t[1]")]
            case "branch":
                return ["if t:", "    " + go(ins.target), "else:", "    " + go(following)]
            case "branch_keep":
                kept = frame.stack[-1]
                return ["if t:", "    " + go(ins.target, kept), "else:", "    " + go(following)]
            case "next":
                iterator = frame.stack[-1]
                done = go(ins.target + EXHAUSTED_SKIPS_END_FOR)
                return ["if t is EXHAUSTED:", "    " + done, "else:", "    " + go(following, iterator, "t")]
            case _:
                raise TypeError(f"not a use: {row.use}")


DRAWN = "__thruway_drawn__"          # of a continuation: which of its parameters hold what random generators gave


def draws_numbers(function: Value) -> bool:
    """Whether it is a method of Python's random generators."""
    match function:
        case MethodValue(owner=ObjectValue(real=random.Random())):
            return True
        case Constant(value=types.BuiltinFunctionType(__self__=random.Random())):
            return True
        case _:
            return False


def is_empty(cell: CellValue) -> bool:
    """Whether nothing is in the cell where the break is."""
    return cell.content is None and (cell.real is None or Empty()(cell.real))


def _count_places(shape: Any) -> int:
    return 1 if shape is True else 0 if shape is False else sum(map(_count_places, shape[1:]))


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


class Jump:
    """A tail call of a continuation, for the caller to make."""

    __slots__ = ("function", "arguments")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]):
        self.function, self.arguments = function, arguments


def land(result: Any) -> Any:
    """What the jumps lead to."""
    while type(result) is Jump:
        result = result.function(*result.arguments)
    return result


def shorten(error: BaseException, count: int) -> None:
    """Takes the first entries off the traceback: of `finish`, and of the frames above the one that catches the error."""
    found = error.__traceback__
    while count and found is not None and found.tb_next is not None:
        found, count = found.tb_next, count - 1
    error.__traceback__ = found


def handling(error: BaseException, function: Callable[..., Any], *args: Any) -> Any:
    """Calls `function` as if in an `except` block that handles `error`, which stays as it is."""
    traceback, context = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        error.__traceback__, error.__context__ = traceback, context
        return function(*args)


def emit_break(state: State, function: types.FunctionType, broken: Break, compile_function: CompileFunction):
    """`finish` and the graph nodes that it needs."""
    for frame in broken.frames[1:]:
        if frame.generator is not None or frame.then not in (None, drop) and not isinstance(frame.then, Made):
            raise unsupported(state, "TW110", "a frame that a builtin protocol called")
    out = BreakEmitter(state, function, broken, compile_function)
    out.expose_frames()
    for step in state.effects.steps:
        out.step(step)
    out.body.extend(out.lines_of(0))
    name = f"finish_{function.__name__}" if function.__name__.isidentifier() else "finish"
    return out.compile(name, "r"), out.outputs

