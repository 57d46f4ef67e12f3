"""types.MappingProxyType: read through to the dict behind it, whose changes are seen."""

import inspect
import types
from collections import UserDict

import pytest
import torch

import thruway

CONTENT = {"a": 1.0, "b": 2.0}
PROXY = types.MappingProxyType(CONTENT)


def read(x):
    for key in PROXY:
        x = x + PROXY[key]
    return x, list(PROXY.values()), list(PROXY.items()), PROXY.get("z"), "a" in PROXY, len(PROXY), dict(PROXY), {**PROXY}, bool(PROXY), PROXY | {"c": 1}, \
        PROXY == CONTENT, isinstance(PROXY, dict), PROXY.copy(), list(PROXY.keys()), type(PROXY) is types.MappingProxyType, PROXY


def test_what_changes_behind_it_is_seen():
    thruway.reset()
    compiled = thruway.compile(read)
    x = torch.zeros(2)
    for change in ({}, {"a": 5.0}, {"c": 7.0}, {"a": 5.0}):
        CONTENT.update(change)
        assert repr(compiled(x)) == repr(read(x))
        assert compiled(x)[-1] is PROXY
    assert thruway.metrics()["graph_breaks"] == 0
    for key in [*CONTENT][2:]:
        del CONTENT[key]
    assert repr(compiled(x)) == repr(read(x))


class Holder(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.table = {"scale": scale}
        self.shown = types.MappingProxyType(self.table)

    def forward(self, x):
        self.table["calls"] = self.table.get("calls", 0) + 1
        return x * self.shown["scale"], self.shown["calls"], sorted(self.shown)


def test_a_write_to_the_dict_within_the_call_is_seen():
    thruway.reset()
    one, other = Holder(2.0), Holder(2.0)
    compiled, x = thruway.compile(one), torch.ones(3)
    for scale in (2.0, 2.0, 3.0):
        one.table["scale"] = other.table["scale"] = scale
        assert repr(compiled(x)) == repr(other(x)) and one.table == other.table


def target(self, x, flag=True, *, scale=2.0):
    return x


SIGNATURE = inspect.signature(target)


def bound(x):
    arguments = SIGNATURE.bind(None, x, scale=3.0)
    arguments.apply_defaults()
    return x * arguments.arguments["scale"], arguments.arguments["flag"], list(SIGNATURE.parameters)


def test_binding_to_a_signature_is_one_graph():
    thruway.reset()
    compiled, x = thruway.compile(bound, fullgraph=True), torch.ones(3)
    assert repr(compiled(x)) == repr(bound(x))


OVER_ANOTHER = types.MappingProxyType(UserDict({"a": 2.0}))


@pytest.mark.parametrize("function", [
    lambda x: x * OVER_ANOTHER["a"], lambda x: (x, PROXY.__class__.__name__, [*vars(Holder)][:2], Holder.__dict__.get("missing")),
])
def test_other_proxies_are_as_in_eager(function):
    thruway.reset()
    x = torch.ones(3)
    compiled = thruway.compile(function)
    for _ in range(2):
        assert repr(compiled(x)) == repr(function(x))


def test_it_cannot_be_written():
    def function(x):
        PROXY["a"] = x
    thruway.reset()
    with pytest.raises(TypeError, match="item assignment"):
        thruway.compile(function)(torch.ones(2))
