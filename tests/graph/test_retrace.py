"""Retracing captured graphs: the same numbers as eager, composites whole, lines carried, constants shared, sizes symbolic."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from graph.retraced import check, flat, operators
from thruway.core.errors import Unsupported, UserLine
from thruway.core.sizes import evaluate as size_of
from thruway.core.sizes import symbol
from thruway.graph.evaluate import evaluate
from thruway.graph.retrace import retrace, retrace_callable
from thruway.graph.show import show
from thruway.graph.verify import verify
from thruway.shapes.meta import TensorMeta
from thruway.shapes.symbolic import Facts
from thruway.shapes.trace_tensor import meta_of

X = torch.arange(24.0).reshape(2, 3, 4) - 10


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        s = (q @ k.transpose(-1, -2)) / 2.0
        s = s.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), float("-inf"))
        return x + self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                                  nn.Conv2d(8, 8, 3, padding="same", groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

    def forward(self, x):
        return self.body(x)


MODELS = {
    "attention": (Attention, (2, 5, 8)),
    "convolutions": (Convolutions, (2, 3, 8, 8)),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), (2, 5, 8)),
    "gru": (lambda: nn.GRU(8, 6, batch_first=True), (2, 5, 8)),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models(name):
    build, shape = MODELS[name]
    torch.manual_seed(1)
    check(build().eval(), torch.randn(shape), in_place=())


def test_channels_last_stays():
    torch.manual_seed(1)
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    check(Convolutions().eval().body[:3], x)


@pytest.mark.parametrize("name", ["attention", "convolutions", "encoder"])
def test_a_symbolic_batch_runs_at_every_size(name):
    build, shape = MODELS[name]
    torch.manual_seed(1)
    model = build().eval()
    b = symbol("b")
    example = meta_of(torch.zeros(shape))
    facts = Facts({"b": 3})
    with torch.no_grad():
        traced = retrace_callable(model, [replace(example, sizes=(b, *shape[1:]))], facts)
        verify(traced.graph)
        for n in (1, 2, 7):
            x = torch.randn(n, *shape[1:])
            (got,) = evaluate(traced.graph, [x, *traced.lifted])
            assert torch.allclose(got, model(x), atol=1e-6)
            (value,) = [m.meta["value"] for m in traced.graph.output_node().args[0]]
            assert tuple(size_of(s, {"b": n}) for s in value.sizes) == tuple(got.shape)
    assert not facts.recorded


def test_composites_stay_whole_and_others_come_apart():
    def f(x, w):
        y = F.scaled_dot_product_attention(x[None], x[None], x[None])[0]
        y = F.layer_norm(F.linear(y, w), (4,))
        return F.dropout(y, 0.5, training=False).softmax(-1).float().contiguous() @ w, torch.outer(w[0], w[1])
    traced = check(f, X, torch.eye(4))
    assert [o for o in operators(traced) if o not in ("unsqueeze", "select", "view", "clone")] == [
        "scaled_dot_product_attention", "linear", "layer_norm", "softmax", "matmul", "mul"]


def test_literals_have_nodes_of_their_own_and_scalars_are_full():
    def f(x):
        return x * torch.tensor([1.0, 2, 3, 4]) + torch.tensor([1.0, 2, 3, 4]) + torch.tensor(2.5) + torch.tensor(2.5)
    traced = check(f, X)
    assert sum(n.op == "get_attr" for n in traced.graph.nodes) == 2
    assert operators(traced).count("full") == 2


def captured(fn) -> torch.fx.GraphModule:
    module = torch.fx.symbolic_trace(fn)
    for i, node in enumerate(module.graph.nodes):
        node.meta["line"] = UserLine("user.py", i, "f")
    return module


def test_retrace_of_a_captured_graph():
    def f(x, w):
        y = F.linear(x, w)
        y.relu_()
        return y.t(), y.sum()
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    graph = retrace(captured(f), [meta_of(x), meta_of(w)], [False, True])
    verify(graph)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    assert [(n.name, n.meta["weight"]) for n in placeholders] == [("x", False), ("w", True)]
    lines = {n.target._schema.name: n.meta["line"].line for n in graph.nodes if n.op == "call_function"}
    assert lines == {"aten::linear": 2, "aten::relu": 3, "aten::t": 4, "aten::sum": 5}
    for got, want in zip(evaluate(graph, [x, w]), f(x, w)):
        assert torch.equal(got, want)
    assert "# user.py:2 in f" in show(graph) and "aten.linear(x, w)    : f32[3, 5]" in show(graph)


def test_size_inputs():
    def f(x, n):
        return x[:n] * n
    s = symbol("n")
    facts = Facts({"n": 5})
    graph = retrace(captured(f), [TensorMeta((8, 2), (2, 1), "float32"), s], [False, False], facts)
    verify(graph, facts)
    x = torch.randn(8, 2)
    for n in (2, 5, 7):
        (got,) = evaluate(graph, [x, n])
        assert torch.equal(got, x[:n] * n)


def test_operators_on_lists_are_traced_one_by_one():
    def change(a, b):
        c = [a * 1, b * 1]
        torch._foreach_mul_(c, torch.tensor(2.0))
        torch._foreach_add_(c, [a, b], alpha=3)
        torch._foreach_addcdiv_(c, [a, a], [b, b], 0.5)
        return [*torch._foreach_norm(c), *torch._foreach_sqrt(c)]
    traced = check(change, torch.rand(3) + 1, torch.rand(3) + 1)
    assert not any("foreach" in str(node.target) for node in traced.graph.nodes)


def test_a_batch_norm_in_training_mode_is_refused():
    with pytest.raises(Unsupported):
        check(nn.BatchNorm1d(4).train(), torch.randn(3, 4))


def test_errors_of_the_user_are_refusals():
    for wrong in (lambda x: x + torch.zeros(5), lambda x: x.view(7), lambda x: x @ x, lambda x: F.linear(x, torch.zeros(3, 9))):
        with pytest.raises((Unsupported, RuntimeError)):
            retrace_callable(wrong, [meta_of(X)])


def test_structures_come_back():
    traced = retrace_callable(lambda x: {"a": x + 1, "b": [x, (x * 2, 3)]}, [meta_of(X)])
    assert traced.structure == {"a": 0, "b": [1, [2, 3]]}
    assert len(flat(evaluate(traced.graph, [X]))) == 3
