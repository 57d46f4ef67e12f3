"""torch.func.functional_call: the module's parameters and buffers are others while it is called. Capture swaps what it knows of the module's
tables and puts it back, so that nothing is written."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from thruway.capture.breaks import unsupported
from thruway.capture.state import State, is_instance_of
from thruway.capture.values.attribute import get_attribute
from thruway.capture.values.base import NONE, TRUE, Constant, DictValue, ObjectValue, TensorValue, TupleValue, Value
from thruway.capture.values.call import run_inline
from thruway.capture.values.iterate import items_of
from thruway.capture.values.mapping import read_key
from thruway.capture.values.truth import truth
from thruway.capture.values.unpack import mapping_items
from thruway.capture.wrap import instance_dict

Args = list[Value]
Kwargs = dict[str, Value]
SIGNATURE = inspect.signature(torch.func.functional_call)


def functional_call(state: State, args: Args, kwargs: Kwargs) -> Value:
    given = SIGNATURE.bind(*args, **kwargs).arguments
    module, wanted = given["module"], given["parameter_and_buffer_dicts"]
    if not is_instance_of(module, torch.nn.Module) or truth(state, given.get("strict", Constant(False))):
        raise unsupported(state, "TW101", "functional_call")
    places = _places(state, module, _pairs(state, wanted), truth(state, given.get("tie_weights", TRUE)))
    called, named = given.get("args", NONE), given.get("kwargs", NONE)
    positional = [] if called is NONE else items_of(state, called) if isinstance(called, TupleValue) else [called]
    keywords = {} if named is NONE else {key.value: one for key, one in mapping_items(state, named)}
    before = [(table, key, table.items[key]) for table, key, _ in places]
    for table, key, value in places:
        table.items[key] = (Constant(key), value)
    try:
        result = state.call(module, positional, keywords)
        if any(table.items.get(key, (None, None))[1] is not value for table, key, value in places):
            raise unsupported(state, "TW101", "functional_call of a module that sets its parameters or buffers")
    finally:
        for table, key, pair in before:
            table.items[key] = pair
    return result


def _pairs(state: State, wanted: Value) -> dict[str, Value]:
    """Name → tensor, from one dict or several that share no name."""
    found: dict[str, Value] = {}
    for mapping in [wanted] if isinstance(wanted, DictValue) else items_of(state, wanted):
        for key, value in mapping_items(state, mapping):
            if key.value in found or not isinstance(value, TensorValue):
                raise unsupported(state, "TW101", "functional_call")
            found[key.value] = value
    return found


def _places(state: State, module: ObjectValue, given: dict[str, Value], ties: bool) -> list[tuple[DictValue, str, Value]]:
    """Where the given tensors go: (table, key, tensor). One that stands in several places goes to all of them, where weights are tied."""
    held = _tables(state, module, "")
    if not given.keys() <= held.keys():
        raise unsupported(state, "TW101", "functional_call with names that the module lacks")
    wanted = dict(given)
    if ties:
        new = {}
        for name, value in given.items():
            if new.setdefault(_content(held[name]), value) is not value:
                raise unsupported(state, "TW101", "functional_call with several tensors for tied weights")
        wanted |= {name: new[_content(place)] for name, place in held.items() if _content(place) in new}
    return [(*held[name], value) for name, value in wanted.items()]


def _content(place: tuple[DictValue, str]) -> Value:
    table, key = place
    return table.items[key][1]


def _tables(state: State, module: ObjectValue, prefix: str) -> dict[str, tuple[DictValue, str]]:
    """Every parameter and buffer below `module` by its name."""
    found: dict[str, Any] = {}
    for name in ("_parameters", "_buffers"):
        table = _table(state, module, name)
        found |= {prefix + key.value: (table, key.value) for key, value in mapping_items(state, table) if isinstance(value, TensorValue)}
    for key, child in mapping_items(state, _table(state, module, "_modules")):
        if is_instance_of(child, torch.nn.Module):
            found |= _tables(state, child, f"{prefix}{key.value}.")
    return found


def _table(state: State, module: ObjectValue, name: str) -> DictValue:
    table = read_key(state, instance_dict(state, module), name) or run_inline(state, get_attribute(state, module, name))
    if not isinstance(table, DictValue):
        raise unsupported(state, "TW101", "functional_call")
    return table


ROWS = {torch.func.functional_call: functional_call}
