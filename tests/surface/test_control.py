"""Control in torch.compiler's words: marks on functions and tensors, the stance, breaks as errors, compiled things inside captured code."""

from __future__ import annotations

import traceback

import pytest
import torch
from torch import nn

import thruway


@pytest.fixture(autouse=True)
def fresh():
    thruway.reset()
    yield
    thruway.set_stance("default")


def compiled(fn, **words):
    return thruway.compile(fn, backend="eager", **words)


def explained(fn, *args):
    return thruway.explain(fn, backend="eager")(*args)


@thruway.disable(reason="it prints")
def disabled(x):
    return x + 1


def test_a_disabled_function_breaks_at_the_call_with_its_reason():
    def f(x):
        return disabled(x * 2) * 3

    seen = explained(f, torch.ones(2))
    (reason,) = seen.break_reasons
    assert reason.code == "TW130" and "it prints" in reason.what and "disabled(x * 2)" in reason.where.text
    assert torch.equal(seen.result, torch.full((2,), 9.0))
    with pytest.raises(thruway.FullGraphError, match="it prints"):
        compiled(f, fullgraph=True)(torch.ones(2))


def test_allow_in_graph_makes_one_node():
    @thruway.allow_in_graph
    def scaled(x, by):
        return x.relu() * by

    seen = explained(lambda x: scaled(x + 1, 3) - 1, torch.ones(2))
    assert dict(seen.operators)["scaled"] == 1 and seen.graph_break_count == 0
    assert torch.equal(seen.result, torch.full((2,), 5.0))


def test_allow_in_graph_through_the_whole_compiler():
    scaled = thruway.allow_in_graph(lambda x: x.relu() * 2)
    assert torch.equal(thruway.compile(lambda x: scaled(x) + 1)(torch.ones(3)), torch.full((3,), 3.0))


def test_assume_constant_result_is_called_once_per_capture():
    calls = []

    @thruway.assume_constant_result
    def scale(offset):
        calls.append(offset)
        return len(calls) + offset

    f = compiled(lambda x: x * scale(1))
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0)) and torch.equal(f(torch.ones(2)), torch.full((2,), 2.0))
    assert calls == [1]


def test_marks_want_callables():
    for marker in (thruway.allow_in_graph, thruway.assume_constant_result):
        with pytest.raises(TypeError):
            marker(3)


@pytest.mark.parametrize("static", [False, True])
def test_mark_static_keeps_sizes_fixed(static):
    f = compiled(lambda x: x * x.shape[0])
    for rows in (3, 5, 6, 7):
        x = torch.ones(rows, 4)
        if static:
            thruway.mark_static(x, 0)
        assert torch.equal(f(x), torch.full((rows, 4), float(rows)))
    assert thruway.metrics()["captures"] == (4 if static else 2)


def breaks(y):
    return float(disabled(y).sum())


def test_error_on_graph_break_as_a_block_and_a_decorator():
    def block(x):
        with thruway.error_on_graph_break():
            return breaks(x * 2)

    decorated = thruway.error_on_graph_break()(breaks)
    for f in (block, lambda x: decorated(x)):
        with pytest.raises(thruway.FullGraphError, match="prints"):
            compiled(f)(torch.ones(2))
    with thruway.error_on_graph_break(), pytest.raises(thruway.FullGraphError):
        compiled(lambda x: breaks(x))(torch.ones(2))
    assert compiled(lambda x: breaks(x))(torch.ones(2)) == 4.0


def test_a_block_may_break_under_fullgraph():
    def f(x):
        with thruway.error_on_graph_break(False):
            y = breaks(x)
        return x + y

    assert torch.equal(compiled(f, fullgraph=True)(torch.ones(2)), torch.full((2,), 5.0))


def pick(x, way):
    return x + 1 if way == "up" else x - 1


def test_stances():
    f, x = compiled(pick), torch.ones(2)
    with thruway.set_stance("force_eager"):
        f(x, "up")
        compiled(pick)(x, "up")
        assert thruway.metrics()["captures"] == 0
    f(x, "up")
    with thruway.set_stance("eager_on_recompile"):
        assert torch.equal(f(x, "down"), x - 1)
    assert thruway.metrics()["captures"] == 1
    with thruway.set_stance("fail_on_recompile"):
        f(x, "up")
        with pytest.raises(thruway.RecompileError, match="'up' → 'down'"):
            f(x, "down")
    f(x, "down")
    assert thruway.metrics()["captures"] == 2


def test_a_stance_as_a_decorator_holds_only_inside():
    f = compiled(pick)

    @thruway.set_stance("force_eager")
    def eager():
        return f(torch.ones(2), "up")

    eager()
    assert thruway.metrics()["captures"] == 0 and thruway.settings.stance == "default"
    f(torch.ones(2), "up")
    assert thruway.metrics()["captures"] == 1


def test_an_unknown_stance_lists_the_known_ones():
    with pytest.raises(ValueError, match="force_eager"):
        thruway.set_stance("eager")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


def test_compiled_things_are_read_through_inside_captured_code():
    layer = Layer()
    inner_module, inner = compiled(layer), compiled(lambda x: x * 2)

    def f(x):
        inner_module.extra = 3
        return inner(inner_module(x)), isinstance(inner_module, Layer), type(inner_module) is Layer, inner_module, inner, inner_module.training

    seen = explained(f, torch.ones(1, 2))
    assert seen.graph_count == 1 and seen.graph_break_count == 0
    result, is_layer, is_type, module, function, training = seen.result
    assert torch.equal(result, layer.linear(torch.ones(1, 2)) * 2) and layer.calls == 1 and layer.extra == 3
    assert (is_layer, is_type, training) == (True, type(inner_module) is Layer, True)
    assert module is inner_module and function is inner


def test_is_compiling():
    f = compiled(lambda x: x + 1 if thruway.is_compiling() else x - 1)
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0)) and not thruway.is_compiling()


def test_mark_static_refuses_dimensions_that_are_not_there():
    with pytest.raises(IndexError, match="has 1 dimension, so none is 5"):
        thruway.mark_static(torch.ones(2), 5)


def test_an_error_of_fullgraph_shows_no_frames_of_the_compiler():
    @thruway.compile(fullgraph=True)
    def refused(x):
        open("/dev/null").close()
        return x + 1

    with pytest.raises(thruway.FullGraphError) as caught:
        refused(torch.ones(2))
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names in ([names[0], "miss"], [names[0]]) and names[0].startswith("test_")
