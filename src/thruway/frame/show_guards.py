"""Guards as the user would write them, one line each, with the user's line that needed it: for explain, logs and dumps."""

from __future__ import annotations

from types import ModuleType

from thruway.core import sizes
from thruway.frame.guard import Guard, GuardSet, TensorExpectation
from thruway.frame.source import tell

LONGEST = 100


def show_guards(guards: GuardSet) -> str:
    """The torch modes that the entry is keyed on, then every guard in the order in which they are checked."""
    state = guards.state
    modes = [f"grad {'on' if state.grad_enabled else 'off'}", f"default dtype {state.default_dtype}"]
    modes += ["inference mode"] if state.inference else []
    modes += [f"autocast {device} {dtype}" for device, is_on, dtype in state.autocast if is_on]
    modes += ["deterministic"] if state.deterministic[0] else []
    return "\n".join([f"modes: {', '.join(modes)}", *map(show_guard, guards.guards)])


def show_guard(guard: Guard) -> str:
    said = _condition(guard)
    return f"{said}    # {guard.why}" if guard.why else said


def _condition(guard: Guard) -> str:
    place, expected = tell(guard.source), guard.expected
    match guard.kind:
        case "tensor":
            return f"{place}: {_tensor(expected)}"
        case "type":
            return f"type({place}) is {_object(expected)}"
        case "identity":
            return f"{place} is {_object(expected)}"
        case "equal":
            return f"{place} == {_short(repr(expected))}"
        case "length":
            return f"len({place}) == {expected}"
        case "dict_keys" | "ordered_keys":
            return f"list({place}) == {_short(repr(list(expected)))}"
        case "has_not":
            return f"not hasattr({place}, {expected!r})"
        case "absent":
            return f"{expected!r} not in {place}"
        case "type_lookup":
            return f"{place}.{expected[0]} is found as {_object(expected[1])}"
        case "code":
            return f"{place}.__code__ is {_object(expected)}"
        case "same_object":
            return f"{place} is {tell(expected)}"
        case "not_same_object":
            return f"{place} is not {tell(expected)}"
        case "no_overlap":
            return f"{place} shares no memory with {tell(expected)}"
        case "answer":
            return f"{place} has the same answer for {_short(repr(expected.key))}"
        case "truth":
            return f"bool({place}) is {expected}"
        case "size":
            return f"{place} is an int: {sizes.show(expected)}"
        case "relation":
            left, operator, right = expected
            return f"{sizes.show(left)} {operator} {sizes.show(right)}"
        case _:
            raise TypeError(f"not a kind of guard: {guard.kind!r}")


def _tensor(expected: TensorExpectation) -> str:
    extent = ", ".join("any" if size is None else sizes.show(size) for size in expected.sizes)
    strides = ", ".join("any" if stride is None else sizes.show(stride) for stride in expected.strides)
    gradient = ", requires grad" if expected.requires_grad else ""
    return f"{expected.kind.__name__} {expected.dtype}[{extent}] strides ({strides}) on {expected.device}{gradient}"


def _object(value: object) -> str:
    """A short name: that of a class, function or code; the text of a small constant; else the value's type."""
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    name = getattr(value, "__qualname__", None) or getattr(value, "co_qualname", None)
    if name:
        module = getattr(value, "__module__", "builtins")
        return name if module == "builtins" or module is None else f"{module}.{name}"
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else f"a certain {type(value).__qualname__}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
