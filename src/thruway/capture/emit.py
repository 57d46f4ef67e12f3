"""Prints `finish(*arguments, *cells, *graph_outputs)`: objects rebuilt, effects applied in the user's order, the result returned.

The source is registered in linecache, so that tracebacks and debuggers show it.
"""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import linecache
import math
import operator
import sys
import types
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import torch

from thruway.bytecode.resume import free_cells, leading_parameter, plain_parameters, resume_code
from thruway.capture.breaks import unsupported
from thruway.capture.effects import Build, Choose, Step, Write
from thruway.capture.state import Namespace, State
from thruway.capture.steps import caller_function
from thruway.capture.tensors import array_node, tensor_node
from thruway.capture.values.base import (
    NULL, RAISED_BARE, ArrayValue, CellValue, Constant, DictValue, FunctionValue, GeneratorValue, InstanceDict, ListValue, MethodValue,
    ObjectValue, PartialValue, SetValue, SizeValue, SliceValue, TensorValue, TextValue, TracebackValue, TransformedValue, TupleValue, Value,
    ViewValue,
)
from thruway.capture.values.effect import expose
from thruway.capture.values.iterate import CountedIterator, DictIterator, EnumerateIterator, ListIterator, RangeIterator, RowIterator
from thruway.capture.values.iterators import iterator_at, number
from thruway.capture.values.types_ import python_type
from thruway.core.errors import CompilerBug
from thruway.core.sizes import Size, show, symbols
from thruway.frame import source as S
from thruway.frame.plain import plain_tensor, with_class
from thruway.native.fallback import proxied_dict, viewed_dict
from thruway.shapes.booleans import OpenNode
from thruway.shapes.floats import Element, FloatInput, FloatNode
from thruway.shapes.symbolic import bare

_COUNT = itertools.count()
UNSHARED = Constant | TensorValue | ArrayValue | CellValue          # an expression gives the same object each time
SYMBOLS = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/"}
LINKS = ("__cause__", "__context__", "__traceback__")          # of exceptions
LITERALS = (int, str, bytes, type(None), bool)


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of the body or of a side of a branch. `age`: of what was made within it; `named`: the values that have a variable only there."""

    age: int
    lines: list[str] = field(default_factory=list)
    named: list[Value] = field(default_factory=list)


class Emitter:
    """`outputs` are the graph nodes that `finish` needs, in order; `names` the variables of values that stand already."""

    def __init__(self, state: State, function: types.FunctionType):
        self.state, self.function = state, function
        code = function.__code__
        self.arguments = argument_names(code)
        self.constants: dict[str, Any] = {"types": types, "object": object}
        self.constant_names: dict[int, str] = {}
        self.prologue: list[str] = []
        self.blocks = [Block(0)]
        self.numbers = itertools.count()
        self.source_names: dict[S.Source, str] = {}
        self.symbols: set[str] = set()
        self.names: dict[Value, str] = {}
        self.outputs: list[torch.fx.Node] = []
        self.output_names: dict[torch.fx.Node, str] = {}

    @property
    def body(self) -> list[str]:
        return self.blocks[-1].lines

    # -- names ---------------------------------------------------------------------------------------------------------------------

    def constant(self, obj: Any) -> str:
        name = self.constant_names.get(id(obj))
        if name is None:
            name = self.constant_names[id(obj)] = f"c{len(self.constant_names)}"
            self.constants[name] = obj
        return name

    def source(self, source: S.Source) -> str:
        """The variable that holds what stands at `source`; loaded before any effect."""
        name = self.source_names.get(source)
        if name is None:
            text = self.source_text(source)
            name = self.source_names[source] = f"f{len(self.source_names)}"
            self.prologue.append(f"{name} = {text}")
        return name

    def source_text(self, source: S.Source) -> str:
        match source:
            case S.Local(_, index):
                return f"a{index}"
            case S.Cell(_, index):
                return f"k{index}.cell_contents"
            case S.Global(name, None):
                return f"{self.constant(self.function.__globals__)}[{name!r}]"
            case S.Global(name, module):
                return f"{self.constant(sys.modules[module].__dict__)}[{name!r}]"
            case S.Builtin(name):
                return self.constant(getattr(builtins, name))
            case S.FunctionGlobal(function, name):
                return f"{self.source(function)}.__globals__[{name!r}]"
            case S.Item(S.Attr(S.Own(), "__closure__"), index):
                return f"k{index}"
            case S.ClosureCell(S.Own(), index):
                return f"k{index}.cell_contents"
            case S.Attr(base, name):
                return f"getattr({self.source(base)}, {name!r})"
            case S.DictAttr(base, name):
                return f"{self.source(base)}.__dict__[{name!r}]"
            case S.Item(base, key):
                return f"{self.constant(raw_item)}({self.source(base)}, {self.key(key)})"
            case S.DictKey(base, index):
                return f"list({self.source(base)})[{index}]"
            case S.TypeOf(base):
                return f"type({self.source(base)})"
            case S.ClosureCell(function, index):
                return f"{self.source(function)}.__closure__[{index}].cell_contents"
            case S.Default(function, index, None):
                return f"{self.source(function)}.__defaults__[{index}]"
            case S.Default(function, None, name):
                return f"{self.source(function)}.__kwdefaults__[{name!r}]"
            case S.MethodSelf(base):
                return f"{self.source(base)}.__self__"
            case S.Viewed(base):
                return f"{self.constant(viewed_dict)}({self.source(base)})"
            case S.Length(base, of):
                return f"{self.constant(S.LENGTHS[of])}({self.source(base)})"
            case S.Proxied(base):
                return f"{self.constant(proxied_dict)}({self.source(base)})"
            case S.MethodFunction(base):
                return f"{self.source(base)}.__func__"
            case S.Grad(base):
                return f"{self.source(base)}.grad"
            case S.PlainTensor(base):
                return f"{self.constant(plain_tensor)}({self.source(base)})"
            case S.WeakTarget(base):
                return f"{self.source(base)}()"
            case S.Made(index):
                return self.constant(self.state.kept[index])
            case _:
                raise CompilerBug("emit", f"no text for source {source!r}")

    def key(self, key: Any) -> str:
        return repr(key) if isinstance(key, LITERALS) else self.constant(key)

    # -- values --------------------------------------------------------------------------------------------------------------------

    def value(self, value: Value) -> str:
        """An expression for the value."""
        name = self.names.get(value)
        if name is not None:
            return name
        if value.source is not None and not isinstance(value, Constant | CellValue):
            return self.source(value.source)
        row = EXPRESSIONS.get(type(value))
        if row is None:
            raise unsupported(self.state, "TW110", type(value).__name__.removesuffix("Value").lower())
        text = row(self, value)
        return text if isinstance(value, UNSHARED) or text[0] + text[-1] == "()" and text[1:-1].isidentifier() else self.named(value, text)

    def named(self, value: Value, text: str) -> str:
        """A variable for `value`, so that it is one object wherever it is wanted; before the branch where it is older than its sides."""
        block = next(one for one in reversed(self.blocks) if one.age <= value.age)
        name = self.names[value] = self.fresh_name()
        block.lines.append(f"{name} = {text}")
        block.named.append(value)
        return name

    def fresh_name(self) -> str:
        return f"v{next(self.numbers)}"

    def values(self, values: Any) -> str:
        return "".join(self.value(v) + ", " for v in values)

    def tensor(self, value: TensorValue) -> str:
        return self.output(tensor_node(self.state, value))

    def array(self, value: ArrayValue) -> str:
        return self.output(array_node(self.state, value))

    def output(self, node: torch.fx.Node) -> str:
        name = self.output_names.get(node)
        if name is None:
            name = self.output_names[node] = f"o{len(self.outputs)}"
            self.outputs.append(node)
        return name

    def text(self, value: TextValue) -> str:
        named = "".join(f"{name}={self.value(one)}, " for name, one in value.kwargs.items())
        return f"{self.constant(value.function)}({self.values(value.args)}{named})"

    def size(self, value: SizeValue) -> str:
        """Python arithmetic on the numbers and tensor sizes that the symbols stand for."""
        if isinstance(value.size.node, FloatNode):
            return self.floating(value.size.node.expression)
        if isinstance(value.size.node, OpenNode):
            return self.comparison(value.size.node.question)
        return self.number(bare(value.size))

    def comparison(self, question: tuple) -> str:
        """The answer to what only elements say."""
        if len(question) != 3:
            raise unsupported(self.state, "TW103", "a truth value")
        left, sign, right = question
        return f"({self.number(left)} {sign} {self.number(right)})"

    def floating(self, expression: Any) -> str:
        """A float, also where the expression is a size alone."""
        text = self.number(expression)
        return f"float{text}" if isinstance(expression, Size) else text

    def number(self, expression: Any) -> str:
        match expression:
            case FloatInput(source):
                return self.source(source)
            case Element(node):
                return f"{self.constant(number_in)}({self.output(node)})"
            case (operator.neg, one):
                return f"(-{self.floating(one)})"
            case (operator.truediv, left, right):                      # of integers, it rounds once
                return f"({self.number(left)} / {self.number(right)})"
            case (function, left, right) if function in SYMBOLS:
                return f"({self.floating(left)} {SYMBOLS[function]} {self.floating(right)})"
            case (function, *operands):
                return f"{self.constant(function)}({', '.join(map(self.floating, operands))})"
            case Size():
                return self.integer(expression)
            case _:
                return f"({expression!r})" if math.isfinite(expression) else self.constant(expression)

    def integer(self, size: Size) -> str:
        for symbol in sorted(symbols(size), key=str):
            self.symbol(symbol.name)
        return f"({show(size)})"

    def symbol(self, name: str) -> None:
        """Loads what a size symbol stands for into the variable of its name."""
        if name not in self.symbols:
            self.symbols.add(name)
            if (element := self.state.facts.elements.get(name)) is not None:
                self.prologue.append(f"{name} = {self.constant(number_in)}({self.output(element)})")
                return
            owner, dim = self.state.symbols[name]
            place = self.source(owner.source) if owner.source is not None else self.output(owner.node)
            self.prologue.append(f"{name} = {place}" if dim is None else f"{name} = {place}.shape[{dim}]")

    def constant_value(self, value: Constant) -> str:
        obj = value.value
        return repr(obj) if type(obj) in LITERALS else self.constant(obj)

    def tuple(self, value: TupleValue) -> str:
        items = f"({self.values(value.items)})"
        if value.cls is tuple:
            return items
        return f"tuple.__new__({self.constant(value.cls)}, {items})" if hasattr(value.cls, "_fields") else f"{self.constant(value.cls)}({items})"

    def method(self, value: MethodValue) -> str:
        function = value.function
        if isinstance(function, Constant) and isinstance(function.value, types.ClassMethodDescriptorType):
            return f"{self.constant(function.value)}.__get__(None, {self.value(value.owner)})"
        if isinstance(function, Constant) and hasattr(function.value, "__get__"):
            return f"{self.constant(bound_to)}({self.constant(function.value)}, {self.value(value.owner)})"
        return f"types.MethodType({self.value(function)}, {self.value(value.owner)})"

    def partial(self, value: PartialValue) -> str:
        kwargs = ", ".join(f"{name!r}: {self.value(v)}" for name, v in value.kwargs.items())
        return f"{self.constant(functools.partial)}({self.value(value.function)}, {self.values(value.args)}**{{{kwargs}}})"

    def slice(self, value: SliceValue) -> str:
        return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"

    def view(self, value: ViewValue) -> str:
        return f"{self.value(value.mapping)}.{value.kind}()"

    def cell(self, value: CellValue) -> str:
        match value.source:
            case S.Cell(_, index):
                return f"k{index}"
            case None:
                raise CompilerBug("emit", "a cell that was not built")
            case _:
                return self.source(value.source)

    # -- steps ---------------------------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        match step:
            case Build(value, recipe):
                name = self.fresh_name()
                text = BUILDERS[type(value)](self, value, recipe, name)
                self.names[value] = name
                if isinstance(value, ObjectValue | FunctionValue) and value.attributes is not None:
                    self.names[value.attributes] = f"{name}.__dict__"
                if isinstance(value, ObjectValue) and value.storage is not None and not isinstance(value.storage, TensorValue):
                    self.names[value.storage] = name
                self.body.append(f"{name} = {text[0]}")
                self.body.extend(text[1:])
            case Write(operation, operands):
                self.body.append(WRITERS[operation](self, *operands))
            case Choose(condition, when_true, when_false, age):
                text = self.value(condition)
                sides = [self._side(age, when_true), self._side(age, when_false)]
                self.body.extend([f"if {text}:", *sides[0], "else:", *sides[1]])
            case _:
                raise CompilerBug("emit", f"not a step: {step!r}")

    def _side(self, age: int, steps: tuple[Step, ...]) -> list[str]:
        """Lines of a side of a branch."""
        self.blocks.append(Block(age))
        for step in steps:
            self.step(step)
        block = self.blocks.pop()
        for value in block.named:
            del self.names[value]
        return [f"    {line}" for line in block.lines or ["pass"]]

    def compile(self, name: str, result: str) -> Callable[..., Any]:
        parameters = [f"a{i}" for i in range(len(self.arguments))] + [f"k{i}" for i in range(len(self.function.__code__.co_freevars))]
        parameters += [f"o{i}" for i in range(len(self.outputs))]
        lines = [*self.prologue, *self.body, f"return {result}"]
        text = f"def {name}({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in lines)
        return compile_text(text, name, self.constants)


def number_in(output: Any) -> float:
    """The number that the graph gives: compiled graphs give it in a tensor."""
    return output.item() if isinstance(output, torch.Tensor) else output


def bound_to(function: Any, owner: Any) -> Any:
    """The method of `owner`; C functions that want their class crash where it is not given."""
    return function.__get__(owner, type(owner))


def raw_item(base: Any, key: Any) -> Any:
    """`base[key]` by the builtin's own slot, also for subclasses."""
    for cls in (dict, list, tuple):
        if isinstance(base, cls):
            return cls.__getitem__(base, key)
    return base[key]


EXPRESSIONS: dict[type, Callable[[Emitter, Any], str]] = {
    TensorValue: Emitter.tensor, ArrayValue: Emitter.array,
    SizeValue: Emitter.size, Constant: Emitter.constant_value, TupleValue: Emitter.tuple, MethodValue: Emitter.method,
    PartialValue: Emitter.partial, SliceValue: Emitter.slice, TextValue: Emitter.text, ViewValue: Emitter.view, CellValue: Emitter.cell,
}


def _build_list(out: Emitter, value: ListValue, items: tuple, name: str) -> list[str]:
    if value.cls is collections.deque:
        bound = f", {out.value(value.options['maxlen'])}" if "maxlen" in value.options else ""
        return [f"{out.constant(value.cls)}(({out.values(items)}){bound})"]
    return [f"[{out.values(items)}]"]


def _build_dict(out: Emitter, value: DictValue, pairs: tuple, name: str) -> list[str]:
    text = "{" + ", ".join(f"{out.value(k)}: {out.value(v)}" for k, v in pairs) + "}"
    if value.cls is dict:
        return [text]
    if value.cls is collections.defaultdict:
        return [f"{out.constant(value.cls)}({out.value(value.factory)}, {text})"]
    return [f"{out.constant(value.cls)}({text})"]


def _build_set(out: Emitter, value: SetValue, items: tuple, name: str) -> list[str]:
    return [f"{out.constant(value.cls)}(({out.values(items)}))"]


def _build_cell(out: Emitter, value: CellValue, content: tuple, name: str) -> list[str]:
    return ["types.CellType(" + (out.value(content[0]) if content and content[0] is not None else "") + ")"]


def _build_function(out: Emitter, value: FunctionValue, recipe: tuple, name: str) -> list[str]:
    cells = f"({out.values(value.cells or ())})"
    defaults = f"({out.values(value.defaults)})" if value.defaults else "None"
    lines = [f"types.FunctionType({out.constant(value.code)}, {out.constant(value.namespace.real)}, {value.name!r}, {defaults}, {cells})"]
    if value.keyword_defaults:
        pairs = ", ".join(f"{k!r}: {out.value(v)}" for k, v in value.keyword_defaults.items())
        lines.append(f"{name}.__kwdefaults__ = {{{pairs}}}")
    if value.attributes is not None:
        lines += [f"setattr({name}, {out.value(k)}, {out.value(v)})" for k, v in value.attributes.items.values()]
    return lines


def _build_object(out: Emitter, value: ObjectValue, recipe: tuple, name: str) -> list[str]:
    cls = out.value(value.cls)
    attributes, slots, storage = recipe or ((), (), None)
    new, fill = _new_text(out, value, cls, storage, name)
    lines = [new]
    if attributes:
        pairs = ", ".join(f"{out.value(k)}: {out.value(v)}" for k, v in attributes)
        lines.append(f"{name}.__dict__.update({{{pairs}}})")
    slots = () if issubclass(value.cls.value, property) else slots           # its `__init__` sets them
    lines += [f"object.__setattr__({name}, {slot!r}, {out.value(v)})" for slot, v in slots if slot[0] != "." and not slot.startswith("__") or slot in LINKS]
    if any(slot == RAISED_BARE for slot, _ in slots) and not any(slot == "__context__" for slot, _ in slots):
        lines.append(f"{name}.__context__ = {out.constant(sys.exception)}()")
    return lines + fill


def _new_text(out: Emitter, value: ObjectValue, cls: str, storage: Any, name: str) -> tuple[str, list[str]]:
    """The text that makes the bare instance, and the lines that fill its builtin content."""
    real = value.cls.value
    if issubclass(real, BaseException):
        return f"{cls}.__new__({cls}, {out.values(value.new_args)})", []
    if issubclass(real, property):
        return f"property.__new__({cls})", [f"property.__init__({name}, {out.values(value.new_args)})"]
    match value.storage:
        case None:
            maker = next(base for base in real.__mro__ if "__new__" in base.__dict__ and not isinstance(base.__dict__["__new__"], staticmethod))
            return f"{out.constant(maker)}.__new__({cls})", []
        case TensorValue():
            return f"{out.constant(with_class)}({out.value(value.storage)}, {cls})", []
        case Constant() | TupleValue():
            base = next(b for b in (int, float, str, tuple) if issubclass(real, b))
            return f"{out.constant(base)}.__new__({cls}, {out.value(value.storage)})", []
        case DictValue():
            base = out.constant(value.storage.cls)
            return f"{base}.__new__({cls})", [f"{base}.__setitem__({name}, {out.value(k)}, {out.value(v)})" for k, v in storage or ()]
        case _:
            return f"list.__new__({cls})", [f"list.extend({name}, ({out.values(storage or ())}))"]


def _build_list_iterator(out: Emitter, value: ListIterator, recipe: tuple, name: str) -> list[str]:
    if value.step < 0:
        rest = out.values(value.over.items[value.index::-1]) if value.index >= 0 else ""
        return [f"iter(({rest}))"]
    return [f"{out.constant(iterator_at)}({out.value(value.over)}, {out.value(number(value.index))})"]


def _build_dict_iterator(out: Emitter, value: DictIterator, recipe: tuple, name: str) -> list[str]:
    return [f"{out.constant(iterator_at)}({out.value(value.mapping)}.{value.kind}(), {out.value(number(value.index))})"]


def _build_range_iterator(out: Emitter, value: RangeIterator, recipe: tuple, name: str) -> list[str]:
    return [f"iter(range({out.value(value.current)}, {out.value(value.stop)}, {out.value(value.step)}))"]


def _build_counted_iterator(out: Emitter, value: CountedIterator, recipe: tuple, name: str) -> list[str]:
    return [f"{out.constant(iterator_at)}({out.constant(value.sequence)}, {out.value(number(value.index))})"]


def _build_enumerate(out: Emitter, value: EnumerateIterator, recipe: tuple, name: str) -> list[str]:
    return [f"enumerate({out.value(value.inner)}, {out.value(number(value.index))})"]


def _build_rows(out: Emitter, value: RowIterator, recipe: tuple, name: str) -> list[str]:
    parts = out.values(value.inner)
    return [f"zip({parts})" if value.function is None else f"map({out.value(value.function)}, {parts})"]


ENDED: dict[type, str] = {                      # arguments that make one which has ended, but for an empty iterable
    **dict.fromkeys((filter, itertools.filterfalse, itertools.starmap, itertools.takewhile, itertools.dropwhile), "(None, ())"),
    itertools.compress: "((), ())", itertools.repeat: "(None, 0)", itertools.islice: "((), 0)",
}


def exhausted(name: str, qualified: str) -> Generator:
    """A generator that has ended, under the name of the user's."""
    made = (one for one in ())
    next(made, None)
    made.__name__, made.__qualname__ = name, qualified
    return made


def _build_generator(out: Emitter, value: GeneratorValue, recipe: tuple, name: str) -> list[str]:
    """A generator that stands where this one does; as it was called where it has not started."""
    frame = value.frame
    if value.finished and value.plays is not None:
        return [f"{out.constant(python_type(value))}{ENDED.get(python_type(value), '(())')}"]
    if value.finished:
        return [f"{out.constant(exhausted)}({frame.code.co_name!r}, {frame.code.co_qualname!r})"]
    if value.plays is not None and not value.started:
        builtin, args, kwargs = value.plays
        return [f"{out.constant(builtin)}({out.values(args)}{''.join(f'{k}={out.value(v)}, ' for k, v in kwargs.items())})"]
    if not value.started:
        code, free = plain_parameters(frame.code), frame.code.co_freevars
        arguments = [frame.locals[one] for one in code.co_varnames[:code.co_argcount]]
    else:
        cells, free = frame.code.co_cellvars + frame.code.co_freevars, free_cells(frame.code)
        leading = leading_parameter(frame.code)
        names = tuple(one for one in frame.code.co_varnames if one in frame.locals and one not in cells and one not in leading)
        code = resume_code(frame.code, frame.pc, tuple(one is not NULL for one in frame.stack), names, True)
        arguments = [frame.cells[one].content if one in frame.cells else frame.locals[one] for one in leading]
        arguments += [one for one in frame.stack if one is not NULL] + [frame.locals[one] for one in names]
        arguments += [frame.cells[one] for one in cells if one not in free]
    closure = out.values(frame.cells[one] for one in free)
    made = f"types.FunctionType({out.constant(code)}, {out.constant(frame.namespace.real)}, {frame.code.co_name!r}, None, ({closure}))"
    return [f"{made}({out.values(arguments)})", *([f"next({name})"] if value.started else [])]


def _build_transformed(out: Emitter, value: TransformedValue, recipe: tuple, name: str) -> list[str]:
    options = "".join(f", {key}={out.value(one)}" for key, one in value.options.items())
    return [f"{out.constant(value.target)}({out.value(value.function)}{options})"]


def _build_traceback(out: Emitter, value: TracebackValue, recipe: tuple, name: str) -> list[str]:
    return [f"{out.constant(traceback_at)}({out.constant(caller_function(value.frame, value.index))}, {out.value(value.following)})"]


def traceback_at(caller: Callable[..., Any], following: types.TracebackType | None) -> types.TracebackType:
    """An entry that shows the frame which `caller` stands for."""
    frame = caller(sys._getframe)
    frame.clear()
    return types.TracebackType(following, frame, frame.f_lasti, frame.f_lineno)


BUILDERS: dict[type, Callable[..., list[str]]] = {
    ListValue: _build_list, DictValue: _build_dict, SetValue: _build_set, CellValue: _build_cell, FunctionValue: _build_function,
    ObjectValue: _build_object, ListIterator: _build_list_iterator, DictIterator: _build_dict_iterator, CountedIterator: _build_counted_iterator,
    EnumerateIterator: _build_enumerate, RowIterator: _build_rows, RangeIterator: _build_range_iterator, GeneratorValue: _build_generator,
    TransformedValue: _build_transformed, TracebackValue: _build_traceback,
}


def _fill(out: Emitter, value: Value, contents: tuple) -> str:
    """Content of an object that was created empty because it contains itself."""
    name = out.names[value]
    match value:
        case ListValue():
            return f"{name}.extend(({out.values(contents)}))"
        case DictValue():
            return f"{name}.update({{{', '.join(f'{out.value(k)}: {out.value(v)}' for k, v in contents)}}})"
        case ObjectValue():
            return "; ".join(_build_object(out, value, contents, name)[1:] or ["pass"])
        case CellValue():
            return f"{name}.cell_contents = {out.value(contents[0])}"
        case _:
            return "pass"


def _owner(out: Emitter, mapping: Value) -> str:
    return out.source(mapping.owner) if isinstance(mapping, InstanceDict) else out.value(mapping)


def _set_attribute(out: Emitter, mapping: Value, name: Value, value: Value) -> str:
    return f"object.__setattr__({_owner(out, mapping)}, {out.value(name)}, {out.value(value)})"


def _global_store(out: Emitter, space: Namespace, name: str, value: Value) -> str:
    return f"{out.constant(space.real)}[{name!r}] = {out.value(value)}"


def _cell_store(out: Emitter, cell: CellValue, value: Value | None = None) -> str:
    return f"{out.value(cell)}.cell_contents = {out.value(value)}" if value is not None else f"del {out.value(cell)}.cell_contents"


def _raw(name: str, cls: type = dict) -> Callable[..., str]:
    def row(out: Emitter, target: Value, *operands: Value) -> str:
        base = getattr(target, "cls", cls)
        return f"{out.constant(base)}.{name}({out.value(target)}, {out.values(operands)})"
    return row


WRITERS: dict[str, Callable[..., str]] = {
    "fill": _fill, "setattr": _set_attribute,
    "class_setattr": lambda out, cls, name, value: f"type.__setattr__({out.value(cls)}, {out.value(name)}, {out.value(value)})",
    "slot_setattr": lambda out, owner, name, value: f"object.__setattr__({out.value(owner)}, {out.value(name)}, {out.value(value)})",
    "delattr": lambda out, mapping, name: f"object.__delattr__({_owner(out, mapping)}, {out.value(name)})",
    "setitem": _raw("__setitem__"), "delitem": _raw("__delitem__"), "move_to_end": _raw("move_to_end"), "append": _raw("append"), "add": _raw("add"),
    "discard": _raw("discard"),
    "replace": lambda out, target, *items: f"{out.constant(replace_content)}({out.value(target)}, ({out.values(items)}))",
    "global_store": _global_store, "cell_store": _cell_store,
    "call": lambda out, function, args, kwargs: f"{out.value(function)}(*{out.value(args)}, **{out.value(kwargs)})",
}


def replace_content(target: Any, items: tuple) -> None:
    """The list's or deque's content becomes `items`, by the builtin's own methods."""
    cls = collections.deque if isinstance(target, collections.deque) else list
    cls.clear(target)
    cls.extend(target, items)


def argument_names(code: types.CodeType) -> tuple[str, ...]:
    """Names of the bound arguments in co_varnames order: positional, keyword-only, *args, **kwargs."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[:count]


def emit(state: State, function: types.FunctionType, result: Value) -> tuple[Callable[..., Any] | None, list[torch.fx.Node], bool]:
    """`finish` (None where the result is just the graph's outputs), the nodes that the graph returns, and whether that is a single one."""
    plain = _plain_outputs(state, result)
    if plain is not None and not state.effects.steps:
        return None, plain, isinstance(result, TensorValue)
    expose(state, result)
    out = Emitter(state, function)
    for step in state.effects.steps:
        out.step(step)
    text = out.value(result)
    name = f"finish_{function.__name__}" if function.__name__.isidentifier() else "finish"
    return out.compile(name, text), out.outputs, False


def _plain_outputs(state: State, result: Value) -> list[torch.fx.Node] | None:
    """Nodes, where the result is a tensor or a tuple of different tensors made by the graph."""
    values = result.items if isinstance(result, TupleValue) and result.cls is tuple else (result,)
    if not values or len(set(values)) < len(values) or not all(isinstance(v, TensorValue) and v.source is None for v in values):
        return None
    return [v.node for v in values]


def compile_text(text: str, name: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function that `text` defines, with its source in linecache."""
    file = f"<thruway {name} {next(_COUNT)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]
