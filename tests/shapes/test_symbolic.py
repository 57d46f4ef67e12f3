"""Symbolic sizes through torch: they stay symbolic, comparisons go by the hint and become facts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from thruway.core.errors import Unsupported
from thruway.core.sizes import evaluate, mul, symbol
from thruway.shapes.infer import infer
from thruway.shapes.meta import TensorMeta, contiguous_strides
from thruway.shapes.symbolic import Fact, Facts
from thruway.shapes.trace_tensor import TraceMode, from_meta

B = symbol("b")
aten = torch.ops.aten


def meta(*sizes, dtype="float32") -> TensorMeta:
    return TensorMeta(sizes, contiguous_strides(sizes), dtype)


def run(fn, *metas, hint=7):
    facts = Facts({"b": hint})
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), TraceMode():
        return fn(*(from_meta(m, facts=facts) for m in metas)).meta, facts


PROGRAMS = {
    "view": lambda x: x.view(-1, 8),
    "reshape": lambda x: x.transpose(0, 1).reshape(3, -1),
    "flatten": lambda x: x.flatten() + 1,
    "linear": lambda x: F.linear(x, torch.zeros(5, 8)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(x.shape[0], 3, 2, 4).transpose(1, 2)] * 3),
    "softmax": lambda x: (x @ x.transpose(1, 2)).softmax(-1),
    "cat": lambda x: torch.cat([x, x * 2], 0)[:, 1:],
    "reduce": lambda x: x.mean((1, 2)),
    "factory": lambda x: torch.zeros(x.shape[0], 4) + torch.arange(x.shape[0])[:, None],
    "expand": lambda x: x[:1].expand(x.shape[0], 3, 8) * x,
    "arithmetic": lambda x: x.view(x.shape[0] * 3, 8)[: x.shape[0] * 2],
    "split": lambda x: x.chunk(2, -1)[1] + x.split(4, -1)[0],
    "norm": lambda x: F.layer_norm(x, (8,)),
    "pool": lambda x: F.max_pool2d(x[:, None].expand(x.shape[0], 2, 3, 8), 2),
    "convolution": lambda x: F.conv1d(x, torch.zeros(4, 3, 3), padding=1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "repeat": lambda x: x.repeat(2, 1, 1),
    "stack": lambda x: torch.stack([x, x], 1),
    "index": lambda x: x[:, torch.tensor([0, 2])],
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_one_trace_holds_for_every_size(name):
    traced, facts = run(PROGRAMS[name], meta(B, 3, 8))
    for n in (2, 5, 16):
        real = PROGRAMS[name](torch.zeros(n, 3, 8))
        assert tuple(evaluate(s, {"b": n}) for s in traced.sizes) == tuple(real.shape)
        assert tuple(evaluate(s, {"b": n}) for s in traced.strides) == real.stride()
    assert not [f for f in facts.recorded if f.operator == "=="], "the size became a constant"


def test_comparisons_are_recorded_once():
    def f(x):
        return x + 1 if x.shape[0] > 5 and x.shape[0] > 5 else x
    _, facts = run(f, meta(B, 3))
    assert list(facts.recorded) == [Fact(5, "<", B)]


def test_what_is_certain_is_not_recorded():
    def f(x):
        assert x.shape[0] != 0 and x.shape[0] * 2 > x.shape[0] and x.shape[0] == x.shape[0] and x.shape[0] != 1
        return x
    assert not run(f, meta(B, 3))[1].recorded


def test_a_size_that_must_be_a_number_becomes_one():
    traced, facts = run(lambda x: torch.cat([x[i:i + 1] for i in range(x.shape[0])]), meta(B, 3))
    assert traced.sizes == (7, 3) and Fact(B, "==", 7) in facts.recorded


def test_equal_sizes_of_two_inputs():
    s = symbol("s")
    facts = Facts({"b": 4, "s": 4})
    with torch.no_grad(), TraceMode():
        made = from_meta(meta(B, 2), facts=facts) + from_meta(meta(s, 2), facts=facts)
    assert Fact(s, "==", B) in facts.recorded or Fact(B, "==", s) in facts.recorded
    assert made.meta.sizes in ((B, 2), (s, 2))


def test_infer_without_facts():
    assert infer(aten.add.Tensor, (meta(B, 3), meta(3))).sizes == (B, 3)
    assert infer(aten.view.default, (meta(B, 4), [mul(B, 2), 2])).sizes == (mul(B, 2), 2)
    with pytest.raises(Unsupported):
        infer(aten.trace.default, (meta(B, B),))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.lists(st.sampled_from(["view", "t", "slice", "add", "sum", "cat"]), max_size=4), st.integers(2, 30))
def test_random_chains(hint, steps, n):
    def f(x):
        for step in steps:
            x = {"view": lambda: x.reshape(-1, 2), "t": lambda: x.t(), "slice": lambda: x[1:], "add": lambda: x + x[:1],
                 "sum": lambda: x.sum(0, keepdim=True), "cat": lambda: torch.cat([x, x], 1)}[step]()
        return x
    try:
        traced, facts = run(f, meta(B, 4), hint=hint)
    except (Unsupported, RuntimeError):
        return
    values = {"b": n}
    if all(_holds(fact, values) for fact in facts.recorded):
        real = f(torch.zeros(n, 4))
        assert tuple(evaluate(s, values) for s in traced.sizes) == tuple(real.shape)


def _holds(fact: Fact, values) -> bool:
    a, b = evaluate(fact.left, values), evaluate(fact.right, values)
    return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b}[fact.operator]
