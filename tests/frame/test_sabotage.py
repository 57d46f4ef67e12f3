"""For each kind of source: change the thing after the entry exists, and see the guard notice; put it back, and see it hold again.

Each case runs on the C core and on its twin, with the fast pass armed and unarmed, so a value that is wrongly thought
unchanged shows as a check that still holds.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from thruway.frame.check import compile_check
from thruway.frame.guard import MISSING, Guard, GuardSet
from thruway.frame.source import (
    Attr, Builtin, Cell, ClosureCell, Default, DictAttr, DictKey, FunctionGlobal, Global, Grad, Item, Local, Made, MethodFunction, MethodSelf, PlainTensor,
    Length, Own, Proxied, TypeOf, Viewed, WeakTarget,
)
from thruway.frame.state import read_state
from thruway.native.fallback import proxied_dict, viewed_dict

SCALE = 3
X = Local("x", 0)


def make_function(value: object) -> types.FunctionType:
    def function(x, *, option=5):
        return value, SCALE, option

    return function


class Classed(torch.Tensor):
    pass


class Base:
    rate = 1

    def method(self):
        return 1


class Thing(Base):
    def __init__(self):
        self.number = 7
        self.items = [1, 2, 3]
        self.table = {"a": 1, "b": 2}
        self.ordered = OrderedDict(a=1, b=2)

    @property
    def doubled(self):
        return self.number * 2


class Odd(Thing):
    def method(self):
        return 3


class Slotted:
    __slots__ = ("number",)

    def __init__(self):
        self.number = 7


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
        self.scale = 2.0
        self.register_buffer("seen", torch.zeros(2))


@dataclass
class Sabotage:
    """`make()` gives the argument; `change(x)` must be noticed by a guard of `kind` on `source`, and `undo(x)` makes it hold again."""

    source: object
    kind: str
    expected: object
    make: Callable[[], object]
    change: Callable[[object], object]
    undo: Callable[[object], object] | None = None


def other_method(self):
    return 2


def set_item(container, key, value):
    container[key] = value


def class_attribute_case(attribute: str, new: object) -> Sabotage:
    old = getattr(Base, attribute)
    kind, expected = ("code", old.__code__) if callable(old) else ("equal", old)
    return Sabotage(Attr(X, attribute), kind, expected, Thing, lambda x: setattr(Base, attribute, new), lambda x: setattr(Base, attribute, old))


def default_function():
    def function(a, b=1, *, c=2):
        return a

    return function


class Holder:
    def __init__(self, target):
        self.reference = weakref.ref(target)


KEPT_ALIVE = [Thing(), Thing()]
MODULE = types.ModuleType("sabotaged_module")
MODULE.level = 1
sys.modules["sabotaged_module"] = MODULE


def grad_case() -> torch.Tensor:
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.ones(2)
    return x


def shadowed(x):
    globals()["len"] = max


CASES = {
    "local": Sabotage(X, "equal", 7, lambda: [7], lambda x: set_item(x, 0, 8), lambda x: set_item(x, 0, 7)),
    "global": Sabotage(Global("SCALE"), "equal", 3, list, lambda x: globals().update(SCALE=4), lambda x: globals().update(SCALE=3)),
    "global gone": Sabotage(Global("SCALE"), "equal", 3, list, lambda x: globals().pop("SCALE"), lambda x: globals().update(SCALE=3)),
    "global of a module": Sabotage(
        Global("level", "sabotaged_module"), "equal", 1, list, lambda x: setattr(MODULE, "level", 2), lambda x: setattr(MODULE, "level", 1)),
    "builtin": Sabotage(Builtin("len"), "identity", len, list, shadowed, lambda x: globals().pop("len")),
    "function global": Sabotage(
        FunctionGlobal(X, "SCALE"), "equal", 3, lambda: make_function(1), lambda x: globals().update(SCALE=4), lambda x: globals().update(SCALE=3)),
    "attr": Sabotage(Attr(X, "number"), "equal", 7, Thing, lambda x: setattr(x, "number", 8), lambda x: setattr(x, "number", 7)),
    "attr by bits": Sabotage(Attr(X, "number"), "equal", 7, Thing, lambda x: setattr(x, "number", 7.0), lambda x: setattr(x, "number", 7)),
    "attr gone": Sabotage(Attr(X, "number"), "equal", 7, Thing, lambda x: delattr(x, "number"), lambda x: setattr(x, "number", 7)),
    "attr through __dict__": Sabotage(Attr(X, "number"), "equal", 7, Thing, lambda x: x.__dict__.update(number=8), lambda x: x.__dict__.update(number=7)),
    "another __dict__": Sabotage(Attr(X, "number"), "equal", 7, Thing, lambda x: setattr(x, "__dict__", {"number": 8}), lambda x: setattr(x, "number", 7)),
    "class attribute": class_attribute_case("rate", 2),
    "class attribute shadowed": Sabotage(Attr(X, "rate"), "equal", 1, Thing, lambda x: setattr(x, "rate", 2), lambda x: delattr(x, "rate")),
    "class attribute made a property": Sabotage(
        Attr(X, "rate"), "equal", 1, Thing, lambda x: setattr(Thing, "rate", property(lambda s: 9)), lambda x: delattr(Thing, "rate")),
    "method": class_attribute_case("method", other_method),
    "method shadowed": Sabotage(Attr(X, "method"), "code", Base.method.__code__, Thing, lambda x: setattr(x, "method", list), lambda x: delattr(x, "method")),
    "method's function": Sabotage(
        MethodFunction(Attr(X, "method")), "identity", Base.method, Thing, lambda x: setattr(Thing, "method", other_method), lambda x: delattr(Thing, "method")),
    "method's self": Sabotage(
        Attr(MethodSelf(Attr(X, "method")), "number"), "equal", 7, Thing, lambda x: setattr(x, "number", 8), lambda x: setattr(x, "number", 7)),
    "property": Sabotage(Attr(X, "doubled"), "equal", 14, Thing, lambda x: setattr(x, "number", 8), lambda x: setattr(x, "number", 7)),
    "slot": Sabotage(Attr(X, "number"), "equal", 7, Slotted, lambda x: setattr(x, "number", 8), lambda x: setattr(x, "number", 7)),
    "another class": Sabotage(Attr(X, "rate"), "equal", 1, Thing, lambda x: setattr(x, "__class__", type("T", (), {"rate": 5})), lambda x: setattr(x, "__class__", Thing)),
    "dict attr": Sabotage(DictAttr(X, "number"), "equal", 7, Thing, lambda x: setattr(x, "number", 8), lambda x: setattr(x, "number", 7)),
    "dict attr of a class": Sabotage(
        DictAttr(TypeOf(X), "rate"), "equal", 1, Base, lambda x: setattr(Base, "rate", 2), lambda x: setattr(Base, "rate", 1)),
    "list item": Sabotage(Item(Attr(X, "items"), 1), "equal", 2, Thing, lambda x: set_item(x.items, 1, 9), lambda x: set_item(x.items, 1, 2)),
    "list too short": Sabotage(Item(Attr(X, "items"), -1), "equal", 3, Thing, lambda x: x.items.pop(), lambda x: x.items.append(3)),
    "dict item": Sabotage(Item(Attr(X, "table"), "b"), "equal", 2, Thing, lambda x: set_item(x.table, "b", 9), lambda x: set_item(x.table, "b", 2)),
    "dict key": Sabotage(DictKey(Attr(X, "table"), 1), "equal", "b", Thing, lambda x: x.table.update(c=x.table.pop("b")), lambda x: x.table.update(b=x.table.pop("c"))),
    "viewed dict": Sabotage(
        Item(Viewed(X), "b"), "equal", 2, lambda: {"b": 2}.values(), lambda x: set_item(viewed_dict(x), "b", 9), lambda x: set_item(viewed_dict(x), "b", 2)),
    "length of a list": Sabotage(Length(Attr(X, "items")), "equal", 3, Thing, lambda x: x.items.append(4), lambda x: x.items.pop()),
    "length, of a deque": Sabotage(X, "length", 1, lambda: deque([7]), lambda x: x.append(4), lambda x: x.pop()),
    "length of a deque": Sabotage(Length(X, "deque"), "equal", 1, lambda: deque([7]), lambda x: x.append(4), lambda x: x.pop()),
    "length of a dict": Sabotage(Length(Attr(X, "table"), "dict"), "equal", 2, Thing, lambda x: x.table.update(c=1), lambda x: x.table.pop("c")),
    "dict behind a proxy": Sabotage(
        Item(Proxied(X), "b"), "equal", 2, lambda: types.MappingProxyType({"b": 2}), lambda x: set_item(proxied_dict(x), "b", 9),
        lambda x: set_item(proxied_dict(x), "b", 2)),
    "tensor without its class": Sabotage(
        Attr(PlainTensor(X), "ndim"), "equal", 1, lambda: torch.ones(2).as_subclass(Classed), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_(0)),
    "dict keys": Sabotage(Attr(X, "table"), "dict_keys", ("a", "b"), Thing, lambda x: x.table.update(c=1), lambda x: x.table.pop("c")),
    "absent": Sabotage(Attr(X, "table"), "absent", "c", Thing, lambda x: x.table.update(c=1), lambda x: x.table.pop("c")),
    "length": Sabotage(Attr(X, "items"), "length", 3, Thing, lambda x: x.items.append(4), lambda x: x.items.pop()),
    "truth": Sabotage(Attr(X, "items"), "truth", True, Thing, lambda x: x.items.clear(), lambda x: x.items.append(4)),
    "has not": Sabotage(X, "has_not", "extra", Thing, lambda x: setattr(x, "extra", 1), lambda x: delattr(x, "extra")),
    "has not, in the class": Sabotage(X, "has_not", "extra", Thing, lambda x: setattr(Base, "extra", 1), lambda x: delattr(Base, "extra")),
    "type": Sabotage(Attr(X, "number"), "type", int, Thing, lambda x: setattr(x, "number", True), lambda x: setattr(x, "number", 1)),
    "type of": Sabotage(Attr(TypeOf(X), "rate"), "equal", 1, Thing, lambda x: setattr(Thing, "rate", 2), lambda x: delattr(Thing, "rate")),
    "absent from __dict__": Sabotage(
        Attr(X, "__dict__"), "absent", "rate", Thing, lambda x: setattr(x, "rate", 5), lambda x: delattr(x, "rate")),
    "absent from another __dict__": Sabotage(
        Attr(X, "__dict__"), "absent", "rate", Base, lambda x: setattr(x, "__dict__", {"rate": 1}), lambda x: setattr(x, "__dict__", {})),
    "item of __dict__": Sabotage(
        Item(Attr(X, "__dict__"), "number"), "equal", 7, Thing, lambda x: setattr(x, "number", 5), lambda x: setattr(x, "number", 7)),
    "type lookup": Sabotage(
        TypeOf(X), "type_lookup", ("method", Base.__dict__["method"]), Thing, lambda x: setattr(Thing, "method", other_method), lambda x: delattr(Thing, "method")),
    "type lookup of nothing": Sabotage(
        TypeOf(X), "type_lookup", ("__getattr__", MISSING), Thing, lambda x: setattr(Base, "__getattr__", len), lambda x: delattr(Base, "__getattr__")),
    "type lookup in another class": Sabotage(
        TypeOf(X), "type_lookup", ("method", Base.__dict__["method"]), Thing, lambda x: setattr(x, "__class__", Odd), lambda x: setattr(x, "__class__", Thing)),
    "ordered keys": Sabotage(
        Attr(X, "ordered"), "ordered_keys", ("a", "b"), Thing, lambda x: x.ordered.move_to_end("a"), lambda x: x.ordered.move_to_end("b")),
    "ordered keys, one more": Sabotage(
        Attr(X, "ordered"), "ordered_keys", ("a", "b"), Thing, lambda x: x.ordered.update(c=3), lambda x: x.ordered.pop("c")),
    "closure cell": Sabotage(
        ClosureCell(X, 0), "equal", 7, lambda: make_function(7), lambda x: setattr(x.__closure__[0], "cell_contents", 8),
        lambda x: setattr(x.__closure__[0], "cell_contents", 7)),
    "code": Sabotage(X, "code", make_function(7).__code__, lambda: make_function(7),
                     lambda x: setattr(x, "__code__", make_function(7).__code__.replace(co_name="other")), lambda x: setattr(x, "__code__", make_function(7).__code__)),
    "default": Sabotage(Default(X, 0), "equal", 1, default_function, lambda x: setattr(x, "__defaults__", (2,)), lambda x: setattr(x, "__defaults__", (1,))),
    "keyword default": Sabotage(
        Default(X, None, "c"), "equal", 2, default_function, lambda x: set_item(x.__kwdefaults__, "c", 3), lambda x: set_item(x.__kwdefaults__, "c", 2)),
    "weak target": Sabotage(
        WeakTarget(Attr(X, "reference")), "identity", KEPT_ALIVE[0], lambda: Holder(KEPT_ALIVE[0]), lambda x: setattr(x, "reference", weakref.ref(KEPT_ALIVE[1])),
        lambda x: setattr(x, "reference", weakref.ref(KEPT_ALIVE[0]))),
    "grad": Sabotage(Grad(X), "equal", None, lambda: torch.ones(2, requires_grad=True), lambda x: setattr(x, "grad", torch.ones(2)), lambda x: setattr(x, "grad", None)),
    "made": Sabotage(Item(Made(0), 0), "equal", 1, list, lambda x: set_item(KEPT[0], 0, 2), lambda x: set_item(KEPT[0], 0, 1)),
    "module attr": Sabotage(Attr(X, "scale"), "equal", 2.0, Net, lambda x: setattr(x, "scale", 2), lambda x: setattr(x, "scale", 2.0)),
    "module mode": Sabotage(Attr(X, "training"), "equal", True, Net, lambda x: x.eval(), lambda x: x.train()),
    "parameter's place": Sabotage(
        Attr(Attr(X, "fc"), "weight"), "type", torch.nn.Parameter, Net, lambda x: x.fc._parameters.update(weight=torch.ones(2, 2)),
        lambda x: x.fc._parameters.update(weight=torch.nn.Parameter(torch.ones(2, 2)))),
    "submodule": Sabotage(Attr(X, "fc"), "type", torch.nn.Linear, Net, lambda x: setattr(x, "fc", torch.nn.ReLU()), lambda x: setattr(x, "fc", torch.nn.Linear(1, 1))),
    "buffer": Sabotage(Attr(X, "seen"), "type", torch.Tensor, Net, lambda x: x._buffers.update(seen=None), lambda x: x._buffers.update(seen=torch.ones(1))),
    "hooks": Sabotage(Attr(X, "_forward_hooks"), "length", 0, Net, lambda x: x.register_forward_hook(print), lambda x: x._forward_hooks.clear()),
    "parameters replaced": Sabotage(
        Attr(X, "seen"), "type", torch.Tensor, Net, lambda x: setattr(x, "_buffers", {"seen": 3}), lambda x: setattr(x, "_buffers", {"seen": torch.ones(1)})),
    "module lacks": Sabotage(X, "has_not", "extra", Net, lambda x: x.register_buffer("extra", torch.ones(1)), lambda x: x._buffers.pop("extra")),
}
KEPT = ([1],)


def local_value(name: str, argument: object) -> object:
    return argument[0] if name == "local" else argument


@pytest.mark.parametrize("calls_before", [0, 1, 5])
@pytest.mark.parametrize("name", CASES)
def test_the_guard_notices(core, name, calls_before):
    case = CASES[name]
    argument = case.make()
    function = make_function(1)
    guards = GuardSet(read_state(), (Guard(case.kind, case.source, case.expected),))
    program = compile_check(guards, (), KEPT, core).program

    def holds() -> bool:
        return program.check(function, (local_value(name, argument), 5)) is not None

    for _ in range(calls_before):
        assert holds()
    case.change(argument)
    try:
        assert not holds()
        assert not holds()
        assert program.explain(function, (local_value(name, argument), 5))[0] == 0
    finally:
        case.undo(argument)
    assert holds()
    assert holds()
    case.change(argument)
    noticed = not holds()
    case.undo(argument)
    assert noticed
    assert holds()


def test_a_changed_cell_of_the_function_itself(core):
    value = [1]

    def function():
        return value

    guards = GuardSet(read_state(), (Guard("length", Cell("value", 0), 1),))
    program = compile_check(guards, (Cell("value", 0),), (), core).program
    assert program.check(function, ()) == (value,)
    old, value = value, [1, 2]
    assert program.check(function, ()) is None
    value = old
    assert program.check(function, ()) == (old,)


def test_every_kind_of_source_is_sabotaged():
    def kinds(source: object) -> set[type]:
        inner = [getattr(source, name, None) for name in ("base", "function")]
        return {type(source)}.union(*(kinds(each) for each in inner if each is not None and not isinstance(each, str)))

    import thruway.frame.source as sources

    seen = set().union(*(kinds(case.source) for case in CASES.values())) | {Cell, Own}        # Own: tests/whole/test_frames_below
    assert seen == set(sources.Source.__args__)
